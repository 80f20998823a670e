"""A pair of query and document is scored once in a training, also where it was killed."""

import numpy as np
import pytest

from pipelines.lm.local import LocalModel
from pipelines.lm.open_lm import open_lm, supervising_lm
from pipelines.lsr import train_lsr
from pipelines.lsr.scores import Scores
from pipelines.lsr.training_queries import CorpusQueries
from pipelines.scoring import logprobs
from pipelines.scoring.logprobs import Queries, without_shots

PAIRS = np.array([[0, logprobs.NONE], [0, 3], [0, 9], [1, 3], [2, 29]])


@pytest.fixture
def seen(monkeypatch):
    """The pairs that the language model has really scored."""
    real, scored = LocalModel.score, []

    def counted(self, prompts, continuations):
        scored.extend(zip(prompts, continuations, strict=True))
        return real(self, prompts, continuations)

    monkeypatch.setattr(LocalModel, "score", counted)
    return scored


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
        train_lsr.train_retriever(project.params, "dense")
    assert seen
    metrics = train_lsr.train_retriever(project.params, "dense")
    assert len(seen) == len(set(seen)) == metrics["scored_pile"] + metrics["scored_wikipedia"]


def test_scores_are_the_language_models_and_are_found_again(project, seen, tmp_path):
    ids, texts = (
        np.array(list("abc"), object),
        np.array([f"Norland {name}" for name in "abc"], object),
    )
    queries = Queries(
        ids, texts, texts, np.full(3, " Velm Mira", object), without_shots(3), "{text}\n"
    )
    corpus = CorpusQueries("pile", "pile", queries, 2, ids, None)
    opened = open_lm(*supervising_lm(project.params), project.params.compute)
    first = Scores(tmp_path / "scores", opened, corpus)
    first.score(PAIRS[:3])
    first.score(PAIRS)
    assert len(first) == len(seen) == 5
    again = Scores(tmp_path / "scores", opened, corpus)
    again.score(PAIRS)
    assert len(again) == len(seen) == 5
    rows, positions = np.array([0, 2]), np.array([[9], [29]])
    np.testing.assert_array_equal(again.look_up(rows, positions), first.look_up(rows, positions))
    assert (
        first.validation["document"].to_pylist() == again.validation["document"].to_pylist() == [29]
    )
    expected = opened.score([queries.prompt(0, None)], [" Velm Mira"]).log_probs[0]
    sums, tokens = again.look_up(np.array([0]), np.array([[logprobs.NONE]]))
    assert sums[0, 0] == pytest.approx(expected.sum(dtype=np.float64), abs=1e-4)
    assert tokens.tolist() == [[len(expected)]]
    unscored = np.array([[9], [8]])
    with pytest.raises(AssertionError, match="not scored"):
        again.look_up(rows, unscored)
