"""The four searches for a threshold per relation, over all splits at once (PopQA, section 6).

A question whose signal (its subject's popularity, or how sure the language model is) lies below the threshold takes the
retrieval-augmented answer; any other question takes the closed-book answer. So a threshold's gain over never retrieving
is the sum of (augmented - closed-book) over the questions below it: a cumulative sum over questions in order of the
signal. The threshold 0 never retrieves, infinity always does. Of equally good cuts the lowest wins, which retrieves
least.

In all functions `signal` is (n,) ascending and not negative; `gains` (n,) is what retrieving gains each question;
`train` (n, splits) says how often each split trains on it: bool for splits, counts for resamples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SEARCHES = ("exact", "bins", "shrunk", "logistic")
BINS = 10  # as in the authors' notebook
QUANTILES = 50  # candidate cuts of `shrunk`
CELLS = 32  # groups of equal counts and neighbouring signals of a relation that the logistic regression reads
PENALTY = 1.0  # the ridge penalty of all weights but the intercept; the logarithm of the signal is standardised
STEPS = 30  # of Newton's method, at most
PRECISION = 1e-4  # change of the weights that ends the steps


def exact(signal: np.ndarray, gains: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The best of every distinct cut of one relation's training questions, (splits,) float64."""
    n, splits = train.shape
    if not n:
        return np.zeros(splits)
    first = np.flatnonzero(np.append(True, signal[1:] != signal[:-1]))  # the first place of each value
    gained = np.zeros((len(first) + 1, splits), dtype=gains.dtype)
    np.cumsum(np.add.reduceat(train * gains[:, None], first, axis=0), axis=0, out=gained[1:])
    best = np.argmax(gained, axis=0)
    # the cut is the next value that training questions have; a value that only held-out questions have is no cut
    above = (train > 0) & (np.arange(n)[:, None] >= np.append(first, n)[best])
    lowest = np.argmax(above, axis=0)
    cuts = np.where(above[lowest, np.arange(splits)], signal[lowest], np.inf)
    return np.where(best == 0, 0.0, cuts)


def bins(signal: np.ndarray, gains: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The best edge of 10 equal-width bins of the signal's logarithm, (splits,) float64.

    The bins are over training and held-out questions together, as in the authors' notebook.
    """
    n, splits = train.shape
    if not n:
        return np.zeros(splits)
    logs = np.log(np.maximum(signal, np.min(signal[signal > 0], initial=1.0)))
    edges = np.histogram_bin_edges(logs, BINS)
    below = np.append(np.searchsorted(logs, edges[:-1]), n)  # questions below each edge; the last bin has its upper end
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
            cuts[1:-1, split] = signal[np.searchsorted(counts_of_split, counts_of_split[-1] * steps)]
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
    squared = np.stack([gains_at(signal, gains * gains, train, cuts) for signal, gains, train in relations])
    best = np.argmax(gained + prior_weight(gained, squared, counts) * pooled, axis=1)
    *own, together = (np.take_along_axis(cuts, of[None], axis=0)[0] for of in (*best, np.argmax(pooled, axis=0)))
    return own, together


def prior_weight(gained: np.ndarray, squared: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How many questions of a relation the pooled curve is worth, (splits,).

    This is the variance of the gain within relations, divided by the variance of the relations' mean gains. Both are
    estimated by the method of moments and summed over the candidate cuts. `gained` and `squared` (relations,
    candidates, splits) are the sums of the training questions' gains and squared gains below each cut; `counts`
    (relations, splits) are the numbers of training questions.
    """
    n = counts[:, None]
    mean = gained / np.maximum(n, 1)
    pooled = gained.sum(axis=0) / np.maximum(n.sum(axis=0), 1)
    within = (squared - n * mean**2).sum(axis=0) / np.maximum(np.maximum(n - 1, 0).sum(axis=0), 1)
    spread = (n * (mean - pooled) ** 2).sum(axis=0) - ((n > 0).sum(axis=0) - 1) * within
    between = spread / np.maximum(n.sum(axis=0) - (n**2).sum(axis=0) / np.maximum(n.sum(axis=0), 1), 1)
    # If relations differ no more than by chance, only the pooled curve is left.
    return np.minimum(within.sum(axis=0) / np.maximum(between.sum(axis=0), 1e-9), 1e6)


def logistic(relations: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Where a smooth curve says that retrieving stops to gain, for each relation, (splits,) float64.

    The curve is a logistic regression of which answer gains, where one does, on the signal's logarithm. Each relation
    has a level and a slope of its own, drawn towards those of all relations by a ridge penalty (partial pooling).
    Where the curve rises, no threshold is right: always or never is what it says of the relation as a whole.
    """
    signals = np.concatenate([signal for signal, _, _ in relations])
    least = np.min(signals[signals > 0], initial=np.inf)
    if not np.isfinite(least):
        return [np.zeros(train.shape[1]) for _, _, train in relations]
    logs = np.log(np.maximum(signals, least))
    centre, scale = logs.mean(), max(logs.std(), 1e-9)
    cells = [_cells((np.log(np.maximum(s, least)) - centre) / scale, gains, train) for s, gains, train in relations]
    x, wins, losses = (np.stack(parts) for parts in zip(*cells, strict=True))
    level, slope = _regression(x, wins, losses)
    cuts = []
    for i in range(len(relations)):
        score = level[i] + slope[i] * x[i][:, None]
        whole = ((wins[i] + losses[i]) * np.tanh(score / 2)).sum(axis=0) > 1e-9  # ties never retrieve
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            cut = np.exp(centre - scale * level[i] / slope[i])
        cut = np.where(cut > signals.max(), np.inf, np.where(cut <= signals.min(), 0.0, cut))
        cuts.append(np.where(slope[i] < 0, cut, np.where(whole, np.inf, 0.0)))
    return cuts


def _cells(x: np.ndarray, gains: np.ndarray, train: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean `x` of each cell (CELLS,), and what retrieving wins and loses there in training, (CELLS, splits)."""
    n, splits = train.shape
    if not n:
        return np.zeros(CELLS), np.zeros((CELLS, splits)), np.zeros((CELLS, splits))
    starts = np.arange(min(CELLS, n)) * n // min(CELLS, n)
    empty = ((0, CELLS - len(starts)), (0, 0))
    sums = [
        np.add.reduceat(train * part[:, None], starts, axis=0) for part in (gains * (gains > 0), -gains * (gains < 0))
    ]
    means = np.add.reduceat(x, starts) / np.diff(np.append(starts, n))
    return np.pad(means, empty[0]), np.pad(sums[0], empty).astype(float), np.pad(sums[1], empty).astype(float)


def _regression(x: np.ndarray, wins: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Level and slope of each relation's curve, (relations, splits) each, by Newton's method for all splits at once.

    `x` is (relations, cells), `wins` and `losses` (relations, cells, splits). What all relations share comes first in
    the weights, (1 + relations, 2, splits). The shared level alone has no penalty.
    """
    n, splits = len(x), wins.shape[2]
    weights, basis, counts = np.zeros((1 + n, 2, splits)), np.stack([np.ones_like(x), x], axis=1), wins + losses
    penalty = np.full((1 + n, 2, 1), PENALTY)
    penalty[0, 0] = 1e-9
    won, lost = wins.sum(axis=(0, 1)), losses.sum(axis=(0, 1))
    told = (won > 0) & (lost > 0)  # else one answer decides for all

    def scores(w: np.ndarray) -> np.ndarray:
        return np.einsum("rbc,rbs->rcs", basis, w[1:] + w[0])

    def loss(w: np.ndarray) -> np.ndarray:
        score = scores(w)
        wrong = wins * np.logaddexp(0.0, -score) + losses * np.logaddexp(0.0, score)
        return wrong.sum(axis=(0, 1)) + (penalty * w * w).sum(axis=(0, 1)) / 2

    least = loss(weights)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(scores(weights), -500, 500)))
        slope = np.einsum("rbc,rcs->rbs", basis, counts * p - wins)
        curvature = np.einsum("rbc,rdc,rcs->rbds", basis, basis, counts * p * (1 - p), optimize=True)
        step = _newton(curvature, slope, penalty, weights) * told
        share, most = np.ones(splits), least * (1 + 1e-12) + 1e-9
        while ((reached := loss(weights - share * step)) > most).any() and share.min() > 1e-6:
            share = np.where(reached > most, share / 2, share)
        weights, least = weights - share * step, reached
        if np.abs(share * step).max() < PRECISION:
            break
    level, slope = np.moveaxis(weights[1:] + weights[0], 1, 0)
    return np.where(told, level, np.sign(won - lost)), slope


def _newton(curvature: np.ndarray, slope: np.ndarray, penalty: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Newton's step (1 + relations, 2, splits) from each relation's `curvature` (relations, 2, 2, splits) and `slope`.

    What relations have of their own is eliminated first, so that only 2 x 2 systems are solved.
    """
    ridge = np.eye(2)[None, :, :, None] * penalty[:, :, None]
    inverse = _inverse(curvature + ridge[1:])
    through = np.einsum("rbds,rdes->rbes", curvature, inverse)
    of_relations = slope + penalty[1:] * weights[1:]
    shared = slope.sum(axis=0) + penalty[0] * weights[0] - np.einsum("rbds,rds->bs", through, of_relations)
    remaining = (curvature - np.einsum("rbds,rdes->rbes", through, curvature)).sum(axis=0)
    step = np.einsum("bds,ds->bs", _inverse(remaining[None] + ridge[:1])[0], shared)
    steps = np.einsum("rbds,rds->rbs", inverse, of_relations - np.einsum("rbds,ds->rbs", curvature, step))
    return np.concatenate([step[None], steps])


def _inverse(matrices: np.ndarray) -> np.ndarray:
    """The inverses of 2 x 2 matrices, (relations, 2, 2, splits)."""
    (a, b), (c, d) = matrices[:, 0].swapaxes(0, 1), matrices[:, 1].swapaxes(0, 1)
    return np.stack([np.stack([d, -b], axis=1), np.stack([-c, a], axis=1)], axis=1) / (a * d - b * c)[:, None, None]


def gains_at(signal: np.ndarray, gains: np.ndarray, train: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """The sum of the training questions' gains below each of `cuts`, (candidates, splits)."""
    below = np.zeros((len(signal) + 1, train.shape[1]), dtype=gains.dtype)
    np.cumsum(train * gains[:, None], axis=0, out=below[1:])
    return np.take_along_axis(below, np.searchsorted(signal, cuts), axis=0)
