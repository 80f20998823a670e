"""The three searches for a threshold per relation, over all splits at once (PopQA, section 6).

A question retrieves if its signal (its subject's popularity, or how sure the language model is)
lies below the threshold. So a threshold's gain over never retrieving is a cumulative sum of
(augmented - closed-book) over questions in order of the signal. The threshold 0 never retrieves,
infinity always does. Of equally good cuts the lowest wins.

In all functions `signal` is (n,) ascending and not negative; `gains` (n,) is what retrieving gains
each question; `train` (n, splits) says how often each split trains on it: bool for splits, counts
for resamples.
"""

from collections.abc import Sequence

import numpy as np

SEARCHES = ("exact", "bins", "shrunk")
BINS = 10  # bins of a relation's questions, as in the authors' notebook
QUANTILES = 50  # candidate cuts of `shrunk`
Questions = tuple[np.ndarray, np.ndarray, np.ndarray]  # signal, gains, train


def exact(signal: np.ndarray, gains: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The best of every distinct cut of one relation's training questions, (splits,) float64."""
    n, splits = train.shape
    if not n:
        return np.zeros(splits)

    first, gained = gained_below(signal, train * gains[:, None])
    best = np.argmax(gained, axis=0)

    # the cut is the next value that training questions have; a value that only held-out questions
    # have is no cut
    begin = np.append(first, n)[best]
    rows = np.arange(n)[:, None]
    above = (train > 0) & (rows >= begin)
    lowest = np.argmax(above, axis=0)
    is_any_above = above.any(axis=0)
    cuts = np.where(is_any_above, signal[lowest], np.inf)
    return np.where(best == 0, 0.0, cuts)


def gained_below(signal: np.ndarray, gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each of the m distinct values of the signal begins, (m,), and what is gained below
    each value and below infinity, (m + 1, columns).

    `gains` (n, columns) are what retrieving gains each question.
    """
    _, first = np.unique(signal, return_index=True)
    gains_of_values = np.add.reduceat(gains, first, axis=0)
    return first, _sums_before(gains_of_values)


def _sums_before(values: np.ndarray) -> np.ndarray:
    """The sum of the first 0, 1, … n rows of `values` (n, columns), (n + 1, columns)."""
    n, columns = values.shape
    sums = np.zeros((n + 1, columns), values.dtype)
    np.cumsum(values, axis=0, out=sums[1:])
    return sums


def bins(signal: np.ndarray, gains: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The best edge of BINS equal-width bins of the signal's logarithm, (splits,) float64.

    The bins are over training and held-out questions together, as in the authors' notebook.
    """
    n, splits = train.shape
    if not n:
        return np.zeros(splits)

    least_viewed = np.min(signal[signal > 0], initial=1.0)
    logs = np.log(np.maximum(signal, least_viewed))
    edges = np.histogram_bin_edges(logs, BINS)
    # the number of questions below each edge; the last bin has its upper end
    below = np.append(np.searchsorted(logs, edges[:-1]), n)
    is_below = np.arange(n) < below[:, None]
    gained = (is_below * gains).astype(float) @ train.astype(float)

    # Rounding must not carry a question over an edge, so cuts are kept between the questions on
    # both sides of it.
    inner = below[1:-1]
    least = np.nextafter(signal[inner - 1], np.inf)
    most = np.append(signal, np.inf)[inner]
    inner_cuts = np.clip(np.exp(edges[1:-1]), least, most)
    cuts = np.concatenate([[0.0], inner_cuts, [np.inf]])
    return cuts[np.argmax(gained, axis=0)]


def quantile_cuts(signal: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Candidate cuts for `shrunk`, (QUANTILES + 1, splits): 0, the quantiles of the training
    signals, infinity.

    `signal` and `train` are those of all relations together.
    """
    cuts = np.zeros((QUANTILES + 1, train.shape[1]))
    cuts[-1] = np.inf
    if not len(signal):
        return cuts

    counts = np.ascontiguousarray(np.cumsum(train, axis=0, dtype=np.int32).T)
    shares = np.arange(1, QUANTILES) / QUANTILES
    for split, counts_of_split in enumerate(counts):
        places = np.searchsorted(counts_of_split, counts_of_split[-1] * shares)
        cuts[1:-1, split] = signal[places]
    return cuts


def shrunk(relations: Sequence[Questions], cuts: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The best cut of each relation's shrunk accuracy curve, and of the pooled curve; (splits,)
    float64 each.

    A relation's curve over `cuts` (candidates, splits) is shrunk towards the pooled curve by
    empirical Bayes: (n * relation's + weight * pooled) / (n + weight), where `prior_weight`
    estimates the weight from the training questions.
    """
    gained_of_relations = []
    squared_of_relations = []
    counts_of_relations = []
    for signal, gains, train in relations:
        gained_of_relations.append(gains_at(signal, gains, train, cuts))
        squared_of_relations.append(gains_at(signal, gains * gains, train, cuts))
        counts_of_relations.append(train.sum(axis=0))
    gained = np.stack(gained_of_relations)
    squared = np.stack(squared_of_relations)
    counts = np.stack(counts_of_relations).astype(float)

    pooled = gained.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    curves = gained + prior_weight(gained, squared, counts) * pooled
    splits = np.arange(cuts.shape[1])
    best_cuts = [cuts[np.argmax(curve, axis=0), splits] for curve in curves]
    return best_cuts, cuts[np.argmax(pooled, axis=0), splits]


def prior_weight(gained: np.ndarray, squared: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How many questions of a relation the pooled curve is worth, (splits,).

    This is the variance of the gain within relations, divided by the variance of the relations'
    mean gains. Both are estimated by the method of moments and summed over the candidate cuts.
    `gained` and `squared` (relations, candidates, splits) are sums over the training questions
    below each cut, of which there are `counts` (relations, splits).
    """
    n = counts[:, None]
    n_all = np.maximum(n.sum(axis=0), 1)
    mean = gained / np.maximum(n, 1)
    pooled = gained.sum(axis=0) / n_all

    squares_within = (squared - n * mean**2).sum(axis=0)
    freedom_of_relations = np.maximum(n - 1, 0)
    freedom_within = np.maximum(freedom_of_relations.sum(axis=0), 1)
    within = squares_within / freedom_within

    squares_between = (n * (mean - pooled) ** 2).sum(axis=0)
    freedom_between = (n > 0).sum(axis=0) - 1
    spread = squares_between - freedom_between * within
    squared_sizes = (n**2).sum(axis=0)
    scale = n.sum(axis=0) - squared_sizes / n_all
    between = spread / np.maximum(scale, 1)

    # If relations differ no more than by chance, only the pooled curve is left.
    weight = within.sum(axis=0) / np.maximum(between.sum(axis=0), 1e-9)
    return np.minimum(weight, 1e6)


def gains_at(
    signal: np.ndarray, gains: np.ndarray, train: np.ndarray, cuts: np.ndarray
) -> np.ndarray:
    """The sum of the training questions' gains below each of `cuts`, (candidates, splits)."""
    gains_of_splits = train * gains[:, None]
    below = _sums_before(gains_of_splits.astype(gains.dtype, copy=False))
    places = np.searchsorted(signal, cuts)
    return np.take_along_axis(below, places, axis=0)
