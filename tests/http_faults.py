"""What can be wrong with an HTTP answer, and how the servers of tests send it."""

import json
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
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
    drip: Callable[[], None] | None = None  # the body comes in six parts, and this is called before each
    reason: str | None = None  # the status line's words


def busy(retry_after: str = "0") -> Fault:
    return Fault(429, b"Too many requests", {"Retry-After": retry_after})


def lagged(retry_after: str = "0") -> Fault:
    """What MediaWiki's API answers a request with `maxlag` while its database lags behind: status 200."""
    info = "Waiting for 10.64.32.21: 6.1 seconds lagged."
    error = {"code": "maxlag", "info": info, "host": "10.64.32.21", "lag": 6.1, "type": "db"}
    return Fault(200, json.dumps({"error": error, "servedby": "mw1"}).encode(), {"Retry-After": retry_after})


def moved(to: str) -> Fault:
    return Fault(301, b"", {"Location": to})


def reply(handler: BaseHTTPRequestHandler, body: bytes, fault: Fault, headers: dict[str, str]) -> None:
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
        for part in [body[i : i + step] for i in range(0, len(body), step)] if fault.drip else [body[: fault.sent]]:
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


def meet(server: ThreadingHTTPServer) -> None:
    """Wait until `server.together` requests have been at work at the same time, and then `server.hold` seconds."""
    until(lambda: server.most >= server.together)
    time.sleep(server.hold)
