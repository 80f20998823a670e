"""A webhook on loopback, which keeps the texts of the messages that come to its secret address."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

from http_faults import Fault, Handler, Server, reply, serving

SECRET = "T0P-S3CRET"


class Hook(Server):
    """`texts` are the messages, in the order that they came.

    Messages for which it `is_down` are answered with an error, and are `lost`.
    """

    def reset(self) -> None:
        super().reset()
        self.texts: list[str] = []
        self.lost: list[str] = []
        self.is_down: Callable[[str], bool] = lambda text: False

    @property
    def secret_address(self) -> str:
        return f"{self.address}/hooks/{SECRET}"


class _Receives(Handler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self.server.begin(self.path, self.path)
        if self.path == f"/hooks/{SECRET}" and fault.status == 200:
            text = json.loads(body)["text"]
            if self.server.is_down(text):
                self.server.lost.append(text)
                fault = Fault(status=503)
            else:
                self.server.texts.append(text)
        reply(self, b"", fault, {})


def receiving() -> AbstractContextManager[Hook]:
    return serving(Hook(_Receives))
