"""A small learned gate: logistic regression on what is known before answers are judged, beside the popularity rule.

It reads the popularity, the relation, the retriever's score and margin, and the closed-book answer's log-probability.
It predicts whether the augmented answer gains, and learns from questions on which only one of the two answers is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipelines import draws
from pipelines.adaptive import held_out, refits
from pipelines.adaptive.pairs import Pairs
from pipelines.adaptive.refits import Column
from pipelines.params import params

if TYPE_CHECKING:
    from pipelines.adaptive.tuning import Tuned

MOST = 50_000  # questions that a gate is fitted to and judged on; more are drawn from
PENALTY = 1.0  # the ridge penalty of all weights but the intercept
STEPS = 100  # of Newton's method, at most
PRECISION = 1e-9  # change of the weights that ends the steps


def of_pairs(pairs: Pairs, tuned: Tuned, chosen: params.Thresholds, seed: int, resamples: int) -> dict[str, dict]:
    """Figures "gate" of metrics/adaptive.json: the gate's on held-out questions, the popularity rule's, the difference.

    Like the rule's, they are of questions of known popularity, at most MOST of them.
    """
    rows = np.arange(tuned.questions)
    if tuned.questions > MOST:
        rows = np.sort(draws.generator(seed, "gate questions").choice(tuned.questions, MOST, replace=False))
    drawn, fitted = tuned.drawn.first(refits.FEWEST), tuned.fitted.first(refits.FEWEST)  # a gate takes longer to fit
    policies = {"popularity": held_out.policy(tuned.pairs, tuned.judged.retrieved, drawn, fitted).take(rows)}
    pairs, train, drawn = tuned.pairs.take(rows), tuned.train[rows], drawn.take(rows)
    test, gains, retrieves = ~train, pairs.gains, gate_retrieves(pairs, train)
    less = (retrieves.astype(int) - held_out.below(pairs, tuned.judged.cuts)) * gains[:, None] * test
    with np.errstate(invalid="ignore"):
        retrieved = (retrieves & test).sum(axis=1) / test.sum(axis=1)
        low, high = np.nanquantile(less.sum(axis=0) / test.sum(axis=0), [0.025, 0.975])
    without = (gate_retrieves(pairs, drawn.without(part)) for part in range(drawn.n_parts))
    policies["gate"] = refits.make_policy(retrieved, drawn, gate_retrieves(pairs, drawn.times), without)
    difference = Column(0.0, {"gate": gains, "popularity": -gains})
    columns = held_out.policy_columns(pairs, "gate") | {"difference": difference}
    figures = {name: mean.as_json() for name, mean in refits.refitted_means(columns, policies, drawn).items()}
    figures["difference"] |= {"splits_low": float(low), "splits_high": float(high)}
    for name, policy in (("popularity", "adaptive"), ("retrieved_popularity", "retrieved")):
        figures[name] = {key: tuned.figures[chosen.search][policy][key] for key in ("value", "low", "high")}
    return {"gate": {"questions": len(rows)} | figures}


def gate_retrieves(pairs: Pairs, train: np.ndarray) -> np.ndarray:
    """Whether each question retrieves by the gate of each split, (n, splits) bool.

    A gate is fitted to the columns of `train` (n, splits), bool, or counts of resamples. If only one answer ever
    gains there, it decides for all; if none does, nothing retrieves.
    """
    x, gains = features(pairs), pairs.gains
    retrieves = np.zeros(train.shape, dtype=bool)
    for split, counts in enumerate(train.T):
        side = counts > 0
        learns = side & (gains != 0)
        gained = gains[learns] > 0
        if gained.all() or not gained.any():
            retrieves[:, split] = bool(len(gained) and gained[0])
            continue
        numbers = standardised(x, side)
        retrieves[:, split] = numbers @ fit_logistic(numbers[learns], gained, counts[learns]) > 0
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


def fit_logistic(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
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


def report_entries() -> list:
    """A learned gate, beside the popularity rule."""
    from pipelines.report.adaptive_section import of_search
    from pipelines.report.entries import Drawn, Entry, Shown, spread
    from pipelines.report.figures import bars

    def gates(inputs):
        rows = of_search("gate")(inputs)
        return [row | {f"accuracy_{name}": row[name] for name in ("gate", "popularity")} for row in rows]

    def drawn(inputs):
        rows = [row for row in gates(inputs) if row["lm"] == inputs.main]
        return spread(rows, {"accuracy_popularity": "popularity rule", "accuracy_gate": "gate"})

    def lead(inputs, rule):
        of = inputs.main_questions, inputs.main
        signs = [row["difference"].sign for row in gates(inputs) if (row["dataset"], row["lm"]) == of]
        return signs and (
            f"With {signs.count(1) or 'none'} of {len(signs)} methods, a learned gate decides better than popularity "
            f"alone{'; with some it decides worse' * (-1 in signs)}."
        )

    parts = [
        Drawn(
            bars, "gate", drawn, "method", "accuracy",
            "held-out accuracy of the learned gate and of the popularity rule.",
            {"y": "held-out accuracy, %"}, each="dataset",
        ),
        "A logistic regression predicts whether the augmented answer gains, from the popularity, the relation, the "
        "retriever's score and its margin over the second passage, and the closed-book answer's log-probability. "
        "Unlike the popularity rule, it needs the closed-book answer and the search before it decides.",
        Shown(
            "gate", gates,
            ["dataset", "lm", "method", "questions", "accuracy_gate", "accuracy_popularity", "difference",
             "difference_splits", "retrieved_gate", "retrieved_popularity"],
            "Held-out accuracy in per cent on the same splits, the difference in points, with the middle 95 % over "
            "splits, and the share that retrieves in per cent.",
            {"method": "retriever", "accuracy_gate": "gate", "accuracy_popularity": "popularity rule",
             "difference": "gate less rule", "retrieved_popularity": "retrieves, rule"},
        ),
    ]  # fmt: skip
    return [Entry("gate", "A learned gate", parts, says=lead, after="adaptive")]
