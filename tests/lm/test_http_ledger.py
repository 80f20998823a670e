"""What a language model's server was asked: its cost is counted and capped, and no minute sees more than the limits."""

import json

import numpy as np
import pytest
import tiny_models
from http_faults import Fault

from pipelines import web
from pipelines.errors import LongtailError
from pipelines.lm import http_ledger
from pipelines.lm.language_model import Prompt

SHORT = [Prompt(text) for text in tiny_models.words(30, 5, at_most=12)]
ONE = http_ledger.Tokens(1, 0)


def test_the_cap_refuses_before_the_request_that_would_pass_it(opened, server, cost):
    priced = {"prompt_price": 1.0, "completion_price": 2.0, "batch_size": 1, "concurrency": 1}
    lm = opened(**priced, max_cost=0.2)
    with pytest.raises(LongtailError, match=r"^params.yaml: lm\.tiny\.http\.max_cost is 0\.2: 0\.1\d* are spent, and"):
        lm.generate(SHORT, 3)
    assert 0.1 < cost() <= 0.2
    assert 2 < len(server.requests) < 30
    with pytest.raises(LongtailError, match="max_cost"):  # the ledger is on disk, not in the process
        opened(**priced, max_cost=0.2).generate(SHORT, 3)
    opened(**priced, max_cost=20.0).generate(SHORT, 3)
    assert set(server.paid.values()) == {1}
    made = sum(json.loads(request)["max_tokens"] for request in server.paid)
    read = sum(len(json.loads(request)["prompt"]) for request in server.paid)
    assert cost() <= (read + 2 * made) / 1000 + 1e-9


def test_a_server_that_does_not_say_its_usage_or_a_negative_one_costs_the_most(opened, server, cost):
    lm = opened(None, prompt_price=1000.0, completion_price=1000.0)
    before, server.usage = cost(), False
    lm.generate([Prompt("é1"), Prompt("2")], 3)
    most = (3 + 1) + (1 + 1) + 2 * 3
    assert cost() - before == most, "bytes of a text and one, and the tokens asked for"
    server.faults = [Fault(change=lambda body: body.replace(b"{", b'{"usage": {"prompt_tokens": -5000}, ', 1))]
    lm.generate([Prompt("é3"), Prompt("4")], 3)
    assert cost() - before == 2 * most


@pytest.mark.parametrize("limit", [{"requests_per_minute": 3}, {"tokens_per_minute": 30}])
def test_no_minute_sees_more_than_the_limit(server, opened, monkeypatch, limit):
    clock, entered, plain = [1000.0], [], http_ledger.Ledger.enter

    def enter(self, most, server):
        number, wait = plain(self, most, server)
        entered.extend([(clock[0], 1, sum(most))] if number else [])
        return number, wait

    monkeypatch.setattr(http_ledger.Ledger, "enter", enter)
    monkeypatch.setattr(http_ledger.time, "time", lambda: clock[0])
    monkeypatch.setattr(web.Client, "pause", lambda _, seconds: clock.append(clock.pop() + seconds))
    opened(**limit, batch_size=1, concurrency=1).generate(SHORT, 2)
    for start, *_ in entered:
        minute = [entry[1:] for entry in entered if start <= entry[0] < start + http_ledger.MINUTE]
        requests, tokens = np.sum(minute, axis=0)
        assert requests <= limit.get("requests_per_minute", 1000)
        assert tokens <= limit.get("tokens_per_minute", 1000) or requests == 1
    assert len(entered) == 3 + len(set(SHORT))
    assert clock[0] > 1000 + 3 * http_ledger.MINUTE


def test_stages_share_the_limits_which_are_of_the_tokens_used_not_of_the_most(opened, monkeypatch):
    monkeypatch.setattr(http_ledger.time, "time", lambda: 1000.0)
    first, second = (opened(requests_per_minute=6)._client._ledger for _ in range(2))
    # The first one's three probes are entered already.
    numbers = [entries.enter(ONE)[0] for entries in (first, second) * 2]
    assert [number is None for number in numbers] == [False] * 3 + [True]
    entries = opened(tokens_per_minute=10_000)._client._ledger
    (used,) = entries._db.execute("SELECT total(tokens) FROM recent").fetchone()
    most = http_ledger.Tokens(int(10_000 - used) - 20, 0)
    number, _ = entries.enter(most)
    assert entries.enter(most)[0] is None
    entries.correct(number, most, http_ledger.Tokens(9, 1))
    assert entries.enter(most)[0] is not None
