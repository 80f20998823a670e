"""Simulated questions with a closed-book and an augmented answer, to which the truth is known.

A data set has questions of 16 relations, 1.5 of a subject unless another number is given. Being
right depends on the subject's popularity, on the relation and on the subject, so that questions of
a subject go together. In the world `mixed` either answer may be the better one, in `always`
retrieving nearly always is, in `never` the closed-book answer is, in `even` both are equally good,
and in `flat` popularity says little. In `together` both answers are right on the same questions,
and the augmented one on some more: thresholds can hardly win anything.
"""

import math
from dataclasses import dataclass

import numpy as np

from pipelines.adaptive.pairs import Pairs

N_RELATIONS = 16


@dataclass(frozen=True)
class Moments:
    """Means and deviations, over relations, of an answer's log-odds."""

    level: tuple[float, float]  # for 1,000 views
    slope: tuple[float, float]  # for each tenfold of views


MIXED = {
    "closed_book": Moments(level=(-1.6, 1.0), slope=(0.9, 0.4)),
    "augmented": Moments(level=(-0.8, 0.8), slope=(0.1, 0.25)),
}
ALWAYS = {
    "closed_book": Moments(level=(-2.2, 0.4), slope=(0.5, 0.2)),
    "augmented": Moments(level=(-0.3, 0.4), slope=(0.1, 0.1)),
}
FLAT = {
    "closed_book": Moments(level=(-1.0, 1.0), slope=(0.1, 0.4)),
    "augmented": Moments(level=(-1.0, 0.8), slope=(0.1, 0.25)),
}
EVEN = Moments(level=(-0.5, 0.3), slope=(0.2, 0.1))
WORLDS = {
    "mixed": MIXED,
    "always": ALWAYS,
    "flat": FLAT,
    "never": {"closed_book": ALWAYS["augmented"], "augmented": ALWAYS["closed_book"]},
    "even": {"closed_book": EVEN, "augmented": EVEN},
    "together": {
        "closed_book": Moments(level=(-0.2, 0.2), slope=(0.2, 0.1)),
        "augmented": Moments(level=(0.4, 0.2), slope=(0.2, 0.1)),
    },
}


class World:
    """Relations with their levels and slopes, from which any number of data sets is drawn."""

    def __init__(
        self,
        name: str,
        per_subject: float = 1.5,
        popularity: np.ndarray | None = None,
        n_relations: int = N_RELATIONS,
    ) -> None:
        """`popularity` are monthly views that subjects are drawn from; log-normal ones if None."""
        draw = np.random.default_rng(1)
        closed_book = WORLDS[name]["closed_book"]
        augmented = WORLDS[name]["augmented"]
        self.name = name
        self.per_subject = per_subject
        self.popularity = popularity
        self.relation_shares = draw.dirichlet(np.full(n_relations, 2.0))
        self.closed_level = draw.normal(*closed_book.level, n_relations)
        self.closed_slope = draw.normal(*closed_book.slope, n_relations)
        self.augmented_level = draw.normal(*augmented.level, n_relations)
        self.augmented_slope = draw.normal(*augmented.slope, n_relations)

    def draw(self, n: int, seed: int) -> Pairs:
        draw = np.random.default_rng([seed, 7])
        n_subjects = math.ceil(n / self.per_subject)
        more = draw.integers(0, n_subjects, n - n_subjects)
        subjects = np.concatenate([np.arange(n_subjects), more])
        if self.popularity is None:
            views = 10 ** draw.normal(3.3, 0.9, n_subjects)
        else:
            views = draw.choice(self.popularity, n_subjects)
        popularity = np.ceil(views)[subjects]
        relations = draw.choice(len(self.relation_shares), n, p=self.relation_shares)
        ease = draw.normal(0, 0.7, n_subjects)[subjects]

        tenfolds = np.log10(np.maximum(popularity, 1)) - 3
        closed = self.closed_level[relations] + self.closed_slope[relations] * tenfolds
        closed += ease
        augmented = self.augmented_level[relations] + self.augmented_slope[relations] * tenfolds
        augmented += ease
        confidence = logistic((closed + draw.normal(0, 1, n)) / 2)  # too sure, and noisy
        luck_above = draw.random(n)
        luck_below = luck_above if self.name == "together" else draw.random(n)
        pairs = Pairs(
            ids=name_all("q{:06d}", range(n)),
            subjects=name_all("Q{}", subjects),
            relations=name_all("P{:02d}", relations),
            signal=popularity,
            confidence=confidence,
            right_above=luck_above < logistic(closed),
            right_below=luck_below < logistic(augmented),
        )
        order = np.lexsort((pairs.ids.astype(str), popularity, pairs.relations.astype(str)))
        return pairs.take(order)


def logistic(log_odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds))


def name_all(pattern: str, numbers: np.ndarray | range) -> np.ndarray:
    """The names of numbers, (n,) str as objects."""
    return np.array([pattern.format(number) for number in numbers], dtype=object)
