"""Requests to a language model's server: the right answer after every fault, in order, and each
paid for once.

tests/test_http_faults.py holds the client against every fault of a server.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from completions_server import LATE, settings
from http_faults import Fault, busy, moved
from waiting import until

from pipelines.errors import LongtailError
from pipelines.lm import ledger
from pipelines.lm.http_model import HttpModel
from pipelines.lm.language_model import Prompt
from pipelines.storage.atomic import write_json
from pipelines.work import http, workers

SHORT = [Prompt(text) for text in tiny_models.words(30, 5, at_most=12)]
CONTINUATIONS = [f" {text}" for text in tiny_models.words(30, 6, at_most=10)]
CUT = b'{"choices": [{"index": 0, "text": '


def test_many_requests_go_at_once_and_come_in_order(opened, local, server):
    lm = opened(concurrency=5)
    server.together = 5
    prompts = [SHORT[i % 20] for i in range(30)]
    generations = lm.generate(prompts, 2)
    assert [made.text for made in generations] == [made.text for made in local.generate(prompts, 2)]
    assert server.most == 5
    assert max(server.paid.values()) == 1, "the same prompt twice is asked once"


@pytest.mark.parametrize(
    ("fault", "paid"), [(busy(), False), (Fault(sent=40), True), (Fault(body=CUT), True)], ids=str
)
def test_after_a_fault_the_right_answer_comes(opened, local, server, cost, fault, paid):
    lm = opened(prompt_price=1.0, completion_price=2.0)
    before = cost()
    server.faults = [fault]
    (theirs,) = lm.score(SHORT[:1], CONTINUATIONS[:1]).log_probs
    (mine,) = local.score(SHORT[:1], CONTINUATIONS[:1]).log_probs
    np.testing.assert_allclose(theirs, mine, atol=1e-4)
    once = (len(server.requests[-1]["prompt"]) + 2) / 1000  # one token more is generated
    # a lost answer counts at its most
    assert cost() - before == pytest.approx(once * (2 if paid else 1))
    assert lm.usage["lm_cost"] == pytest.approx(cost())


def test_a_missing_answer_is_asked_for_again(opened, server, monkeypatch):
    """A time that the server names is waited."""
    lm, pauses = opened(), []
    monkeypatch.setattr(lm._client, "_timeout", (30, 1.0))
    monkeypatch.setattr(http.Client, "pause", lambda _, seconds: pauses.append(round(seconds)))
    server.faults = [Fault(sent=LATE), busy("40")]
    assert len(lm.generate(SHORT[:1], 1)) == 1
    assert server.requests[-1] == server.requests[-2] == server.requests[-3]
    assert 40 in pauses


def test_no_prompt_follows_a_redirect_to_another_host(opened, server):
    server.faults = [moved("http://localhost:9/v1/completions")] * 3
    with pytest.raises(
        LongtailError, match=r"/v1/completions: .*sends the request on to localhost, expected an"
    ):
        opened()


def choice(index=0, log_prob="-1") -> str:
    shown = f'{{"tokens": ["a"], "token_logprobs": [{log_prob}], "top_logprobs": [{{"a": {log_prob}}}]}}'
    return f'{{"index": {index}, "text": "a", "logprobs": {shown}}}'


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([choice(0), choice(1)], "2 choices for a prompt, expected one"),
        ([choice(0, "0.7")], r"a log-probability of 0\.7, which is above 0"),
    ],
)
def test_a_wrong_answer_is_named_asked_for_once_and_not_kept(opened, server, choices, message):
    lm = opened(concurrency=1)
    before = len(server.requests)
    server.faults = [Fault(body=f'{{"choices": [{", ".join(choices)}]}}'.encode())]
    with pytest.raises(LongtailError, match=message):
        lm.generate(SHORT[:1], 2)
    assert len(server.requests) == before + 1
    made = lm.generate(SHORT[:1], 2)
    assert made == opened().generate(SHORT[:1], 2), "nothing of the wrong answer is kept"


def in_shards(lm: HttpModel, texts: list[str], size: int) -> list[str]:
    """The answers to so many texts in a shard, as the stages ask for them."""

    def ask(lm: HttpModel, prompts: list[Prompt]) -> list[str]:
        return [made.text for made in lm.generate(prompts, 3)]

    tasks = [texts[start : start + size] for start in range(0, len(texts), size)]
    steps = workers.Steps(
        lambda texts: list(map(Prompt, texts)),
        ask,
        lambda _, made, path: write_json(path, made),
        len,
    )
    files = workers.map_texts(
        lm, "stage", f"shards of {size}", tasks, steps, sizes=list(map(len, tasks))
    )
    return [text for file in files for text in json.loads(file.read_text())]


SCRIPT = """
import os, sys
from pathlib import Path
from test_http_client import in_shards
from pipelines.params import params
from pipelines.lm import ledger
from pipelines.lm.http_model import HttpModel
os.chdir(sys.argv[2])
in_shards(HttpModel(Path("served"), params.LM.model_validate_json(sys.argv[1]), None, Path("cache")), sys.argv[3:], 4)
"""


def test_killed_and_restarted_no_request_is_paid_twice(server, local, tmp_path, root, monkeypatch):
    served, texts = settings(server.url, concurrency=3), [p.context for p in SHORT]
    command = [sys.executable, "-c", SCRIPT, served.model_dump_json(), str(tmp_path), *texts]
    paths = os.pathsep.join(map(str, (root, root / "tests", root / "tests/lm")))
    started = {
        "env": os.environ | {"PYTHONPATH": paths},
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    probes = 1
    server.stalls_after = probes + 14  # then so many prompts, of more than three shards
    with subprocess.Popen(command, **started) as process:
        # once all three wait, the answers before are kept
        until(lambda: len(server.requests) == probes + 14 + 3 or process.poll() is not None)
        os.kill(process.pid, signal.SIGKILL)
    server.stalls_after = None
    assert len(server.paid) == probes + 14

    monkeypatch.chdir(tmp_path)
    here = in_shards(HttpModel(Path("served"), served, None, Path("cache")), texts, 4)
    assert here == [made.text for made in local.generate(SHORT, 3)]
    assert len(server.paid) == probes + len(set(texts))
    assert set(server.paid.values()) == {1}


def test_shards_ask_together_and_answers_are_the_same(opened, server, local, workplace):
    lm, texts = opened(concurrency=6), [prompt.context for prompt in SHORT[:18]]
    server.together = 6
    assert in_shards(lm, texts, 3) == [
        made.text for made in local.generate(list(map(Prompt, texts)), 3)
    ]
    assert server.most == 6, "requests of two shards, and no more than the params allow"
    assert max(server.paid.values()) == 1
    asked = len(server.requests)
    assert in_shards(lm, texts, 5) == in_shards(lm, texts, len(texts)) == in_shards(lm, texts, 3)
    assert len(server.requests) == asked


def test_an_error_in_a_shard_ends_the_others(opened, server, workplace, monkeypatch):
    lm, texts = opened(concurrency=2), [prompt.context for prompt in SHORT]
    stop = lm._client.stop

    def stop_and_answer(cause: BaseException) -> None:
        stop(cause)
        server.go_on.set()

    monkeypatch.setattr(lm._client, "stop", stop_and_answer)
    asked, server.faults = len(server.requests), [None, Fault(402, b"enough")]
    server.stalls_after = asked + 2  # the next request waits until the client has its error
    with pytest.raises(LongtailError, match=r"402 .*enough"):
        in_shards(lm, texts, 3)
    assert len(server.requests) <= asked + 3, "what had not begun never began"
    assert in_shards(lm, texts, 3) == [made.text for made in lm.generate(SHORT, 3)]
    assert sum(server.paid.values()) <= len(server.paid) + 1, (
        "the answer that was on its way beside the error"
    )


def test_the_key_goes_to_the_server_and_nowhere_else(opened, server, tmp_path):
    lm = opened(key="s3cret-key")
    assert server.keys == {"Bearer s3cret-key"}
    server.faults = [Fault(401, b"who is s3cret-key?")]
    with pytest.raises(
        LongtailError, match=r"401 .*who is \(secret\)\?; LONGTAIL_API_KEY is not its key"
    ) as refusal:
        lm.generate(SHORT, 2)
    assert "s3cret" not in str(refusal.value)
    server.faults = [Fault(200, b'{"error": "who is s3cret-key?"}')]
    with pytest.raises(LongtailError, match=r"expected JSON with choices: .*who is \(secret\)\?"):
        lm.generate(SHORT, 2)
    lm.generate(SHORT, 2)
    assert not any(b"s3cret" in file.read_bytes() for file in (tmp_path / "cache").iterdir())
    opened(key="another").generate(SHORT, 2)
    assert server.keys == {"Bearer s3cret-key"}, "the key is no part of what an answer is kept by"


def test_it_is_kept_whose_an_answer_is(opened, server, tmp_path):
    opened().generate(SHORT[:2], 2)
    with sqlite3.connect(tmp_path / "cache/answers.sqlite") as db:
        rows = db.execute(
            "SELECT server, model FROM answers LEFT JOIN asked USING (key)"
        ).fetchall()
    assert {*rows} == {(server.url, "served")}


def test_a_scores_numbers_are_kept_exactly(opened, server, tmp_path):
    lm, long = opened(), Prompt(" ".join(p.context for p in SHORT[:8]))
    scored = lm.score([long, long], [" a b", " a b c"])
    asked = len(server.requests)
    again = opened().score([long, long], [" a b", " a b c"])
    assert len(server.requests) == asked
    for first, second in zip(scored.log_probs, again.log_probs, strict=True):
        assert (first.dtype, *first) == (second.dtype, *second)
    with sqlite3.connect(tmp_path / "cache/answers.sqlite") as db:
        (mode,) = db.execute("PRAGMA journal_mode").fetchone()
        bodies = [
            zlib.decompress(body)
            for (body,) in db.execute("SELECT body FROM answers WHERE key LIKE '%:%'")
        ]
    assert mode == "delete", "WAL, which stays with a file, does not work on network file systems"
    assert len(bodies) == 2
    assert max(map(len, bodies)) < 80


# The ledger: the cost is counted and capped, and no minute sees more than the limits


def test_the_cap_refuses_before_the_request_that_would_pass_it(opened, server, cost):
    priced = {"prompt_price": 1.0, "completion_price": 2.0, "concurrency": 1}
    lm = opened(**priced, max_cost=0.2)
    with pytest.raises(
        LongtailError,
        match=r"^params.yaml: lm\.tiny\.http\.max_cost is 0\.2: 0\.1\d* are spent, and",
    ):
        lm.generate(SHORT, 3)
    assert 0.1 < cost() <= 0.2
    assert 2 < len(server.requests) < 30
    # the ledger is on disk, not in the process
    with pytest.raises(LongtailError, match="max_cost"):
        opened(**priced, max_cost=0.2).generate(SHORT, 3)
    opened(**priced, max_cost=20.0).generate(SHORT, 3)
    assert set(server.paid.values()) == {1}
    made = sum(json.loads(request)["max_tokens"] for request in server.paid)
    read = sum(len(json.loads(request)["prompt"]) for request in server.paid)
    assert cost() <= (read + 2 * made) / 1000 + 1e-9


def test_a_server_that_hides_its_usage_costs_the_most(opened, server, cost):
    """So does one whose usage is negative."""
    lm = opened(None, prompt_price=1000.0, completion_price=1000.0)
    before, server.usage = cost(), False
    lm.generate([Prompt("é1"), Prompt("2")], 3)
    most = (3 + 1) + (1 + 1) + 2 * 3
    assert cost() - before == most, "bytes of a text and one, and the tokens asked for"
    server.faults = [
        Fault(change=lambda body: body.replace(b"{", b'{"usage": {"prompt_tokens": -5000}, ', 1))
    ]
    lm.generate([Prompt("é3"), Prompt("4")], 3)
    assert cost() - before == 2 * most


@pytest.mark.parametrize("limit", [{"requests_per_minute": 3}, {"tokens_per_minute": 30}])
def test_no_minute_sees_more_than_the_limit(server, opened, monkeypatch, limit):
    clock, entered, plain = [1000.0], [], ledger.Ledger.enter

    def enter(self, most):
        number, wait = plain(self, most)
        entered.extend([(clock[0], 1, sum(most))] if number else [])
        return number, wait

    monkeypatch.setattr(ledger.Ledger, "enter", enter)
    monkeypatch.setattr(ledger.time, "time", lambda: clock[0])
    monkeypatch.setattr(
        http.Client, "pause", lambda _, seconds: clock.append(clock.pop() + seconds)
    )
    opened(**limit, concurrency=1).generate(SHORT, 2)
    for start, *_ in entered:
        minute = [entry[1:] for entry in entered if start <= entry[0] < start + ledger.MINUTE]
        requests, tokens = np.sum(minute, axis=0)
        assert requests <= limit.get("requests_per_minute", 1000)
        assert tokens <= limit.get("tokens_per_minute", 1000) or requests == 1
    assert len(entered) == 3 + len(set(SHORT))
    assert clock[0] > 1000 + 3 * ledger.MINUTE


def test_stages_share_the_limits(opened, monkeypatch):
    """The limits are of the tokens used, not of the most."""
    monkeypatch.setattr(ledger.time, "time", lambda: 1000.0)
    first, second = (opened(requests_per_minute=6)._client._ledger for _ in range(2))
    # The first one's three probes are entered already.
    numbers = [entries.enter(ledger.Tokens(1, 0))[0] for entries in (first, second) * 2]
    assert [number is None for number in numbers] == [False] * 3 + [True]
    entries = opened(tokens_per_minute=10_000)._client._ledger
    (used,) = entries._db.execute("SELECT total(tokens) FROM recent").fetchone()
    most = ledger.Tokens(int(10_000 - used) - 20, 0)
    number, _ = entries.enter(most)
    assert entries.enter(most)[0] is None
    entries.correct(number, most, ledger.Tokens(9, 1))
    assert entries.enter(most)[0] is not None
