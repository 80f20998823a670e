"""Stage answer: the same table whatever the sharding, order or interruption, and by the params of each model."""

import contextlib
import itertools
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from echoing import CHOSEN, REPLUG, EchoingLM, ask, source

from pipelines import progress
from pipelines.answering import answer, passages
from pipelines.lm import open_lm
from pipelines.methods import METHODS

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.mark.parametrize("method", ["closed_book", "dense", "genread", "replug"])
@pytest.mark.parametrize("size", [1, 7])
def test_neither_shards_nor_order_change_a_prompt_or_an_answer(questions, size, method, monkeypatch):
    whole = ask(questions, method, key="whole")
    monkeypatch.setattr(answer, "SHARD", size)
    shuffled = questions.take(np.random.default_rng(0).permutation(questions.num_rows))
    assert ask(shuffled, method, key=f"shards of {size}", at_once=size + 1).equals(whole)


@pytest.mark.parametrize(
    ("method", "top_k", "n_shots", "served", "expected"),
    [
        ("closed_book", 10, 15, False, 64),
        ("dense", 10, 0, False, 64),
        ("dense", 10, 5, False, 21),
        ("dense", 10, 5, True, 64),
        ("replug", 10, 0, False, 6),
        ("replug_lsr", 10, 5, False, 2),
        ("replug", 100, 15, False, 1),
    ],
)
def test_a_slow_method_has_fewer_questions_in_a_shard(method, top_k, n_shots, served, expected):
    chosen, replug = CHOSEN.model_copy(update={"n_shots": n_shots}), REPLUG.model_copy(update={"top_k": top_k})
    finds = source(method, EchoingLM())
    setup = answer.Setup("popqa", method, EchoingLM(), finds, chosen, replug, 0, "k", object() if served else None)
    assert setup.shard == expected


def test_progress_is_in_questions_and_comes_before_all_are_answered(questions, monkeypatch):
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


@pytest.mark.parametrize("method", ["dense", "genread"])
def test_a_killed_run_goes_on_where_it_stopped(questions, method, monkeypatch):
    monkeypatch.setattr(answer, "SHARD", 10)
    all_of_it, cut, again = EchoingLM(), EchoingLM(fail_after=20), EchoingLM()
    whole = ask(questions, method, lm=all_of_it, key="whole", at_once=5)
    with pytest.raises(KeyboardInterrupt):
        ask(questions, method, lm=cut, key="cut", at_once=5)
    assert ask(questions, method, lm=again, key="cut", at_once=5).equals(whole)
    assert len(again.asked) == len(all_of_it.asked) - 20


def test_seconds_are_those_of_all_shards_in_whichever_run(questions, monkeypatch):
    """The clock goes on by a second a look: a shard takes one, of answers as of passages."""
    monkeypatch.setattr(answer, "SHARD", 10)
    monkeypatch.setattr(answer, "time", clock := SimpleNamespace(monotonic=itertools.count().__next__))
    monkeypatch.setattr(passages, "time", clock)

    def setup(lm, key):
        return answer.Setup("popqa", "dense", lm, source("dense", lm, 7), CHOSEN, REPLUG, 0, key)

    table, taken = answer.answer(questions, setup(EchoingLM(), "whole"))
    whole = taken.seconds
    assert [batch.questions for batch in taken.answers] == [10, 10, 10]
    assert sum(batch.questions for batch in taken.searches) > 30, "demonstrations, too"
    assert whole == sum(len([*folder.iterdir()]) for folder in Path(".longtail/shards").iterdir()) > 6
    with pytest.raises(KeyboardInterrupt):
        answer.answer(questions, setup(EchoingLM(fail_after=20), "cut"))
    for _ in range(2):  # the second finds all shards finished
        resumed, taken_resumed = answer.answer(questions, setup(EchoingLM(), "cut"))
        assert taken_resumed.seconds == whole
        assert taken_resumed == taken
        assert resumed.schema.equals(table.schema, check_metadata=True), "a table holds no times"
        assert resumed.schema.metadata is None


def test_nothing_is_left_of_answers_that_are_forgotten(questions):
    ask(questions, "genread", key="k")
    assert sum(1 for _ in Path(".longtail/shards").iterdir()) == 2
    answer.forget("popqa", "echo", "genread", "k")
    assert not list(Path(".longtail/shards").iterdir())


def test_the_stage_names_what_is_allowed(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["answer", "popqa", "tiny", "sparse"])
    with pytest.raises(SystemExit):
        answer.main()
    said = capsys.readouterr().err
    assert all(method in said for method in METHODS)
    assert not Path("data").exists()


def test_a_model_that_can_not_mix_is_refused_an_ensemble_before_any_work(questions, capsys, monkeypatch, root):
    Path("data/questions/popqa").mkdir(parents=True)
    pq.write_table(questions, "data/questions/popqa/popqa.parquet")
    shutil.copy(root / "params.yaml", "params.yaml")
    lm = EchoingLM()
    lm.mixes = False
    monkeypatch.setattr(open_lm, "lm_at_work", lambda *_: contextlib.nullcontext(lm))
    monkeypatch.setattr("sys.argv", ["answer", "popqa", "tiny", "replug"])
    with pytest.raises(SystemExit):
        answer.main()
    said = capsys.readouterr().err
    assert said.startswith("error: answer@popqa-tiny-replug: echo shows only its likeliest next tokens")
    assert said.endswith("set replug.vote: true in params.yaml\n")
    assert not lm.asked


@pytest.mark.parametrize(("of_lm", "shown"), [(None, 2), (0, 0), (4, 4)])
def test_the_stage_shows_as_many_demonstrations_as_the_language_model_asks_for(
    questions, monkeypatch, root, of_lm, shown
):
    Path("data/questions/popqa").mkdir(parents=True)
    pq.write_table(questions, "data/questions/popqa/popqa.parquet")
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["answer"]["n_shots"], values["lm"]["tiny"]["n_shots"] = 2, of_lm
    Path("params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    lm = EchoingLM()
    lm.usage = {}
    monkeypatch.setattr(open_lm, "lm_at_work", lambda *_: contextlib.nullcontext(lm))
    monkeypatch.setattr("sys.argv", ["answer", "popqa", "tiny", "closed_book"])
    answer.main()
    assert {prompt.context.count("A: gold") for prompt in lm.asked} == {shown}


def test_two_sections_of_the_same_weights_answer_in_one_run_with_their_own_demonstrations(questions, monkeypatch, root):
    Path("data/questions/popqa").mkdir(parents=True)
    pq.write_table(questions, "data/questions/popqa/popqa.parquet")
    values = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    values["answer"]["n_shots"], values["lms"] = 2, ["tiny", "zero"]
    values["lm"]["zero"] = values["lm"]["tiny"] | {"n_shots": 0}
    Path("params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    hashes = {}
    for name, shown in (("tiny", 2), ("zero", 0), ("tiny", 2)):
        lm = EchoingLM()
        lm.name, lm.usage = name, {}
        monkeypatch.setattr(open_lm, "lm_at_work", lambda *_, lm=lm: contextlib.nullcontext(lm))
        monkeypatch.setattr("sys.argv", ["answer", "popqa", name, "closed_book"])
        answer.main()
        assert {prompt.context.count("A: gold") for prompt in lm.asked} == {shown}
        table = pq.read_table(f"data/predictions/popqa/{name}/closed_book.parquet")
        assert hashes.setdefault(name, table["prompt_hash"].to_pylist()) == table["prompt_hash"].to_pylist()
    assert not set(hashes["tiny"]) & set(hashes["zero"])
