"""What can be wrong with an HTTP answer, and how the servers of tests send it."""

import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from waiting import until

NOTHING = -1  # a fault's `sent`: the connection is closed without even a status


@dataclass(frozen=True)
class Fault:
    """What is wrong with one answer."""

    status: int = 200  # other than 200: in place of the page
    body: bytes | None = None  # in place of the page's
    headers: dict[str, str] = field(default_factory=dict)
    sent: int | None = None  # bytes of the body that are sent before the connection is closed
    length: int | None = None  # what Content-Length says, in place of the truth
    reset: bool = False  # the connection is reset in place of closed
    change: Callable[[bytes], bytes] | None = None  # gives the body, from the right one
    drip: Callable[[], None] | None = (
        None  # the body comes in six parts, and this is called before each
    )
    reason: str | None = None  # the status line's words


def busy(retry_after: str = "0") -> Fault:
    return Fault(429, b"Too many requests", {"Retry-After": retry_after})


def lagged(retry_after: str = "0") -> Fault:
    """What MediaWiki's API answers a request with `maxlag` while its database lags behind: status
    200."""
    info = "Waiting for 10.64.32.21: 6.1 seconds lagged."
    error = {"code": "maxlag", "info": info, "host": "10.64.32.21", "lag": 6.1, "type": "db"}
    return Fault(
        200, json.dumps({"error": error, "servedby": "mw1"}).encode(), {"Retry-After": retry_after}
    )


def moved(to: str) -> Fault:
    return Fault(301, b"", {"Location": to})


def reply(
    handler: BaseHTTPRequestHandler, body: bytes, fault: Fault, headers: dict[str, str]
) -> None:
    """Send an answer of the fault's status with this body, as the fault has it."""
    body = fault.change(body) if fault.change else body
    broken = fault.reset or fault.sent is not None or fault.length is not None
    handler.close_connection = broken or handler.close_connection
    if fault.sent != NOTHING:
        handler.send_response(fault.status, fault.reason)
        length = len(body) if fault.length is None else fault.length
        for name, value in ({"Content-Length": str(length)} | headers | fault.headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        step = len(body) // 6 + 1
        for part in (
            [body[i : i + step] for i in range(0, len(body), step)]
            if fault.drip
            else [body[: fault.sent]]
        ):
            if handler.command != "HEAD":
                if fault.drip:
                    fault.drip()
                handler.wfile.write(part[: fault.length])
                if fault.length is not None and part[fault.length :]:
                    time.sleep(0.002)  # the rest comes when the connection may be in use again
                    with suppress(ConnectionError):
                        handler.wfile.write(part[fault.length :])
    if fault.reset:
        handler.wfile.flush()
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer takes 40 ms

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A server on loopback, with faults at will.

    The faults hit the next requests whose path has `at` in it, one each (None: no fault).
    `requests` are all that came, `answered` counts what was answered without a fault.
    """

    daemon_threads = True

    def __init__(self, handler: type[Handler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.faults: list[Fault | None] = []
        self.at = ""
        self.requests: list = []
        self.answered: Counter[str] = Counter()
        self.now = self.most = 0  # requests at the same time
        self.hold = (
            0.0  # seconds that every answer takes, so that one request too many would be seen
        )
        self.together = 0  # requests that were at work at the same time before anything is answered
        self.stalls_after: int | None = None  # requests, after which none is answered until `go_on`
        self.go_on = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def begin(self, path: str, request: object) -> Fault:
        """Take note of a request, and wait as it has to; its fault."""
        with self.lock:
            self.requests.append(request)
            fault = (self.faults.pop(0) if self.faults and self.at in path else None) or Fault()
            self.now += 1
            self.most = max(self.most, self.now)
            stalled = self.stalls_after is not None and len(self.requests) > self.stalls_after
        assert not stalled or self.go_on.wait()
        until(lambda: self.most >= self.together)
        time.sleep(self.hold)
        return fault

    def handle_error(self, *of_request: object) -> None:
        """A client that hung up is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*of_request)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()
