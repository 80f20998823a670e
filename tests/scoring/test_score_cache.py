"""A pair is scored once, in whatever run; another model, setting or document has scores of its own."""

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
    project.params = methods.with_retriever(project.params, "dense")
    return project


@pytest.fixture
def seen(monkeypatch):
    """The pairs that the language model has really scored."""
    real, scored = LocalModel.score, []

    def counted(self, prompts, continuations):
        scored.extend(zip(prompts, continuations, strict=True))
        return real(self, prompts, continuations)

    monkeypatch.setattr(LocalModel, "score", counted)
    return scored


def queries(names="abc"):
    ids, texts = np.array(list(names), object), np.array([f"Norland {name}" for name in names], object)
    return Queries(ids, texts, texts, np.full(len(ids), " Velm Mira", object), "{text}\n")


def test_a_sweep_over_the_objective_asks_the_language_model_nothing(project, seen, monkeypatch):
    monkeypatch.setattr(refresh, "SHOWN", 30)  # all documents: what is found can't differ
    kept = {"top_k": 30, "keep_scores": True, "steps": 2, "refresh_steps": 1, "checkpoint_steps": 1}
    project.params.lsr = project.params.lsr.model_copy(update=kept)
    metrics = train_lsr.train_retriever(project.params)
    assert len(seen) == metrics["scored_pile"] + metrics["scored_wikipedia"] == len(set(seen)) > 0
    seen.clear()
    changes = {"kl": "p_q", "gamma": 0.5, "likelihood": "sum_logprob"}
    project.params.lsr = project.params.lsr.model_copy(update=changes)
    assert train_lsr.train_retriever(project.params)["kl_last"] != metrics["kl_last"]
    assert not seen


def test_killed_while_scoring_no_pair_is_scored_twice_and_scores_that_are_not_kept_go(project, seen, monkeypatch):
    counted, calls = LocalModel.score, []

    def killed(self, prompts, continuations):
        calls.append(prompts)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return counted(self, prompts, continuations)

    monkeypatch.setattr(logprobs, "SHARD", 7)
    monkeypatch.setattr(LocalModel, "score", killed)
    with pytest.raises(KeyboardInterrupt):
        train_lsr.train_retriever(project.params)
    assert seen
    train_lsr.train_retriever(project.params)
    assert len(seen) == len(set(seen))
    assert not any(FOLDER.glob("*"))


def test_kept_scores_are_found_by_what_they_are_of(project, seen):
    model = (*supervising_lm(project.params), project.params.compute)
    key, opened = key_of_lm(*model), open_lm(*model)
    first = Scores("stage", opened, key, queries(), DOCS, whole=2)
    first.score(PAIRS)
    assert (first.computed, len(seen)) == (5, 5)
    again = Scores("stage", opened, key, queries("cxa"), DOCS, whole=1)  # other rows, another query between
    assert again.missing(np.array([[2, 3], [1, 3], [0, 29], [0, 3]])).tolist() == [[1, 3], [0, 3]]
    found = ((scores, np.array(rows)) for scores, rows in ((again, [2, 0]), (first, [0, 2])))
    mine, theirs = (scores.look_up(rows, np.array([[9], [29]])) for scores, rows in found)
    np.testing.assert_array_equal(mine, theirs)
    assert first.whole["document"].to_pylist() == [29]
    assert sorted(again.whole["document"].to_pylist()) == [logprobs.NONE, 3, 9]
    expected = opened.score([queries().prompt(0, None)], [" Velm Mira"]).log_probs[0]
    sums, tokens = first.look_up(np.array([0]), np.array([[logprobs.NONE]]))
    assert sums[0, 0] == pytest.approx(expected.sum(dtype=np.float64), abs=1e-4)
    assert tokens.tolist() == [[len(expected)]]
    for other in ("ids", "contexts", "continuations"):
        changed = replace(queries(), **{other: np.array(["x", "y", "z"], object)})
        assert not set(hashes(changed).tolist()) & set(hashes(queries()).tolist()), other
    assert not set(hashes(replace(queries(), document="{text}")).tolist()) & set(hashes(queries()).tolist())
    # another model or setting has scores of its own
    folder, lm, compute = model
    assert key == key_of_lm(folder, lm.model_copy(update={"training": None}), compute)
    assert key != key_of_lm(folder, lm.model_copy(update={"dtype": "bf16"}), compute)
    config = folder / "config.json"
    config.write_text(config.read_text() + " ")
    assert key != key_of_lm(folder, lm, compute)
