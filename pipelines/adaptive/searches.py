"""The three searches for a threshold per relation, over all splits at once (PopQA, section 6).

A question retrieves if its signal (its subject's popularity, or how sure the language model is) lies below the
threshold. So a threshold's gain over never retrieving is a cumulative sum of (augmented - closed-book) over questions
in order of the signal. The threshold 0 never retrieves, infinity always does. Of equally good cuts the lowest wins.

In all functions `signal` is (n,) ascending and not negative; `gains` (n,) is what retrieving gains each question;
`train` (n, splits) says how often each split trains on it: bool for splits, counts for resamples.
"""

from collections.abc import Sequence

import numpy as np

SEARCHES = ("exact", "bins", "shrunk")
BINS = 10  # as in the authors' notebook
QUANTILES = 50  # candidate cuts of `shrunk`


def exact(signal: np.ndarray, gains: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The best of every distinct cut of one relation's training questions, (splits,) float64."""
    n, splits = train.shape
    if not n:
        return np.zeros(splits)
    first = np.flatnonzero(
        np.append(True, signal[1:] != signal[:-1])
    )  # the first place of each value
    gained = np.zeros((len(first) + 1, splits), dtype=gains.dtype)
    np.cumsum(np.add.reduceat(train * gains[:, None], first, axis=0), axis=0, out=gained[1:])
    best = np.argmax(gained, axis=0)
    # the cut is the next value that training questions have; a value that only held-out questions have is no cut
    above = (train > 0) & (np.arange(n)[:, None] >= np.append(first, n)[best])
    lowest = np.argmax(above, axis=0)
    return np.where(
        best == 0, 0.0, np.where(above[lowest, np.arange(splits)], signal[lowest], np.inf)
    )


def bins(signal: np.ndarray, gains: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The best edge of 10 equal-width bins of the signal's logarithm, (splits,) float64.

    The bins are over training and held-out questions together, as in the authors' notebook.
    """
    n, splits = train.shape
    if not n:
        return np.zeros(splits)
    logs = np.log(np.maximum(signal, np.min(signal[signal > 0], initial=1.0)))
    edges = np.histogram_bin_edges(logs, BINS)
    below = np.append(
        np.searchsorted(logs, edges[:-1]), n
    )  # questions below each edge; the last bin has its upper end
    gained = ((np.arange(n) < below[:, None]) * gains).astype(float) @ train.astype(float)
    # Rounding must not carry a question over an edge, so cuts are kept between the questions on both sides of it.
    least = np.nextafter(signal[below[1:-1] - 1], np.inf)
    inner = np.clip(np.exp(edges[1:-1]), least, np.append(signal, np.inf)[below[1:-1]])
    return np.concatenate([[0.0], inner, [np.inf]])[np.argmax(gained, axis=0)]


def quantile_cuts(signal: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Candidate cuts for `shrunk`, (QUANTILES + 1, splits): 0, the quantiles of the training signals, infinity.

    `signal` and `train` are those of all relations together.
    """
    cuts = np.zeros((QUANTILES + 1, train.shape[1]))
    cuts[-1] = np.inf
    if len(signal):
        counts = np.ascontiguousarray(np.cumsum(train, axis=0, dtype=np.int32).T)
        steps = np.arange(1, QUANTILES) / QUANTILES
        for split, counts_of_split in enumerate(counts):
            cuts[1:-1, split] = signal[
                np.searchsorted(counts_of_split, counts_of_split[-1] * steps)
            ]
    return cuts


def shrunk(
    relations: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], cuts: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """The best cut of each relation's shrunk accuracy curve, and of the pooled curve; (splits,) float64 each.

    `relations` are (signal, gains, train) of each relation. A relation's curve over `cuts` (candidates, splits) is
    shrunk towards the pooled curve by empirical Bayes: (n * relation's + weight * pooled) / (n + weight), where
    `prior_weight` estimates the weight from the training questions.
    """
    gained = np.stack([gains_at(signal, gains, train, cuts) for signal, gains, train in relations])
    counts = np.stack([train.sum(axis=0) for _, _, train in relations]).astype(float)
    pooled = gained.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    squared = np.stack(
        [gains_at(signal, gains * gains, train, cuts) for signal, gains, train in relations]
    )
    best = np.argmax(gained + prior_weight(gained, squared, counts) * pooled, axis=1)
    *own, together = (
        np.take_along_axis(cuts, of[None], axis=0)[0] for of in (*best, np.argmax(pooled, axis=0))
    )
    return own, together


def prior_weight(gained: np.ndarray, squared: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How many questions of a relation the pooled curve is worth, (splits,).

    This is the variance of the gain within relations, divided by the variance of the relations' mean gains. Both are
    estimated by the method of moments and summed over the candidate cuts. `gained` and `squared` (relations,
    candidates, splits) are sums over the training questions below each cut, of which there are `counts` (relations,
    splits).
    """
    n = counts[:, None]
    mean = gained / np.maximum(n, 1)
    pooled = gained.sum(axis=0) / np.maximum(n.sum(axis=0), 1)
    within = (squared - n * mean**2).sum(axis=0) / np.maximum(np.maximum(n - 1, 0).sum(axis=0), 1)
    spread = (n * (mean - pooled) ** 2).sum(axis=0) - ((n > 0).sum(axis=0) - 1) * within
    between = spread / np.maximum(
        n.sum(axis=0) - (n**2).sum(axis=0) / np.maximum(n.sum(axis=0), 1), 1
    )
    # If relations differ no more than by chance, only the pooled curve is left.
    return np.minimum(within.sum(axis=0) / np.maximum(between.sum(axis=0), 1e-9), 1e6)


def gains_at(
    signal: np.ndarray, gains: np.ndarray, train: np.ndarray, cuts: np.ndarray
) -> np.ndarray:
    """The sum of the training questions' gains below each of `cuts`, (candidates, splits)."""
    below = np.zeros((len(signal) + 1, train.shape[1]), dtype=gains.dtype)
    np.cumsum(train * gains[:, None], axis=0, out=below[1:])
    return np.take_along_axis(below, np.searchsorted(signal, cuts), axis=0)
