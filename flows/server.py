"""The Prefect server of a run.

It is the one that PREFECT_API_URL names, one that is up in this checkout, or a new one.

A new server listens on the loopback address and keeps its database under .longtail/prefect, or
below /var/tmp where that lies on a network file system. It watches the pipe on its standard input,
so it ends with the process that started it, however that process ends.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from flows import workspace
from flows.named_server import check_named_server
from pipelines import redaction
from pipelines.errors import LongtailError
from pipelines.storage import disks
from pipelines.storage.atomic import read_json, write_json
from pipelines.work import http, run_log

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

HOME = Path(".longtail/prefect")
START_SECONDS = 180  # that a server may take to start; a fresh database takes 10 to 20
SERVER_STOP_SECONDS = 15
DRAIN_SECONDS = 30  # to send logs and events
LATE_SECONDS = 6 * 3600  # after its time that a run has not begun
ERROR_LINE = re.compile(r"^[\w.]+(?:Error|Exception): (.+)$", re.MULTILINE)
# Prefect's settings of another server and its clients. Those of a server's database, services and
# pages hold for a run's own server too.
OF_ANOTHER_SERVER = re.compile(
    "PREFECT_(?:SERVER_(?!SERVICES_|DATABASE_|ANALYTICS_|LOGGING_|UI_V2_|UI_SHOW_)"
    "|API_(?!URL$|SERVICES_|DATABASE_)|CLIENT_|CLOUD_|EVENTS_|MESSAGING_|PROFILE)"
)
DATABASE = "DATABASE_CONNECTION_URL"  # ends the names of a setting of the database
BAD_SETTING = re.compile(r"validation errors? for \w+\n(\w+)")  # which a server can't read
# what a server says that can't read its database, as one of another version of Prefect
BAD_DATABASE = re.compile("locate revision|not a database|malformed|unable to open")
# else Prefect's and MLflow's pages load logos, videos and settings of analytics from other hosts
ONLY_FROM_HERE = (
    "Content-Security-Policy",
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob: "
    "http://127.0.0.1:* ws://127.0.0.1:*",
)


@contextmanager
def running(home: Path) -> Iterator[str]:
    """Yield the URL of a healthy server's API, and tell Prefect of it before it is imported.

    Raises LongtailError if there is none.
    """
    prepare(home)
    url = os.environ.get("PREFECT_API_URL")
    if url:
        check_named_server(url)
        yield url
        return

    _leave_other_servers()
    url = already_up(home)
    with nullcontext(url) if url else start(home) as url:
        os.environ["PREFECT_API_URL"] = url
        try:
            yield url
        finally:
            del os.environ["PREFECT_API_URL"]


def prepare(home: Path) -> None:
    """Set Prefect's settings, as pyproject.toml has them.

    Raises LongtailError for a proxy that Prefect's client can't use.
    """
    http.check_certificates()
    _check_proxies()
    home.mkdir(parents=True, exist_ok=True)
    if disks.is_on_network(home) and not _variables(DATABASE):
        database = disks.local(home) / "prefect.db"  # Prefect opens it in SQLite's WAL mode
        os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{database}"
    settings = {
        "PREFECT_HOME": str(home.resolve()),
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
        "PREFECT_TASKS_DEFAULT_RETRY_DELAY_SECONDS": "[60, 300]",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # a run may have to wait for the one before; by default it is late after 15 seconds
        "PREFECT_SERVER_SERVICES_LATE_RUNS_AFTER_SECONDS": str(LATE_SECONDS),
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def _leave_other_servers() -> None:
    """Drop the settings of other servers, such as a password and a path, from the environment."""
    for name in list(os.environ):
        if OF_ANOTHER_SERVER.match(name):
            del os.environ[name]


def _variables(ending: str) -> list[str]:
    """Prefect's variables whose names end so."""
    return [name for name in os.environ if re.match(f"PREFECT_.*{ending}$", name)]


def _check_proxies() -> None:
    import httpx

    try:
        httpx.Client().close()
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        names = sorted(name for name in os.environ if name.lower().endswith("_proxy"))
        raise LongtailError(
            f"{', '.join(names)}: Prefect's client can't use a proxy there ({error}); name HTTP "
            "proxies, in HTTP_PROXY and HTTPS_PROXY, or unset it"
        ) from None


@contextmanager
def start(home: Path, port: int = 0) -> Iterator[str]:
    """Start a server, which Ctrl-C does not reach.

    Yields its API's URL once it is healthy, and stops it at the end.
    """
    port = choose_port(port, 0)
    url = f"http://127.0.0.1:{port}/api"
    log = home / "server.log"
    note = home / "server.json"
    _leave_other_servers()
    environment = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"}
    # otherwise the pages ask port 4200, whatever port they come from
    environment["PREFECT_SERVER_UI_API_URL"] = url
    environment.setdefault("PREFECT_UI_URL", url.removesuffix("/api"))  # the links of alerts
    # Prefect lists all time zones whenever it reads a schedule, which takes long in system files.
    environment["PYTHONTZPATH"] = ""

    process = workspace.start_module(["flows.server", str(port)], log, environment)
    closing = threading.Event()
    try:
        if not _wait_until_healthy(url, process):
            raise LongtailError(f"the Prefect server did not start{_reason(log)}; see {log}")
        write_json(note, {"url": url, "pid": process.pid, "home": str(home.resolve())})
        threading.Thread(target=_end_with_server, args=(process, log, closing), daemon=True).start()
        yield url
    finally:
        closing.set()
        note.unlink(missing_ok=True)
        workspace.close(process, patience=SERVER_STOP_SECONDS)


def _reason(log: Path) -> str:
    """The last error in a server's log, with what to do about it; "" if there is none."""
    text = log.read_text(encoding="utf-8", errors="replace")
    errors = ERROR_LINE.findall(text)
    if not errors:
        return ""
    error = errors[-1]
    setting = BAD_SETTING.search(text)
    named = _variables(setting[1].upper() if setting else DATABASE)
    if named:
        return f": {error}; correct or unset {', '.join(named)}"
    if BAD_DATABASE.search(error):
        home = os.environ.get("PREFECT_HOME", "")
        return (
            f": {error} (PREFECT_HOME={home}); move prefect.db there away, and a run makes a new "
            "one, or install the version of Prefect that wrote it"
        )
    return f": {error}"


def _end_with_server(process: subprocess.Popen, log: Path, closing: threading.Event) -> None:
    """End this process and its children if the server ends first.

    Prefect would ask the server again for minutes.
    """
    code = process.wait()
    if closing.is_set():
        return
    from flows import live

    live.stop()
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    children = [child.pid for child in psutil.Process().children()]
    workspace.stop(children)
    message = f"error: the Prefect server {how}, see {log}; run again to go on"
    print(message, file=sys.stderr, flush=True)
    os._exit(1)


@contextmanager
def mlflow_pages(home: Path, port: int) -> Iterator[str]:
    """Serve MLflow's pages on this folder's store.

    Yields the address of the list of runs once it can be opened.
    """
    with suppress(sqlite3.Error):  # the log says why the pages do not open
        run_log.take_store()
    headers = shlex.join(["--header", ":".join(ONLY_FROM_HERE)])
    command = f"mlflow ui --host 127.0.0.1 --port {port} --workers 1 --backend-store-uri".split()
    log = home / "mlflow.log"
    process = workspace.start_module([*command, run_log.store(), "--uvicorn-opts", headers], log)
    url = f"http://127.0.0.1:{port}"
    try:
        if not _wait_until_healthy(url, process):
            raise LongtailError(f"MLflow's pages did not open, see {log}")
        yield _list_of_runs(url)
    finally:
        workspace.stop([process.pid])
        process.wait()


def _list_of_runs(url: str) -> str:
    """The address of the list of runs on MLflow's pages at `url`.

    Before the first run it is the list of experiments. An experiment's own address would open a
    page on traces, of which there are none.
    """
    name = f"experiment_name={run_log.EXPERIMENT}"
    try:
        with urllib.request.urlopen(
            f"{url}/api/2.0/mlflow/experiments/get-by-name?{name}"
        ) as found:
            experiment = json.load(found)["experiment"]
    except urllib.error.HTTPError:
        return f"{url}/#/experiments"

    runs = f"{url}/#/experiments/{experiment['experiment_id']}/runs"
    return f"{runs}?workflowType=machine_learning"


def _wait_until_healthy(url: str, process: subprocess.Popen) -> bool:
    """Wait until a server answers; False if its process ends before, or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not _healthy(url):
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def choose_port(port: int | None, usual: int) -> int:
    """`port`, or without one the usual port or a free one.

    Raises LongtailError if `port` is taken.
    """
    chosen = port_for(port or usual)
    if port and chosen != port:
        raise LongtailError(
            f"port {port} is taken; end what listens there, or choose another with --port"
        )
    return chosen


def port_for(usual: int) -> int:
    """The usual port, or a free one where that is taken; 0 stands for any free one."""
    for port in (usual, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise LongtailError("no port is free on 127.0.0.1; end a program that listens there")


def flush() -> None:
    """Send the logs and events that Prefect still holds.

    Call this when the flow is done, before its server stops.
    """
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=DRAIN_SECONDS)
    EventsWorker.drain_all(timeout=DRAIN_SECONDS)


def already_up(home: Path) -> str | None:
    """The URL of a server that another process started in this checkout, if it still answers.

    A copied checkout has the note of the first one's server.
    """
    with suppress(OSError, ValueError, KeyError):  # no note, or half of one
        note = read_json(home / "server.json")
        if note["home"] == str(home.resolve()) and _healthy(note["url"]):
            return note["url"]
    return None


def _healthy(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
        return answer.status == 200
    return False


def app() -> Starlette:
    """Prefect's server, with its own list of kinds of workers, for which it else asks GitHub."""
    from prefect.server.api import collections
    from prefect.server.api.server import create_app
    from starlette.responses import FileResponse
    from starlette.routing import Route

    folder = Path(collections.__file__).parent / "collections_data/views"

    def view(request: Request) -> Response:
        return FileResponse(folder / f"{request.path_params['name']}.json")

    server = create_app()
    server.router.routes.insert(0, Route("/api/collections/views/{name}", view))
    return server


def main() -> None:
    """Serve Prefect on the port of the first argument until standard input closes."""
    import uvicorn

    redaction.guard()
    workspace.end_with_standard_input()
    uvicorn.run(
        "flows.server:app",
        factory=True,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        headers=[ONLY_FROM_HERE],
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
