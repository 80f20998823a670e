"""The explorer's server, on the loopback address alone.

Every view is an address; nothing can be changed.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from flows.server import choose_port
from pipelines.errors import LongtailError
from pipelines.explorer import pages
from pipelines.explorer.run import RUN_MAKES_IT, Run, open_run

PORT = 4300  # unless it is taken
# any other name in a request comes from a foreign page that was led here
HOSTS = ["127.0.0.1", "localhost"]
OUR_POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# The report brings its own scripts; as a page of no origin it reaches nothing here.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; "
    "style-src 'unsafe-inline'; img-src 'self' data: blob:; script-src 'unsafe-inline'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
STOP_SECONDS = 10  # that the server has to end


def app(open_run: Callable[[], Run] = open_run, places: Sequence[pages.Place] = ()) -> Starlette:
    """The pages of the run that `open_run` gives at each request; the first links to `places`."""

    def style(request: Request) -> Response:
        return Response(pages.css(), media_type="text/css")

    def home(request: Request) -> Response:
        return HTMLResponse(pages.home(open_run(), places))

    def page(name: str) -> Callable[[Request], Response]:
        def view(request: Request) -> Response:
            return HTMLResponse(getattr(pages, name)(open_run(), request.query_params))

        return view

    def report(request: Request) -> Response:
        return _file(open_run().data / "report", request.path_params["path"] or "index.html")

    def document(request: Request) -> Response:
        """A page of docs/, to which the report links."""
        return _file(open_run().data.parent / "docs", request.path_params["path"])

    return Starlette(
        routes=[
            Route("/", home),
            Route("/style.css", style),
            Route("/questions", page("questions")),
            Route("/question", page("question")),
            Route("/texts", page("texts")),
            Route("/text", page("text")),
            Route("/report/{path:path}", report),
            Route("/docs/{path:path}", document),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=_add_headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS),
        ],
        exception_handlers={LongtailError: _show_error, HTTPException: _show_http_error},
    )


async def _add_headers(request: Request, call_next: Callable) -> Response:
    response = await call_next(request)
    response.headers.setdefault("Content-Security-Policy", OUR_POLICY)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["Cache-Control"] = "no-cache"
    return response


def _show_error(request: Request, error: Exception) -> Response:
    return _error_page(404, str(error))


def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error_page(error.status_code, f"{request.url.path}: {error.detail}")


def _error_page(status: int, message: str) -> Response:
    page = pages.render("error", message=message, title="This can't be shown")
    return HTMLResponse(page, status_code=status)


def _file(folder: Path, path: str) -> Response:
    """A file of a folder. DVC may have linked it to its cache."""
    file = folder / path
    if ".." in file.parts or path.startswith("/") or not file.is_file():
        raise LongtailError(f"{folder}/{path}: no such file; {RUN_MAKES_IT}")
    media_type = "text/plain" if file.suffix == ".md" else None
    headers = {"Content-Security-Policy": REPORT_POLICY}
    return FileResponse(file, media_type=media_type, headers=headers)


@contextmanager
def serving(
    port: int | None = None,
    places: Sequence[pages.Place] = (),
    open_run: Callable[[], Run] = open_run,
) -> Iterator[str]:
    """Serve `app` for the block; yields its address.

    Without `port` it is PORT, or a free one where that is taken. Raises LongtailError if `port` is
    taken.
    """
    port = choose_port(port, PORT)
    config = uvicorn.Config(
        app(open_run, places),
        port=port,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)
