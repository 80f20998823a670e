"""The client gets every answer once, politely, whatever the server does; or says what the server did."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from http_faults import Fault, busy, moved
from waiting import PATIENCE
from wikimedia_server import Wikimedia

from pipelines import web
from pipelines.errors import LongtailError
from pipelines.sources.wikimedia import Client, open_client
from pipelines.web import Again

PAGE = b'{"rows": [1, 2, 3]}'


@pytest.fixture
def client(tmp_path: Path, wikimedia: Wikimedia) -> Iterator[Client]:
    wikimedia.pages["/page"] = PAGE
    with open_client("someone@example.org", tmp_path / "kept") as opened:
        yield opened


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client would have waited."""
    seconds: list[float] = []
    monkeypatch.setattr(Client, "pause", lambda _, s: seconds.append(s))
    return seconds


def whole(body: bytes) -> None:
    if not body.endswith(b"}"):
        raise Again("cut JSON")


def test_a_contact_is_needed_before_anything(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match=r"contact is null"), open_client(None, tmp_path / "kept"):
        pass
    assert not (tmp_path / "kept").exists()


def test_the_server_learns_who_asks(client: Client, wikimedia: Wikimedia) -> None:
    assert client.ask(f"{wikimedia.address}/page", {"q": "ä b"}) == PAGE
    assert wikimedia.agents == {"longtail/0.1 (someone@example.org)"}
    assert wikimedia.requests == [("/page", {"q": "ä b"})]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_redirect_is_followed_to_the_host_that_was_asked_or_to_one_that_is_named(
    client: Client, wikimedia: Wikimedia, host: str
) -> None:
    wikimedia.faults = [moved(f"{wikimedia.address.replace('127.0.0.1', host)}/page")]
    if host == "localhost":
        with pytest.raises(
            LongtailError, match=r"/page: the server sends the request on to localhost, .*fetch.redirect"
        ):
            client.ask(f"{wikimedia.address}/page?token=1")
        assert len(wikimedia.requests) == 1
        wikimedia.faults = [moved(f"{wikimedia.address.replace('127.0.0.1', host)}/page")]
        client.session.hosts = frozenset({host})
    assert client.ask(f"{wikimedia.address}/page") == PAGE


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(503, b"try \n later"), r"/page\?a=1: the server answers 503 Service Unavailable: try later; gave up"),
        (busy(), "the server answers 429 Too Many Requests: Too many requests; gave up after 5"),
        (Fault(sent=3), r"/page\?a=1: the answer was cut"),
        (Fault(body=b"{"), "cut JSON; gave up"),
        (moved("/page?a=1"), "redirects"),
    ],
    ids=str,
)
def test_a_fault_that_stays_is_an_error(
    client: Client, wikimedia: Wikimedia, pauses: list[float], fault: Fault, message: str
) -> None:
    wikimedia.faults = [fault] * 50
    with pytest.raises(LongtailError, match=message):
        client.ask(f"{wikimedia.address}/page", {"a": "1"}, check=whole)


def test_a_refusal_is_an_error_at_once(client: Client, wikimedia: Wikimedia) -> None:
    wikimedia.faults = [Fault(403, b"no contact in your User-Agent")]
    with pytest.raises(LongtailError, match=r"answers 403 Forbidden: no contact in your User-Agent$"):
        client.ask(f"{wikimedia.address}/page")
    assert len(wikimedia.requests) == 1


def test_no_server_is_an_error(client: Client) -> None:
    with pytest.raises(LongtailError, match=r"http://127\.0\.0\.1:9/: no connection"):
        client.ask("http://127.0.0.1:9/")


def test_what_is_not_there_is_none_and_kept_only_by_who_knows_that_it_is_not(
    client: Client, wikimedia: Wikimedia
) -> None:
    assert client.ask(f"{wikimedia.address}/none") is None
    assert client.ask(f"{wikimedia.address}/none") is None
    client.keep(f"{wikimedia.address}/none", None, None)
    assert client.ask(f"{wikimedia.address}/none") is None
    assert len(wikimedia.requests) == 2


def test_the_time_a_server_names_is_waited_by_all_that_ask_it(
    client: Client, wikimedia: Wikimedia, pauses: list[float]
) -> None:
    wikimedia.faults = [busy("40")]
    client.ask(f"{wikimedia.address}/page", {"n": "1"})
    client.ask(f"{wikimedia.address}/page", {"n": "2"})
    assert [round(seconds) for seconds in pauses] == [40, 40]


def test_the_time_may_be_a_date(client: Client, wikimedia: Wikimedia, pauses: list[float]) -> None:
    wikimedia.faults = [busy(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))]
    client.ask(f"{wikimedia.address}/page")
    assert 90 < pauses[0] <= 100


def test_without_a_time_the_pauses_double(
    client: Client, wikimedia: Wikimedia, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "BACKOFF", 2.0)
    wikimedia.faults = [Fault(503), Fault(429), Fault(503, headers={"Retry-After": "soon"})]
    client.ask(f"{wikimedia.address}/page")
    assert pauses == [2, 4, 8]


def test_a_day_is_too_long_to_wait(client: Client, wikimedia: Wikimedia) -> None:
    wikimedia.faults = [busy("86400")]
    with pytest.raises(LongtailError, match=r"429 .*asks to wait 86400 s; run again then"):
        client.ask(f"{wikimedia.address}/page")


def test_a_check_may_end_it(client: Client, wikimedia: Wikimedia) -> None:
    wikimedia.faults = [Fault(500, b"java.util.concurrent.TimeoutException")]

    def check(body: bytes) -> None:
        if b"Timeout" in body:
            raise LongtailError("too slow")

    with pytest.raises(LongtailError, match="too slow"):
        client.ask(f"{wikimedia.address}/page", check=check)
    assert client.ask(f"{wikimedia.address}/page", check=check) == PAGE  # the first body was not kept


def test_many_are_asked_three_at_once_and_come_in_order(client: Client, wikimedia: Wikimedia) -> None:
    wikimedia.pages["/n"] = lambda params: params["n"].encode()
    wikimedia.together, wikimedia.hold = 3, 0.005
    answers = client.map(lambda n: client.ask(f"{wikimedia.address}/n", {"n": str(n)}), range(70), "test")
    assert list(answers) == [str(n).encode() for n in range(70)]
    assert wikimedia.most == 3


def test_the_first_error_ends_the_rest(client: Client, wikimedia: Wikimedia) -> None:
    wikimedia.faults = [None, Fault(400, b"bad")]
    with pytest.raises(LongtailError, match="answers 400"):
        list(client.map(lambda n: client.ask(f"{wikimedia.address}/page", {"n": str(n)}), range(1000), "test"))
    assert len(wikimedia.requests) < 100


def test_an_error_ends_the_waiting_of_others_who_then_ask_nothing(client: Client, wikimedia: Wikimedia) -> None:
    together = threading.Barrier(3, timeout=PATIENCE)  # else one may wait before it asked
    wikimedia.pages["/page"] = lambda _: b"%d" % together.wait()
    wikimedia.faults = [busy("600"), busy("600"), Fault(400, b"bad")]
    with pytest.raises(LongtailError, match="answers 400"):
        list(client.map(lambda n: client.ask(f"{wikimedia.address}/page", {"n": str(n)}), range(3), "test"))
    assert len(wikimedia.requests) == 3


def test_old_answers_are_asked_for_again(tmp_path: Path, wikimedia: Wikimedia) -> None:
    wikimedia.pages["/page"] = PAGE
    for days in (7.0, math.inf, -1.0):
        with open_client("someone@example.org", tmp_path / "kept", days) as client:
            client.ask(f"{wikimedia.address}/page")
    assert len(wikimedia.requests) == 2


def test_a_damaged_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "answers.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(LongtailError, match=r"answers\.sqlite: damaged"), open_client("someone", tmp_path):
        pass


SCRIPT = """
import sys
from pathlib import Path
from pipelines.sources.wikimedia import open_client
with open_client("someone@example.org", Path(sys.argv[1])) as client:
    answers = client.map(lambda n: client.ask(sys.argv[2] + "/n", {"n": str(n)}), range(60), "test")
    sys.stdout.write(" ".join(body.decode() for body in answers))
"""


def test_a_killed_run_asks_for_nothing_it_has(tmp_path: Path, wikimedia: Wikimedia, root: Path) -> None:
    wikimedia.pages["/n"] = lambda params: params["n"].encode()
    wikimedia.stalls_after = 19
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), wikimedia.address]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL) as process:
        while len(wikimedia.requests) < 20:
            assert process.poll() is None
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    before, wikimedia.stalls_after = len(wikimedia.requests), None
    again = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert again.stdout.split() == [str(n) for n in range(60)]
    numbers = [params["n"] for _, params in wikimedia.requests]
    assert before < 60
    assert len(numbers) <= 60 + 3  # those under way when it was killed
    assert set(numbers) == {str(n) for n in range(60)}


def test_what_is_kept_outlives_a_power_cut(tmp_path):
    """benchmarks/power_loss.py cuts the power; here only the setting that it depends on."""
    kept = web.Kept(tmp_path, 7.0)
    assert kept._db.execute("PRAGMA synchronous").fetchone() == (2,), "SQLite's FULL: a commit is on disk"
    kept.close()
