"""Ranks of two retrievers are fused by their reciprocals; documents without a term of the query
have no rank.
"""

import numpy as np

from pipelines.retrieval.retriever import Fused, fuse


def by_the_formula(rankings, k):
    """Cormack et al.'s formula, a document at a time; ties by position."""
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, position in enumerate([place for place in ranking if place >= 0], 1):
            sums[position] = sums.get(position, 0) + 1 / (60 + rank)
    return sorted(sums, key=lambda position: (-np.float32(sums[position]), position))[:k], sums


class Ranking:
    """A retriever that gives each text the same documents, and remembers what it was asked for."""

    def __init__(self, positions, scores):
        self.count, self.asked = 500, []
        self._positions, self._scores = np.array(positions), np.array(scores, np.float32)

    def search(self, texts, k, without=None):
        self.asked.append((list(texts), k, without))
        return np.tile(self._positions[:k], (len(texts), 1)), np.tile(
            self._scores[:k], (len(texts), 1)
        )


def test_scores_are_sums_of_reciprocal_ranks():
    """Ties go by position."""
    draw = np.random.default_rng(0)
    rankings = [np.array([draw.permutation(150)[:100] for _ in range(8)]) for _ in range(2)]
    rankings[0][3, 40:], rankings[1][3, :] = -1, -1
    positions, scores = fuse(rankings, 60)
    assert (positions.dtype, scores.dtype) == (np.int64, np.float32)
    for query in range(8):
        expected, sums = by_the_formula([ranking[query] for ranking in rankings], 60)
        assert positions[query].tolist() == expected + [-1] * (60 - len(expected))
        known = scores[query, : len(expected)]
        np.testing.assert_allclose(known, [sums[position] for position in expected], rtol=1e-6)
        assert np.isneginf(scores[query, len(expected) :]).all()
    positions, scores = fuse([np.array([[7, 4, 9]]), np.array([[4, 7, 2]])], 4)
    assert positions.tolist() == [[4, 7, 2, 9]], "documents that trade ranks tie"
    assert scores[0, 0] == scores[0, 1] > scores[0, 2] == scores[0, 3]


def test_enough_of_both_is_fused_whatever_is_asked_for():
    """Document 80, 41st by terms and 51st by vectors, is the only one in both.

    No term is in the documents 0 to 29.
    """
    by_terms = [*range(200, 240), 80, *range(30)]
    bm25 = Ranking(by_terms, [*np.linspace(9, 1, 41), *[0.0] * 30])
    dense = Ranking([*range(300, 350), 80, *range(400, 450)], np.linspace(0.9, -0.5, 101))
    positions, scores = Fused(bm25, dense).search(["a", "b"], 2, without=["s", None])
    assert positions.tolist() == [[80, 200]] * 2
    np.testing.assert_allclose(scores[0], [1 / 101 + 1 / 111, 1 / 61], rtol=1e-6)
    assert bm25.asked == dense.asked == [(["a", "b"], 100, ["s", None])]
    positions, _ = Fused(bm25, dense).search(["a"], 400)
    assert positions.shape == (1, 400)
    assert set(range(30)).isdisjoint(positions[0])
    assert dense.asked[-1] == (["a"], 400, None)
