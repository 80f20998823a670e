"""Intervals of what follows from fitted thresholds: the thresholds are fitted again to drawn
subjects.

Accuracies are those that thresholds fitted to a resample reach on it. Shares, and differences
between two sets of thresholds, are counted in a second way as well (`apart`): on each part of a
resample by thresholds fitted to the rest of it, as the splits do it. The first way varies too much
for a share and too little for a difference, the second the other way round, so the mean of both
deviations counts.

An interval is the figure plus and minus so many standard deviations over the resamples
(`intervals.reach`). Their own mean is not the figure's, because a resample has fewer distinct
subjects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from pipelines import draws, intervals
from pipelines.arrays import take_rows

MOST_RESAMPLES = 200  # a standard deviation needs no more
FEWEST_RESAMPLES = 40  # if there are so many questions that MOST_RESAMPLES take long
CELLS = 40_000_000  # questions x resamples from which there are fewer resamples
ROWS_AT_A_TIME = 65_536  # questions whose sums are taken: bounds memory
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Resamples:
    """How often each question is drawn, and into which part of its resample; both (n, resamples)
    int8.
    """

    times: np.ndarray
    parts: np.ndarray
    n_parts: int
    # (n,) int: the subject of each question, or the group of subjects that are drawn together
    clusters: np.ndarray

    def without(self, part: int) -> np.ndarray:
        """How often each question is drawn into the other parts, (n, resamples)."""
        return self.times * (self.parts != part)

    def take(self, rows: np.ndarray | slice) -> Resamples:
        """The resamples of the questions at these positions, or under this mask."""
        return take_rows(self, rows)


@dataclass(frozen=True)
class Policy:
    """Whether questions retrieve by fitted thresholds."""

    # (n,) share of the splits that hold a question out by which it retrieves, NaN if none does
    retrieved: np.ndarray
    fitted: np.ndarray  # (n, resamples) bool: by thresholds fitted to the resample
    counted: np.ndarray  # (n, resamples) bool: by thresholds fitted to the resample's other parts

    def take(self, rows: np.ndarray | slice) -> Policy:
        """The decisions on the questions at these positions, or under this mask."""
        return take_rows(self, rows)


@dataclass(frozen=True)
class Column:
    """A figure of each question: base + the sum over policies of slope x whether the question
    retrieves by it.
    """

    base: np.ndarray | float  # (n,), or the same for all
    slopes: Mapping[str, np.ndarray | float] = field(default_factory=dict)  # policy -> (n,)
    # also counted on each part of a resample, by thresholds fitted to the others
    apart: bool = False

    def take(self, rows: np.ndarray | slice, n: int) -> Column:
        """The column of some of the n questions, in arrays."""

        def array(values: np.ndarray | float) -> np.ndarray:
            return np.array(np.broadcast_to(values, n)[rows], float)

        slopes = {policy: array(slope) for policy, slope in self.slopes.items()}
        return Column(array(self.base), slopes, self.apart)


def resample(
    subjects: np.ndarray, units: np.ndarray, train_share: float, seed: int, resamples: int
) -> Resamples:
    """At most MOST_RESAMPLES resamples of subjects, fewer of very many questions, and the parts
    that they are cut into.

    `units` (n,) are what a part has whole: subjects, or questions. Parts are as large as the sides
    that splits hold out.
    """
    affordable = CELLS // max(len(subjects), 1)
    most = max(FEWEST_RESAMPLES, min(MOST_RESAMPLES, affordable))
    resamples = min(resamples, most)

    generator = draws.generator(seed, "threshold resamples")
    _, numbers = np.unique(subjects, return_inverse=True)
    clusters = intervals.units(numbers, generator)
    drawn = intervals.resampled(int(clusters.max()) + 1, generator, resamples)
    times_of_clusters = np.concatenate([*drawn]).astype(np.int8).T
    times = np.ascontiguousarray(times_of_clusters)[clusters]

    n_parts = max(2, round(1 / (1 - train_share)))
    distinct_units, numbers = np.unique(units, return_inverse=True)
    generator = draws.generator(seed, "parts of resamples")
    shape = (len(distinct_units), resamples)
    parts = generator.integers(0, n_parts, shape, dtype=np.int8)
    return Resamples(times, parts[numbers], n_parts, clusters)


def make_policy(
    retrieved: np.ndarray, drawn: Resamples, fitted: np.ndarray, without: Iterable[np.ndarray]
) -> Policy:
    """A policy by decisions (n, resamples) bool, `fitted` to whole resamples and to each `without`
    one of its parts.
    """
    counted = np.zeros(drawn.times.shape, dtype=bool)
    for part, decisions in enumerate(without):
        counted |= (drawn.parts == part) & decisions
    return Policy(retrieved, fitted, counted)


def sums(
    columns: Mapping[Key, Column], policies: Mapping[str, Policy], drawn: Resamples
) -> dict[Key, np.ndarray]:
    """The sum of each column over the questions of every resample, (1, resamples), or (2,
    resamples) if `apart`.

    The first row goes by thresholds fitted to whole resamples, the second by those fitted to the
    other parts.
    """
    n, resamples = drawn.times.shape
    summed = {}
    for key, column in columns.items():
        n_ways = 2 if column.apart else 1
        summed[key] = np.zeros((n_ways, resamples))

    for start in range(0, n, ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        times = drawn.times[rows].astype(float)
        fitted = {name: times * policy.fitted[rows] for name, policy in policies.items()}
        counted = {name: times * policy.counted[rows] for name, policy in policies.items()}

        for key, column in columns.items():
            block = column.take(rows, n)
            summed[key] += block.base @ times
            for name, slope in block.slopes.items():
                summed[key][0] += slope @ fitted[name]
                if column.apart:
                    summed[key][1] += slope @ counted[name]
    return summed


def values(column: Column, policies: Mapping[str, Policy]) -> np.ndarray:
    """A column's value of each question over the splits that hold it out, (n,), NaN if none
    does.
    """
    change: np.ndarray | float = 0
    for name, slope in column.slopes.items():
        change = change + slope * policies[name].retrieved
    return np.asarray(column.base + change)


def refitted_means(
    columns: Mapping[Key, Column], policies: Mapping[str, Policy], drawn: Resamples
) -> dict[Key, intervals.Interval]:
    """The mean of each column over the questions known in all columns, with intervals over subjects
    and thresholds.
    """
    values_of = {key: values(column, policies) for key, column in columns.items()}
    values_of_columns = np.stack([*values_of.values()])
    held_out = np.isfinite(values_of_columns).all(axis=0)
    if not held_out.any():
        return dict.fromkeys(columns, intervals.NOTHING)

    columns = {key: column.take(held_out, len(held_out)) for key, column in columns.items()}
    policies = {name: policy.take(held_out) for name, policy in policies.items()}
    drawn = drawn.take(held_out)
    questions = drawn.times.sum(axis=0, dtype=np.int64)
    clusters = len(np.unique(drawn.clusters))

    means = {}
    for key, summed in sums(columns, policies, drawn).items():
        value = float(values_of[key][held_out].mean())
        with np.errstate(invalid="ignore"):
            mean = around(value, summed / questions, clusters)
        means[key] = mean.within(*_bounds(columns[key]))
    return means


def _bounds(column: Column) -> tuple[float, float]:
    """The least and the largest mean that a column can have.

    A mean lies between the least and the largest value of a question, whichever questions are
    drawn. A share, or a difference between two sets of thresholds (`apart`), depends on the
    decisions alone: it lies between the means that the lowest and the highest decisions on these
    questions would give.
    """
    slopes = np.stack([*column.slopes.values()])
    lowest = column.base + np.minimum(slopes, 0.0).sum(axis=0)
    highest = column.base + np.maximum(slopes, 0.0).sum(axis=0)
    if column.apart:
        return lowest.mean(), highest.mean()
    return lowest.min(), highest.max()


def around(value: float, drawn: np.ndarray, clusters: int) -> intervals.Interval:
    """The interval of `value` by the standard deviation of what resamples of so many clusters give,
    (ways, resamples).

    Of several ways to fit thresholds to resamples it takes the mean deviation. One cluster or
    resample gives NOTHING.
    """
    drawn = drawn[:, np.isfinite(drawn).all(axis=0)]
    resamples = drawn.shape[1]
    if min(resamples, clusters) < 2 or not np.isfinite(value):
        return intervals.NOTHING
    deviation = float(drawn.std(axis=1, ddof=1).mean())
    half = intervals.reach(clusters) * deviation
    return intervals.Interval(value, value - half, value + half)
