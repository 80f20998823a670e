"""The three searches for a popularity threshold per relation, over all splits at once (PopQA, section 6).

A question with popularity below the threshold takes the retrieval-augmented answer, any other the closed-book one. So a
threshold's gain over never retrieving is the sum of (augmented - closed-book) over the questions below it: a cumulative
sum over questions in order of popularity. 0 stands for never retrieving, infinity for always. Of equally good cuts the
lowest wins, which retrieves least.
"""

from __future__ import annotations

import numpy as np

BINS = 10  # of the authors' notebook


def exact(popularity: np.ndarray, gains: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The best of every distinct cut of one relation's training questions, (splits,) float64.

    popularity (n,) ascending; gains (n,) in {-1, 0, 1}, augmented minus closed-book; train (splits, n) bool.
    """
    values, first = np.unique(popularity, return_index=True)
    if not len(values):
        return np.zeros(len(train))
    present = np.logical_or.reduceat(train, first, axis=1)  # a value that only held-out questions have is no cut
    below = _below(gains, train)[:, first]  # (splits, values): the gain of retrieving below each value
    below[~present] = -np.inf
    cuts = np.tile(np.concatenate([values.astype(float), [np.inf]]), (len(train), 1))
    lowest = np.arange(len(train)), np.argmax(present, axis=1)
    below[lowest], cuts[lowest] = 0.0, 0.0  # cutting at the lowest training value is never retrieving
    total = np.where(train, gains, 0).sum(axis=1, keepdims=True)
    return _best(cuts, np.concatenate([below, total], axis=1))


def bins(popularity: np.ndarray, gains: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The best edge of 10 equal-width bins of log popularity, over train and test together, as the authors' notebook
    does.

    Arguments and result as for `exact`.
    """
    if not len(popularity):
        return np.zeros(len(train))
    logs = np.log10(np.maximum(popularity[[0, -1]], 1))
    inner = 10 ** np.linspace(logs[0], logs[1], BINS + 1)[1:-1]
    cuts = np.tile(np.concatenate([[0.0], inner, [np.inf]]), (len(train), 1))
    return _best(cuts, gains_at(popularity, gains, train, cuts))


def quantile_cuts(popularity: np.ndarray, train: np.ndarray, quantiles: int) -> np.ndarray:
    """Candidate cuts for `shrunk`: 0, the training questions' popularity quantiles, infinity; (splits, quantiles + 1).

    popularity (n,) ascending, of all relations together; train (splits, n) bool.
    """
    counts = np.cumsum(train, axis=1)
    cuts = np.zeros((len(train), quantiles + 1))
    cuts[:, -1] = np.inf
    if len(popularity):
        for step in range(1, quantiles):
            reached = counts >= counts[:, -1:] * step / quantiles
            cuts[:, step] = popularity[np.argmax(reached, axis=1)]
    return cuts


def shrunk(
    popularity: np.ndarray,
    gains: np.ndarray,
    train: np.ndarray,
    cuts: np.ndarray,
    pooled: np.ndarray,
    pseudo_questions: float,
) -> np.ndarray:
    """The best cut on the relation's accuracy curve, shrunk towards the pooled one (empirical Bayes).

    The curve over `cuts` (splits, candidates) is (n * relation's + pseudo_questions * pooled) / (n + pseudo_questions),
    of which the gain is what depends on the cut; `pooled` (splits, candidates) is the mean gain per question over all
    relations. Other arguments and result as for `exact`.
    """
    return _best(cuts, gains_at(popularity, gains, train, cuts) + pseudo_questions * pooled)


def gains_at(popularity: np.ndarray, gains: np.ndarray, chosen: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """The sum of the gains of the `chosen` (splits, n) questions below each cut: like `cuts`, (splits, candidates)."""
    return np.take_along_axis(_below(gains, chosen), np.searchsorted(popularity, cuts, side="left"), axis=1)


def _below(gains: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """(splits, n + 1): the gain of retrieving for the first 0, 1, ... n questions in order of popularity."""
    sums = np.zeros((len(chosen), len(gains) + 1))
    np.cumsum(np.where(chosen, gains, 0), axis=1, out=sums[:, 1:])
    return sums


def _best(cuts: np.ndarray, gained: np.ndarray) -> np.ndarray:
    return np.take_along_axis(cuts, np.argmax(gained, axis=1)[:, None], axis=1)[:, 0]
