"""Thresholds that keep a budget: the share of the questions that may retrieve.

A budget is kept by multiplying the thresholds of all relations by the same factor. So the questions
retrieve whose threshold is the largest multiple of their signal.
"""

from collections.abc import Mapping

import numpy as np

from pipelines.adaptive.pairs import Pairs

# Thresholds and signals are taken for these at the least and most, as logarithms are finite.
LEAST = 1e-30
MOST = 1e99
ROUNDING = 1e-9  # questions: a budget of 0.29 is 29 of 100 questions


def log_ratios(pairs: Pairs, cuts: Mapping[str, np.ndarray]) -> np.ndarray:
    """The logarithm of threshold over signal, (n, splits); a question retrieves where it is above
    0.

    `cuts` are relation -> (splits,).
    """
    log_signal = np.log(np.maximum(pairs.signal, LEAST))
    ratios = []
    for relation, rows in pairs.members().items():
        ratios.append(_log_cuts(cuts[relation]) - log_signal[rows, None])
    return np.concatenate(ratios)


def shifts(
    pairs: Pairs, train: np.ndarray, cuts: Mapping[str, np.ndarray], budget: float
) -> np.ndarray:
    """The logarithm of what thresholds have to be divided by to keep a budget, (splits,).

    It is the least with which no more than the budget's share of the questions in each column of
    `train` (n, splits) retrieves; 0 where the thresholds `cuts` keep the budget as they are.
    """
    n_splits = train.shape[1]
    if budget == 1:
        return np.zeros(n_splits)
    ratios = log_ratios(pairs, cuts)
    found = [_shift(ratios[:, split], train[:, split], budget) for split in range(n_splits)]
    return np.array(found)


def _shift(ratios: np.ndarray, times: np.ndarray, budget: float) -> float:
    """`shifts` of one split, by how often it trains on each question, (n,)."""
    in_training = times > 0
    ratios = ratios[in_training]
    order = np.argsort(-ratios, kind="stable")
    ordered = ratios[order]
    retrieving = np.cumsum(times[in_training][order], dtype=np.int64)
    allowed = budget * times.sum() + ROUNDING
    first_too_many = np.searchsorted(retrieving, allowed, side="right")
    if first_too_many == len(ordered) or ordered[first_too_many] <= 0:
        return 0.0

    # Rounding must not carry a question over the edge, so the edge is halfway to the next one.
    limit = ordered[first_too_many]
    larger = ordered[ordered > limit]
    return (limit + larger[-1]) / 2 if len(larger) else limit + 1


def shifted(cuts: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """A relation's thresholds (splits,), divided by what `shifts` are the logarithms of."""
    log_cuts = _log_cuts(cuts) - shifts
    divided = np.where(log_cuts > np.log(LEAST), np.exp(log_cuts), 0.0)
    return np.where(shifts > 0, divided, cuts)


def _log_cuts(cuts: np.ndarray) -> np.ndarray:
    return np.log(np.clip(cuts, LEAST**2, MOST))


def figures(pairs: Pairs, train: np.ndarray, cuts: Mapping[str, np.ndarray], budget: float) -> dict:
    """How the held-out questions of the splits keep a budget: the share of the splits in which more
    of them retrieve, and the largest share that does in a split.
    """
    if budget == 1:
        return {}
    held_out = ~train
    counts = held_out.sum(axis=0)
    retrieves = held_out & (log_ratios(pairs, cuts) > 0)
    retrieving = retrieves.sum(axis=0)[counts > 0]
    counts = counts[counts > 0]
    over = retrieving > budget * counts + ROUNDING
    return {"over_budget": float(over.mean()), "retrieved_most": float((retrieving / counts).max())}
