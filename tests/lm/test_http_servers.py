"""Several servers of one model: all work, each within its limits, and the run goes on without one that fails."""

from collections.abc import Iterator
from contextlib import ExitStack

import completions_server
import pytest
import tiny_models
from completions_server import Completions, settings
from http_faults import Fault

from pipelines import web
from pipelines.errors import LongtailError
from pipelines.lm import http_ledger
from pipelines.lm.http_model import HttpModel
from pipelines.lm.http_servers import Servers
from pipelines.lm.language_model import Prompt

PROMPTS = [Prompt(text) for text in tiny_models.words(24, 5, at_most=12)]


@pytest.fixture(scope="module")
def three(tiny) -> Iterator[list[Completions]]:
    with ExitStack() as stack:
        yield [stack.enter_context(completions_server.running(tiny)) for _ in range(3)]


@pytest.fixture
def servers(three, monkeypatch) -> list[Completions]:
    monkeypatch.setattr(web, "BACKOFF", 0.0)
    for server in three:
        server.reset()
    return three


@pytest.fixture
def opened(servers, tiny, tmp_path):
    """Opens the model of all three; the second and the third are `urls`."""

    def open_model(**change) -> HttpModel:
        first, *others = (server.url for server in servers)
        lm = settings(first, tiny, **{"urls": others, "batch_size": 1, "concurrency": 2} | change)
        return HttpModel(tiny, lm, None, tmp_path / "cache")

    return open_model


@pytest.fixture(scope="module")
def expected(local) -> list[str]:
    return [made.text for made in local.generate(PROMPTS, 2)]


def texts(lm) -> list[str]:
    return [made.text for made in lm.generate(PROMPTS, 2)]


def test_all_servers_work_side_by_side_and_answers_are_kept_whichever_gave_them(opened, servers, expected):
    lm = opened()
    for server in servers:
        server.requests.clear()
        server.together = 2
    assert texts(lm) == expected
    assert [server.most for server in servers] == [2, 2, 2]
    assert all(len(server.requests) >= 4 for server in servers)
    asked = sum(len(server.requests) for server in servers)
    assert texts(opened(urls=[])) == texts(opened(urls=[servers[2].url])) == expected
    assert sum(len(server.requests) for server in servers) == asked


@pytest.mark.parametrize("status", [503, 404])
def test_a_server_that_fails_is_left_out_and_the_last_one_is_an_error(opened, servers, expected, capsys, status):
    lm = opened()
    servers[1].faults = [Fault(status, b"no")] * 1000
    assert texts(lm) == expected
    said = capsys.readouterr().err.replace("\r", "\n").splitlines()  # a bar of progress stands there too
    (warning,) = (line for line in said if "left out" in line)
    assert warning.startswith(f"warning: {servers[1].url} is left out, others go on: {servers[1].url}/completions: ")
    seen = len(servers[1].requests)
    lm.generate([Prompt(f"{prompt.context} again") for prompt in PROMPTS], 2)
    assert len(servers[1].requests) == seen
    for server in servers:
        server.faults = [Fault(503, b"no")] * 1000
    with pytest.raises(LongtailError, match="gave up after"):
        lm.generate([Prompt("another")], 2)


def test_a_server_of_another_model_is_left_out(opened, servers, expected, capsys):
    for server, name in zip(servers, ("tiny", "tiny", "large"), strict=True):
        server.serves = name
    assert texts(opened()) == expected
    assert f"{servers[2].url}: serves large, where another server serves tiny" in capsys.readouterr().err


def test_each_server_has_limits_of_its_own_and_all_share_the_budget(opened, tmp_path, capsys):
    lm = settings("http://a", prompt_price=1000.0, max_cost=2.5, requests_per_minute=1)
    entries = http_ledger.Ledger(tmp_path, "far", "gpt", lm.http)
    one = http_ledger.Tokens(1, 0)
    assert entries.enter(one, "http://a")[0] is not None
    assert entries.enter(one, "http://a")[0] is None
    assert entries.enter(one, "http://b")[0] is not None
    with pytest.raises(LongtailError, match="max_cost"):
        entries.enter(one, "http://c")
    with pytest.raises(LongtailError, match="max_cost is 1"):
        opened(prompt_price=20.0, max_cost=1.0).generate(PROMPTS, 2)
    assert "left out" not in capsys.readouterr().err, "a spent budget is no fault of a server"


def test_the_least_busy_server_is_asked():
    servers = Servers(["a", "b"], 2)
    with ExitStack() as stack:
        taken = [stack.enter_context(servers.least_busy(lambda: None)) for _ in range(3)]
        assert taken == ["a", "b", "a"]
        assert servers.leave_out("a", "gone")
        assert stack.enter_context(servers.least_busy(lambda: None)) == "b"
        with pytest.raises(KeyboardInterrupt), servers.least_busy(interrupt):
            pass
    assert not servers.leave_out("b", "gone")


def interrupt() -> None:
    raise KeyboardInterrupt
