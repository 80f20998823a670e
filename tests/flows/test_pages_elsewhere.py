"""`longtail explore --all`: Prefect and MLflow show what a run made, and no page, and none of the
servers, asks anything of another machine.

Servers and browser have a proxy for other hosts, which keeps what it is asked and answers nothing.
"""

import os
import re
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from quick_project import LAST, started
from waiting import PATIENCE

from pipelines import QUIET
from pipelines.work.run_log import Run

pytestmark = pytest.mark.slow
OF_CHROMIUM = (
    "content-autofill.googleapis.com:443"  # asked by the browser itself where a page has a form
)
IDS = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}|(?<=catalog/)[^/]+|\d+|\?.*")
# MLflow tells nobody of a test in any case
IN_TESTS = ("PREFECT_", "MLFLOW_", "PYTEST", "CI", "GITHUB_")


class Elsewhere(ThreadingHTTPServer):
    """A proxy that keeps what it is `asked`, as HOST:PORT or an address."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refuses)
        self.asked: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Refuses(BaseHTTPRequestHandler):
    def refuse(self) -> None:
        self.server.asked += [self.path] * (self.path != OF_CHROMIUM)
        self.send_error(502)

    do_CONNECT = do_GET = do_HEAD = do_POST = do_PUT = do_OPTIONS = refuse

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()


@pytest.fixture
def places(ran, prefect, elsewhere) -> Iterator[dict[str, str]]:
    """What the command serves -> its address.

    The project has run once, and has the shared server's flow runs. In MLflow another run of it
    landed with a report.
    """
    (ran.folder / "report").mkdir()
    (ran.folder / "report/index.html").write_text("<h1>What came out</h1>")
    with ran.here():
        run = Run("reported", {}, pytest.fail, "sample with a report")
        run.sum_up({}, {"adaptive_accuracy": 0.625}, Path("report"))
        run.land({})
        run.end("FINISHED")
    with (
        closing(sqlite3.connect(prefect.home / "prefect.db")) as shared,
        closing(sqlite3.connect(ran.folder / ".longtail/prefect/prefect.db")) as own,
    ):
        shared.backup(own)
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(IN_TESTS) and k not in QUIET
    }
    environment |= {"PYTHONPATH": str(ran.root), "NO_PROXY": "127.0.0.1,localhost"}
    environment |= {"HTTP_PROXY": elsewhere.address, "HTTPS_PROXY": elsewhere.address}
    child = started(
        [sys.executable, "-m", "flows.cli", "explore", "--all"], ran.folder, environment
    )
    found = {}
    while "Ctrl-C" not in (line := child.stdout.readline()):
        assert line, child.communicate()[1]
        name, address = line.split(maxsplit=1)
        found[name.rstrip(":")] = address.strip()
    yield found
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE)


class Visit:
    """A browser that opens addresses and what they link to, and keeps what the pages `tried` to ask
    of others.
    """

    def __init__(self, browser, proxy: str) -> None:
        self.context = browser.new_context(proxy={"server": proxy, "bypass": "127.0.0.1"})
        self.pending: set[object] = set()
        self.tried: set[tuple[str, str]] = set()
        self.context.on("request", self._begun)
        self.context.on("requestfinished", self._ended)
        self.context.on("requestfailed", self._ended)
        self.page = self.context.new_page()

    def _begun(self, request) -> None:
        if not request.url.endswith(".worker.js"):  # whose end the browser does not tell of
            self.pending.add(request)
        if urlsplit(request.url).hostname not in ("127.0.0.1", None):
            self.tried.add((request.resource_type, request.url))

    def _ended(self, request) -> None:
        self.pending.discard(request)

    def open(self, *addresses: str, within: str) -> list[str]:
        """Open each address below `within`, and those that its page links to, one of each kind;
        returns their kinds.
        """
        waiting, kinds = [*addresses], []
        while waiting:
            address = waiting.pop(0)
            kind = IDS.sub("*", address.removeprefix(within))
            if kind in kinds or not address.startswith(within):
                continue
            kinds.append(kind)
            self.page.goto(address)
            self._settle(address)
            waiting += self.page.evaluate(
                "[...document.querySelectorAll('a[href]')].map((one) => one.href)"
            )
        return kinds

    def _settle(self, address: str) -> None:
        deadline, quiet = time.monotonic() + PATIENCE, 0
        while quiet < 3:
            assert time.monotonic() < deadline, (address, [request.url for request in self.pending])
            self.page.wait_for_timeout(100)
            quiet = 0 if self.pending else quiet + 1


@pytest.fixture
def visit(browser, elsewhere) -> Iterator[Visit]:
    made = Visit(browser, elsewhere.address)
    yield made
    made.context.close()


def test_pages_show_a_run_and_ask_no_other_machine(places, visit, elsewhere, prefect):
    page = visit.page
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(places["MLflow"])
    page.get_by_text("3 adaptive retrieval").wait_for()
    page.get_by_text("0.625").wait_for()
    page.get_by_text("sample with a report").click()
    page.get_by_text("Artifacts", exact=True).click()
    page.get_by_text("report", exact=True).click()
    page.get_by_text("index.html").click()
    page.frame_locator("iframe").get_by_text("What came out").wait_for()

    ((flow_run,),) = prefect.ask(f"SELECT flow_run_id FROM artifact WHERE flow_run_id = {LAST}")
    page.goto(f"{places['Prefect']}/flow-run/{flow_run}")
    page.get_by_text("profile: sample").wait_for()
    page.get_by_text("Artifacts", exact=True).click()
    page.locator("a[href*='/artifacts/artifact/']").click()
    page.get_by_text("4 of 4 stages ran").wait_for()

    origin = {name: "/".join(address.split("/")[:3]) for name, address in places.items()}
    visit.open(origin["explorer"], within=origin["explorer"])
    prefect = visit.open(f"{origin['Prefect']}/", places["Prefect"], within=origin["Prefect"])
    assert {
        "/runs",
        "/runs/flow-run/*",
        "/deployments",
        "/blocks/catalog",
        "/events",
        "/settings",
    } <= {*prefect}
    assert {kind for kind, _ in visit.tried} <= {"image"}, (
        "no page but those of blocks, whose logos are elsewhere"
    )
    newer = visit.open(f"{origin['Prefect']}/v2/dashboard", within=f"{origin['Prefect']}/v2")
    assert {"/runs", "/settings"} <= {*newer}
    agents = f"{origin['MLflow']}/#/experiments?workflowType=genai"
    assert "/#/experiments/*/traces*" in visit.open(agents, within=origin["MLflow"])
    assert "/#/models" in visit.open(places["MLflow"], within=origin["MLflow"])
    assert elsewhere.asked == []
