"""The explorer's server, on the loopback address alone: every view is an address, and only a form asks for work."""

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from pipelines.errors import LongtailError
from pipelines.explorer import asking, pages, questions
from pipelines.explorer.run import RUN, Run, open_run

PORT = 4300  # unless it is taken
HOSTS = [
    "127.0.0.1",
    "localhost",
]  # any other name in a request comes from a foreign page that was led here
LONGEST = 20_000  # bytes of a form
OURS = "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
# Pages that a run wrote bring their own scripts; as pages of no origin they reach nothing here.
WRITTEN = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src 'self' data: blob:; script-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
)


def app(open_run: Callable[[], Run] = open_run, places: Sequence[pages.Place] = ()) -> Starlette:
    """The pages of the run that `open_run` gives at each request; the first one leads to `places` too."""
    token, jobs = secrets.token_urlsafe(), asking.Jobs()

    async def with_headers(request: Request, call_next: Callable) -> Response:
        response = await call_next(request)
        response.headers.setdefault("Content-Security-Policy", OURS)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "same-origin"
        response.headers["Cache-Control"] = "no-cache"
        return response

    def refused(request: Request, error: LongtailError) -> Response:
        return _error(404, str(error))

    def not_there(request: Request, error: HTTPException) -> Response:
        return _error(error.status_code, f"{request.url.path}: {error.detail}")

    def style(request: Request) -> Response:
        return Response(pages.css(), media_type="text/css")

    def home(request: Request) -> Response:
        return HTMLResponse(pages.home(open_run(), places))

    def page(name: str) -> Callable[[Request], Response]:
        return lambda request: HTMLResponse(getattr(pages, name)(open_run(), request.query_params))

    def questions_csv(request: Request) -> Response:
        run = open_run()
        chosen = questions.Slice.of(run, request.query_params)
        headers = {"Content-Disposition": f'attachment; filename="questions-{chosen.set}.csv"'}
        return StreamingResponse(
            questions.to_csv(run, chosen), media_type="text/csv; charset=utf-8", headers=headers
        )

    def report(request: Request) -> Response:
        return _of_folder(open_run().data / "report", request.path_params["path"], RUN)

    def asked(request: Request) -> Response:
        run = open_run()
        asked = asking.Asked.of(run, request.query_params)
        return HTMLResponse(pages.ask(run, asked, jobs.get(run, asked), token))

    async def ask(request: Request) -> Response:
        """Begin to answer, and show the question's page. A page elsewhere knows no token, and has another origin."""
        if int(request.headers.get("content-length") or LONGEST) >= LONGEST:
            return _error(413, f"the form has {LONGEST:,} bytes or more; ask a shorter question")
        form = parse_qs((await request.body()).decode(errors="replace"), keep_blank_values=True)
        fields = {name: values[-1] for name, values in form.items()}
        origin = request.headers.get("origin", f"http://{request.headers['host']}")
        if origin != f"http://{request.headers['host']}" or not secrets.compare_digest(
            fields.get("token", "").encode(), token.encode()
        ):
            return _error(
                403,
                "this form is not from here, or from before the explorer was started anew; open /ask",
            )
        run = open_run()
        asked = asking.Asked.of(run, fields)
        if asked.question:
            jobs.start(run, asked)
        return RedirectResponse(asked.to(), status_code=303)

    found = {"/style.css": style, "/": home, "/questions.csv": questions_csv, "/ask": asked}
    found |= {f"/{name}": page(name) for name in ("questions", "question", "texts", "text")}
    found |= {"/report/{path:path}": report}
    return Starlette(
        routes=[
            *(Route(path, view) for path, view in found.items()),
            Route("/ask", ask, methods=["POST"]),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=with_headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS),
        ],
        exception_handlers={LongtailError: refused, HTTPException: not_there},
    )


def _of_folder(folder: Path, path: str, makes: str) -> Response:
    """A file of a page that the project wrote, by default the page."""
    file = folder / (path or "index.html")
    if (
        ".." in file.parts or path.startswith("/") or not file.is_file()
    ):  # DVC may have linked files to its cache
        raise LongtailError(f"{folder}/{path or 'index.html'}: no such file; {makes}")
    return FileResponse(file, headers={"Content-Security-Policy": WRITTEN})


def _error(status: int, message: str) -> Response:
    return HTMLResponse(
        pages.render("error", message=message, title="This can't be shown"), status_code=status
    )


@contextmanager
def serving(
    port: int | None = None,
    places: Sequence[pages.Place] = (),
    open_run: Callable[[], Run] = open_run,
) -> Iterator[str]:
    """Serve `app` for the block; yields its address. LongtailError if `port` is taken; None: PORT, or a free one."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port or PORT))
        except OSError:
            if port:
                raise LongtailError(
                    f"port {port} is taken; end what listens there, or choose another"
                ) from None
            listening.bind(("127.0.0.1", 0))
        made = app(open_run, places)
        server = uvicorn.Server(
            uvicorn.Config(made, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
