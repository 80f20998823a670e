"""A small learned gate: logistic regression on what is known before answers are judged, beside the popularity rule.

It reads the popularity, the relation, the retriever's score and margin, and the closed-book answer's log-probability.
It predicts whether the augmented answer gains, and learns from questions on which only one of the two answers is right.
"""

from __future__ import annotations

import numpy as np

from pipelines import draws, params
from pipelines.adaptive import held_out, refits
from pipelines.adaptive.held_out import HeldOut
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column
from pipelines.adaptive.searches import PENALTY

STEPS = 100  # of Newton, at most
MOST = 50_000  # questions that a gate is fitted to and judged on; more are drawn from
PRECISION = 1e-9  # change of the weights that ends the steps


def evaluate(pairs: Pairs, rule: HeldOut, chosen: params.Thresholds, seed: int, resamples: int) -> dict:
    """Figures of the gate and of the popularity rule on the same held-out questions, and the paired difference.

    `pairs` have the questions of unknown popularity too, for which the popularity rule retrieves, as `ask` does. `rule`
    has the splits' thresholds. `difference` is gate - popularity, over questions and over splits.
    """
    if len(pairs.ids) > MOST:
        rows = draws.generator(seed, "gate questions").choice(len(pairs.ids), MOST, replace=False)
        pairs = pairs.take(np.sort(rows))
    train = held_out.split_train(seed, pairs.units(chosen.split_by), chosen.splits, chosen.train_share)
    drawn = refits.resample(pairs.subjects, pairs.units(chosen.split_by), chosen.train_share, seed, resamples)
    drawn = drawn.first(refits.FEWEST)  # a gate takes longer to fit than thresholds

    def by_thresholds(counts: np.ndarray) -> np.ndarray:
        known = np.isfinite(pairs.popularity)
        retrieves = np.ones(counts.shape, dtype=bool)
        of_known = pairs.take(known)
        retrieves[known] = held_out.below(of_known, held_out.fit(of_known, counts[known], chosen.search, chosen))
        return retrieves

    always = np.full(chosen.splits, np.inf)
    cuts = np.stack([rule.cuts.get(relation, always) for relation in pairs.relations])
    on_splits = {
        "gate": decide(pairs, train, chosen.cost_weight),
        "popularity": np.isnan(pairs.popularity)[:, None] | (pairs.popularity[:, None] < cuts),
    }
    again = {"gate": lambda counts: decide(pairs, counts, chosen.cost_weight), "popularity": by_thresholds}
    test, gains = ~train, pairs.gains(0.0)
    policies, over_splits, columns = {}, {}, {}
    with np.errstate(invalid="ignore"):
        for name, retrieves in on_splits.items():
            retrieved = (retrieves & test).sum(axis=1) / test.sum(axis=1)
            policies[name] = refits.decide(retrieved, drawn, again[name])
            columns[name] = Column(pairs.closed, {name: gains})
            columns[f"retrieved_{name}"] = Column(0.0, {name: 1.0}, apart=True)
            right = pairs.closed[:, None] + retrieves * gains[:, None]
            over_splits[name] = (right * test).sum(axis=0) / test.sum(axis=0)
    columns["difference"] = Column(0.0, {"gate": gains, "popularity": -gains})
    low, high = np.nanquantile(over_splits["gate"] - over_splits["popularity"], [0.025, 0.975])
    figures = {name: mean.as_json() for name, mean in refits.means(columns, policies, drawn).items()}
    figures["difference"] |= {"splits_low": float(low), "splits_high": float(high)}
    return {"questions": len(pairs.ids)} | figures


def decide(pairs: Pairs, train: np.ndarray, cost_weight: float = 0.0) -> np.ndarray:
    """Whether each question retrieves by the gate of each split, (n, splits) bool.

    A gate is fitted to the columns of `train` (n, splits), bool, or counts of resamples. A question weighs by what the
    better answer gains, which is 1 without costs. If only one answer ever gains there, it decides for all; if none
    does, nothing retrieves.
    """
    x, gains = features(pairs), pairs.gains(cost_weight)
    retrieves = np.zeros(train.shape, dtype=bool)
    for split, counts in enumerate(train.T):
        side = counts > 0
        learns = side & (gains != 0)
        gained = gains[learns] > 0
        if gained.all() or not gained.any():
            retrieves[:, split] = bool(len(gained) and gained[0])
            continue
        numbers = standardised(x, side)
        weights = np.abs(gains[learns]) * counts[learns]
        retrieves[:, split] = numbers @ fit(numbers[learns], gained, weights) > 0
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
