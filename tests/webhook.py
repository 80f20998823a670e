"""A webhook on loopback, which keeps the texts of the messages that come to its secret address."""

import json
from contextlib import AbstractContextManager

from http_faults import Handler, Server, reply, serving

SECRET = "T0P-S3CRET"


class Hook(Server):
    """`texts` are the messages, in the order that they came."""

    def reset(self) -> None:
        super().reset()
        self.texts: list[str] = []

    @property
    def secret_address(self) -> str:
        return f"{self.address}/hooks/{SECRET}"


class _Receives(Handler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self.server.begin(self.path, self.path)
        if self.path == f"/hooks/{SECRET}" and fault.status == 200:
            self.server.texts.append(json.loads(body)["text"])
        reply(self, b"", fault, {})


def receiving() -> AbstractContextManager[Hook]:
    return serving(Hook(_Receives))
