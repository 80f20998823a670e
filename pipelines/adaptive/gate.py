"""A small learned gate: logistic regression on what is known before answers are judged, beside the popularity rule.

It reads the popularity, the relation, the retriever's score and margin, and the closed-book answer's log-probability.
It predicts whether the augmented answer gains, and learns from questions on which only one of the two answers is right.
"""

from __future__ import annotations

import numpy as np

from pipelines import params
from pipelines.adaptive import held_out
from pipelines.adaptive.held_out import HeldOut
from pipelines.adaptive.pairs import Pairs

PENALTY = 1.0  # of the squared weights, but the intercept's; numbers are standardised
STEPS = 100  # of Newton, at most
PRECISION = 1e-9  # change of the weights that ends the steps


def evaluate(pairs: Pairs, rule: HeldOut, chosen: params.Thresholds, seed: int, resamples: int) -> dict:
    """Figures of the gate and of the popularity rule on the same held-out questions, and the paired difference.

    `pairs` have the questions of unknown popularity too, for which the popularity rule retrieves, as `ask` does. `rule`
    has the splits' thresholds. `difference` is gate - popularity, over questions and over splits.
    """
    train = held_out.split_train(seed, pairs.units(chosen.split_by), chosen.splits, chosen.train_share)
    always = np.full(chosen.splits, np.inf)
    unknown = np.isnan(pairs.popularity)[:, None]
    cuts = np.stack([rule.cuts.get(relation, always) for relation in pairs.relations])
    below = unknown | (pairs.popularity[:, None] < cuts)
    decisions = {"gate": decide(pairs, train, chosen.cost_weight), "popularity": below}
    test, gains = ~train, pairs.gains(0.0)
    columns, over_splits = {}, {}
    with np.errstate(invalid="ignore"):
        for name, retrieves in decisions.items():
            retrieved = (retrieves & test).sum(axis=1) / test.sum(axis=1)
            columns[name] = held_out.scores(pairs, retrieved)["adaptive"]
            columns[f"retrieved_{name}"] = retrieved
            right = pairs.closed[:, None] + retrieves * gains[:, None]
            over_splits[name] = (right * test).sum(axis=0) / test.sum(axis=0)
    columns["difference"] = columns["gate"] - columns["popularity"]
    figures = held_out.means(columns, pairs.subjects, seed, resamples)
    low, high = np.nanquantile(over_splits["gate"] - over_splits["popularity"], [0.025, 0.975])
    found = {"questions": len(pairs.ids)} | {name: mean.as_json() for name, mean in figures.items()}
    found["difference"] |= {"splits_low": float(low), "splits_high": float(high)}
    return found


def decide(pairs: Pairs, train: np.ndarray, cost_weight: float = 0.0) -> np.ndarray:
    """Whether each question retrieves by the gate of each split, (n, splits) bool.

    A gate is fitted to the columns of `train` (n, splits). A question weighs by what the better answer gains, which is
    1 without costs. If only one answer ever gains there, it decides for all; if none does, nothing retrieves.
    """
    x, gains = features(pairs), pairs.gains(cost_weight)
    retrieves = np.zeros(train.shape, dtype=bool)
    for split, side in enumerate(train.T):
        learns = side & (gains != 0)
        gained = gains[learns] > 0
        if gained.all() or not gained.any():
            retrieves[:, split] = bool(len(gained) and gained[0])
            continue
        numbers = standardised(x, side)
        retrieves[:, split] = numbers @ fit(numbers[learns], gained, np.abs(gains[learns])) > 0
    return retrieves


def features(pairs: Pairs) -> dict[str, np.ndarray]:
    """Name -> (n,): logarithm of the popularity, score and margin, log-probability, NaN if unknown; relations as 0, 1.

    An empty answer, of probability 0, has the least log-probability of the others.
    """
    with np.errstate(divide="ignore"):
        doubt = np.log(pairs.confidence)
        popularity = np.log(np.maximum(pairs.popularity, 1))
    some = doubt[np.isfinite(doubt)]
    doubt = np.where(np.isneginf(doubt), some.min() if len(some) else np.nan, doubt)
    numbers = {"popularity": popularity, "score": pairs.score, "margin": pairs.margin, "log_prob": doubt}
    return numbers | {relation: pairs.relations == relation for relation in np.unique(pairs.relations)}


def standardised(columns: dict[str, np.ndarray], side: np.ndarray) -> np.ndarray:
    """The regression's matrix, (n, weights): an intercept, then the columns.

    Numbers have mean 0 and deviation 1 over the known ones of the training `side`. One that is not known is 0 and has a
    1 in a column of its own. Columns that are constant there are left out.
    """
    made = [np.ones(len(side))]
    for values in columns.values():
        known = np.isfinite(values)
        if values.dtype != bool:
            of_side = values[side & known]
            deviation = of_side.std() if len(of_side) else 0.0
            if deviation > 0:
                made.append(np.where(known, (values - of_side.mean()) / deviation, 0.0))
            values = ~known
        if values[side].any() and not values[side].all():
            made.append(values.astype(float))
    return np.stack(made, axis=1)


def fit(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights of the logistic regression of `y` (n,) bool on `x` (n, weights), by Newton's method.

    They minimise the sum of counts x log(1 + exp(-+ x w)) + PENALTY / 2 x the squared weights, where the first weight,
    the intercept, is free. `counts` (n,) are positive.
    """
    penalty = np.full(x.shape[1], PENALTY)
    penalty[0] = 0.0
    weights = np.zeros(x.shape[1])

    def loss(w: np.ndarray) -> float:
        wrong = np.logaddexp(0.0, np.where(y, -1.0, 1.0) * (x @ w))
        return float((counts * wrong).sum() + 0.5 * (penalty * w * w).sum())

    least = loss(weights)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -500, 500)))
        slope = x.T @ (counts * (p - y)) + penalty * weights
        curvature = (x * (counts * p * (1 - p))[:, None]).T @ x + np.diag(penalty)
        step = np.linalg.solve(curvature + 1e-12 * np.eye(len(weights)), slope)
        share = 1.0
        while (reached := loss(weights - share * step)) > least and share > 1e-6:
            share /= 2
        weights, least = weights - share * step, reached
        if np.abs(share * step).max() < PRECISION:
            break
    return weights
