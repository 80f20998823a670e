"""A pair is scored once, in whatever run; another model, setting or document has scores of its own."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from pipelines import methods
from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import open_lm, supervising_lm
from pipelines.lsr import refresh, train_lsr, training_queries
from pipelines.scoring import logprobs
from pipelines.scoring.queries import Queries
from pipelines.scoring.score_cache import FOLDER, Scores, hashes, key_of_lm

DOCS = training_queries.CORPORA / "pile/docs.parquet"
PAIRS = np.array([[0, logprobs.NONE], [0, 3], [0, 9], [1, 3], [2, 29]])


@pytest.fixture
def project(project):
    """Its params are those for the retriever dense."""
    project.params = methods.with_retriever(project.params, "dense")
    return project


@pytest.fixture
def seen(monkeypatch):
    """The pairs that the language model has really scored."""
    real, scored = LocalModel.score, []

    def counted(self, prompts, continuations):
        scores = real(self, prompts, continuations)
        scored.extend(zip(prompts, continuations, strict=True))
        return scores

    monkeypatch.setattr(LocalModel, "score", counted)
    return scored


def queries(names="abc"):
    texts = np.array([f"Norland {name}" for name in names], object)
    return Queries(
        np.array(list(names), object), texts, texts, np.array([" Velm Mira"] * len(names), object), "{text}\n"
    )


def test_a_sweep_over_the_objective_asks_the_language_model_nothing(project, seen, monkeypatch):
    monkeypatch.setattr(refresh, "SHOWN", 30)  # all documents: what is found can't differ
    project.params.lsr = project.params.lsr.model_copy(update={"top_k": 30, "keep_scores": True})
    metrics = train_lsr.train(project.params)
    assert len(seen) == metrics["scored_pile"] + metrics["scored_wikipedia"] == len(set(seen)) > 0
    seen.clear()
    losses = {metrics["kl_last"]}
    for changes in ({"kl": "p_q"}, {"gamma": 0.5}, {"likelihood": "sum_logprob"}):
        plain = project.params.lsr
        project.params.lsr = plain.model_copy(update=changes)
        losses.add(train_lsr.train(project.params)["kl_last"])
        project.params.lsr = plain
    assert not seen
    assert len(losses) == 4


def test_scores_that_are_not_to_be_kept_go_with_the_training(project, seen):
    train_lsr.train(project.params)
    once = len(seen)
    assert once > 0
    assert not any(FOLDER.glob("*"))
    train_lsr.train(project.params)
    assert len(seen) == 2 * once


def test_killed_while_scoring_no_pair_is_scored_twice(project, seen, monkeypatch):
    counted, calls = LocalModel.score, []

    def killed(self, prompts, continuations):
        calls.append(prompts)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return counted(self, prompts, continuations)

    monkeypatch.setattr(logprobs, "SHARD", 7)
    monkeypatch.setattr(LocalModel, "score", killed)
    with pytest.raises(KeyboardInterrupt):
        train_lsr.train(project.params)
    assert seen
    train_lsr.train(project.params)
    assert len(seen) == len(set(seen))


def test_kept_scores_are_found_by_what_they_are_of(project, seen):
    model = (*supervising_lm(project.params), project.params.compute)
    key, lm = key_of_lm(*model), open_lm(*model)
    first = Scores("stage", lm, key, queries(), DOCS, whole=2)
    first.score(PAIRS)
    assert (first.computed, len(seen)) == (5, 5)
    again = Scores("stage", lm, key, queries("cxa"), DOCS, whole=1)  # other rows, another query between
    assert again.missing(np.array([[2, 3], [1, 3], [0, 29], [0, 3]])).tolist() == [[1, 3], [0, 3]]
    for mine, theirs in zip(again.look_up(np.array([2, 0]), np.array([[9], [29]])),
                            first.look_up(np.array([0, 2]), np.array([[9], [29]])), strict=True):  # fmt: skip
        assert mine.tolist() == theirs.tolist()
    assert first.whole["document"].to_pylist() == [29]
    assert sorted(again.whole["document"].to_pylist()) == [logprobs.NONE, 3, 9]
    expected = lm.score([queries().prompt(0, None)], [" Velm Mira"]).log_probs[0]
    sums, tokens = first.look_up(np.array([0]), np.array([[logprobs.NONE]]))
    assert sums[0, 0] == pytest.approx(expected.sum(dtype=np.float64), abs=1e-4)
    assert tokens.tolist() == [[len(expected)]]
    for other in ("ids", "contexts", "continuations"):
        changed = replace(queries(), **{other: np.array(["x", "y", "z"], object)})
        assert not set(hashes(changed).tolist()) & set(hashes(queries()).tolist()), other
    assert not set(hashes(replace(queries(), document="{text}")).tolist()) & set(hashes(queries()).tolist())

    shutil.rmtree(FOLDER)  # by hand
    assert len(Scores("stage", lm, key, queries(), DOCS, whole=2).missing(PAIRS)) == 5


def test_another_model_or_setting_has_scores_of_its_own(project):
    folder, lm = supervising_lm(project.params)
    compute = project.params.compute
    key = key_of_lm(folder, lm, compute)
    assert key == key_of_lm(folder, lm.model_copy(update={"training": None}), compute)
    assert key != key_of_lm(folder, lm.model_copy(update={"dtype": "bf16"}), compute)
    config = folder / "config.json"
    config.write_text(config.read_text() + " ")
    assert key != key_of_lm(folder, lm, compute)
