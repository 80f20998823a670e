"""The client gets every answer once, politely, whatever the server does; or says what the
server did.
"""

import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from http_faults import Fault, busy, moved
from waiting import PATIENCE, until
from wikimedia_server import Wikimedia

from pipelines.errors import LongtailError
from pipelines.sources.wikimedia_client import Client, open_client
from pipelines.storage.kept_answers import KeptAnswers
from pipelines.work import http
from pipelines.work.http import Again

PAGE = b'{"rows": [1, 2, 3]}'


@pytest.fixture
def page(wikimedia: Wikimedia) -> str:
    """The address of a page; another one answers with its own `n`."""
    wikimedia.pages |= {"/page": PAGE, "/n": lambda params: params["n"].encode()}
    return f"{wikimedia.address}/page"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client would have waited."""
    seconds: list[float] = []
    monkeypatch.setattr(Client, "pause", lambda _, s: seconds.append(s))
    return seconds


def whole(body: bytes) -> None:
    if not body.endswith(b"}"):
        raise Again("cut JSON")


def test_the_server_learns_who_asks(
    client: Client, wikimedia: Wikimedia, page: str, tmp_path: Path
) -> None:
    assert client.ask(page, {"q": "ä b"}) == PAGE
    assert wikimedia.agents == {"longtail/0.1 (someone@example.org)"}
    assert wikimedia.requests == [("/page", {"q": "ä b"})]
    with (
        pytest.raises(LongtailError, match=r"contact is null"),
        open_client(None, tmp_path / "other"),
    ):
        pass
    assert not (tmp_path / "other").exists()


def test_a_redirect_is_followed_to_a_host_that_is_named(client, wikimedia, page) -> None:
    elsewhere = moved(page.replace("127.0.0.1", "localhost"))
    wikimedia.faults = [moved(page), None, elsewhere]
    assert client.ask(page) == PAGE
    with pytest.raises(
        LongtailError,
        match=r"/page: the server sends the request on to localhost, .*fetch.redirect",
    ):
        client.ask(f"{page}?token=1")
    assert len(wikimedia.requests) == 3
    wikimedia.faults = [elsewhere]
    client.session.hosts = frozenset({"localhost"})
    assert client.ask(f"{page}?token=2") == PAGE


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(503, b"try \n later"), r"/page\?a=1: the server answers 503 Service Unavailable: try later; gave up"),
        (Fault(body=b"{"), "cut JSON; gave up"),
        (busy("86400"), "429 .*asks to wait 86400 s; run again then"),
        (Fault(403, b"no contact in your User-Agent"), r"answers 403 Forbidden: no contact in your User-Agent$"),
    ],
    ids=str,
)  # fmt: skip
def test_a_fault_that_stays_is_an_error(
    client, wikimedia, page, pauses, fault: Fault, message: str
) -> None:
    wikimedia.faults = [fault] * 50
    with pytest.raises(LongtailError, match=message):
        client.ask(page, {"a": "1"}, parse=whole)


def test_a_named_time_is_waited_by_all(client, wikimedia, page, pauses, monkeypatch):
    """Else pauses double."""
    monkeypatch.setattr(http, "BACKOFF", 2.0)
    wikimedia.faults = [
        Fault(429),
        Fault(503, headers={"Retry-After": "soon"}),
        busy("40"),
        busy("100"),
    ]
    client.ask(page, {"n": "1"})
    client.ask(page, {"n": "2"})
    drawn = [pytest.approx(1.5, abs=0.5), pytest.approx(3, abs=1)]  # half of a pause is drawn
    assert pauses == [*drawn, pytest.approx(30, abs=10), *[pytest.approx(80, abs=20)] * 2]
    assert pauses[1] != 2 * pauses[0]


def test_an_error_ends_the_waiting_of_others(client, wikimedia, page) -> None:
    """They then ask nothing."""
    together = threading.Barrier(3, timeout=PATIENCE)  # else one may wait before it asked
    wikimedia.pages["/page"] = lambda _: b"%d" % together.wait()
    wikimedia.faults = [busy("600"), busy("600"), Fault(400, b"bad")]
    with pytest.raises(LongtailError, match="answers 400"):
        list(client.map(lambda n: client.ask(page, {"n": str(n)}), range(3), "test"))
    assert len(wikimedia.requests) == 3


def test_old_answers_are_asked_for_again(tmp_path, wikimedia, page, monkeypatch) -> None:
    """A damaged cache is named."""
    for days in (7.0, math.inf, -1.0):
        monkeypatch.setattr("pipelines.sources.wikimedia_client.KEPT_DAYS", days)
        with open_client("someone@example.org", tmp_path / "kept") as client:
            client.ask(page)
    assert len(wikimedia.requests) == 2
    (tmp_path / "answers.sqlite").write_bytes(b"not a database" * 100)
    with (
        pytest.raises(LongtailError, match=r"answers\.sqlite: damaged"),
        open_client("someone", tmp_path),
    ):
        pass


SCRIPT = """
import sys
from pathlib import Path
from pipelines.sources.wikimedia_client import open_client
with open_client("someone@example.org", Path(sys.argv[1])) as client:
    list(client.map(lambda n: client.ask(sys.argv[2] + "/n", {"n": str(n)}), range(60), "test"))
"""


def test_a_killed_run_asks_for_nothing_it_has(
    tmp_path: Path, wikimedia: Wikimedia, page: str, root: Path
) -> None:
    wikimedia.stalls_after = 19
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), wikimedia.address]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL) as process:
        until(lambda: len(wikimedia.requests) >= 20 or process.poll() is not None)
        os.kill(process.pid, signal.SIGKILL)
    before, wikimedia.stalls_after = len(wikimedia.requests), None
    with open_client("someone@example.org", tmp_path) as client:
        answers = client.map(
            lambda n: client.ask(f"{wikimedia.address}/n", {"n": str(n)}), range(60), "test"
        )
        assert list(answers) == [str(n).encode() for n in range(60)]
    numbers = [params["n"] for _, params in wikimedia.requests]
    assert before < 60
    assert len(numbers) <= 60 + 3  # those under way when it was killed
    assert set(numbers) == {str(n) for n in range(60)}


def test_what_is_kept_outlives_a_power_cut(tmp_path):
    kept = KeptAnswers(tmp_path, 7.0)
    assert kept._db.execute("PRAGMA synchronous").fetchone() == (2,), (
        "SQLite's FULL: a commit is on disk"
    )
    kept.close()
