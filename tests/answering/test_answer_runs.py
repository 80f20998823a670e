"""Stage answer: the same table whatever the sharding, order or interruption; what a question
takes, in seconds.
"""

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from completions_server import settings
from echoing import CHOSEN, REPLUG, EchoingLM, ask, source

from pipelines import progress
from pipelines.answering import answer
from pipelines.work import workers

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.mark.parametrize(
    ("method", "size"),
    [("closed_book", 7), ("dense", 1), ("dense", 7), ("genread", 7), ("replug", 7)],
)
def test_neither_shards_nor_order_change_a_prompt_or_an_answer(
    questions, method, size, monkeypatch
):
    whole = ask(questions, method, key="whole")
    monkeypatch.setitem(workers.PROMPTS_PER_SHARD, "cpu", size)
    shuffled = questions.take(np.random.default_rng(0).permutation(questions.num_rows))
    assert ask(shuffled, method, key=f"shards of {size}", at_once=size + 1).equals(whole)


@pytest.mark.parametrize(
    ("method", "top_k", "n_shots", "server", "expected"),
    [
        ("closed_book", 10, 15, None, 64),
        ("dense", 10, 5, None, 21),
        ("dense", 10, 5, {"concurrency": 8}, 64),
        ("dense", 10, 5, {"concurrency": 128}, 4 * 128),
        ("replug", 10, 5, {"concurrency": 128}, 52),
        ("replug_lsr", 10, 5, None, 2),
        ("replug", 100, 15, None, 1),
    ],
)
def test_a_slow_method_has_fewer_questions_in_a_shard(method, top_k, n_shots, server, expected):
    """A server has at least four rounds of prompts."""
    setup = _setup(method, top_k, n_shots)
    if server:
        served = settings("http://localhost", **server).http
        setup = replace(setup, server=served)
    assert setup.questions_per_shard == expected


@pytest.mark.parametrize(
    ("method", "expected"), [("closed_book", 1024), ("dense", 1024), ("replug", 102)]
)
def test_a_gpu_gets_many_prompts_at_once(method, expected):
    assert replace(_setup(method, 10, 15), device="cuda").questions_per_shard == expected


def _setup(method, top_k, n_shots):
    chosen = CHOSEN.model_copy(update={"n_shots": n_shots})
    replug = REPLUG.model_copy(update={"top_k": top_k})
    finds = source(method, EchoingLM())
    return answer.Setup("popqa", method, EchoingLM(), finds, chosen, replug, 0, "k")


def test_progress_is_in_questions(questions, monkeypatch):
    shown = []

    class Bar:
        n = 0

        def update(self, more):
            shown.append(more)
            self.n += more

    def tqdm(total, initial, desc, unit, mininterval):
        shown.append((total, initial, unit))
        return contextlib.nullcontext(Bar())

    monkeypatch.setattr(progress, "tqdm", tqdm)
    ask(questions, "replug", chosen=CHOSEN.model_copy(update={"n_shots": 15}), key="progress")
    begun = shown.index((30, 0, "question"))
    assert shown[begun + 1 :] == [4] * 7 + [2]
    ask(questions, "replug", chosen=CHOSEN.model_copy(update={"n_shots": 15}), key="progress")
    assert shown[-1] == (30, 30, "question"), "what a first run finished counts"


def test_a_killed_run_goes_on_where_it_stopped(questions, monkeypatch):
    monkeypatch.setitem(workers.PROMPTS_PER_SHARD, "cpu", 10)

    def answered(lm, key):
        setup = answer.Setup("popqa", "dense", lm, source("dense", lm, 7), CHOSEN, REPLUG, 0, key)
        return answer.answer(questions, setup)

    table = answered(EchoingLM(), "whole")
    with pytest.raises(KeyboardInterrupt):
        answered(EchoingLM(fail_after=20), "cut")
    for asked in (10, 0):  # the second finds all shards finished
        resumed = answered(lm := EchoingLM(), "cut")
        assert len(lm.asked) == asked
        assert resumed.equals(table, check_metadata=True)
    for key in ("whole", "cut"):
        answer.forget_answers("popqa", "echo", "dense", key)
    assert not list(Path(".longtail/work").iterdir())


def test_a_model_that_can_not_mix_is_refused_first(stage, capsys):
    assert not stage("tiny", ["closed_book", "replug"], {"tiny": None}, mixes=False).asked
    said = (
        r"answer@popqa-tiny: tiny can't answer by replug\.mixture: .* set replug\.vote: true in .*"
    )
    assert re.fullmatch(rf"error: {said}\n", capsys.readouterr().err)
    assert not list(Path("data/predictions").rglob("*.parquet"))


def test_only_a_way_that_changed_is_answered_anew(stage, questions):
    folder, ways = Path("data/predictions/popqa/tiny"), ["closed_book", "dense", "replug"]

    def answered(**changes) -> int:
        """How many questions the language model was asked anew."""
        return len(stage("tiny", ways, {"tiny": None}, **changes).asked)

    n = answered() // 4  # REPLUG asks with two documents
    assert n == sum(split == "test" for split in questions["split"].to_pylist())
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {*first} == {"closed_book.parquet", "dense_dense.parquet", "replug_dense.parquet"}
    assert answered() == 0
    assert (
        answered(replug={"top_k": 2, "temperature": 2.0, "mixture": "token_mixture", "vote": False})
        == 2 * n
    )
    (folder / "dense_dense.parquet").write_bytes(first["dense_dense.parquet"][:-9])
    ways.remove("replug")
    assert answered() == 0, "finished answers are kept, and the output is written from them"
    del first["replug_dense.parquet"]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == first
    Path("data/code.json").write_text(json.dumps({"stage": {"answer": "other code"}}))
    assert answered() == answered(seed=1) == 2 * n
    assert answered(batch_tokens=700) == 2 * n, "other batches give other last digits"


def test_sections_of_the_same_weights_answer_in_one_run(stage):
    """As many as the language model's section asks for, or else as all are shown."""
    hashes = {}
    of_lm = {"tiny": None, "zero": 0, "four": 4}
    for name, shown in (("tiny", 2), ("zero", 0), ("four", 4)):
        asked = stage(name, ["closed_book"], of_lm).asked
        assert {prompt.context.count("A: gold") for prompt in asked} == {shown}
        table = pq.read_table(f"data/predictions/popqa/{name}/closed_book.parquet")
        hashes[name] = table["prompt_hash"].to_pylist()
    assert not set(hashes["tiny"]) & set(hashes["zero"])
