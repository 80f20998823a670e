"""Intervals of what follows from fitted thresholds: the thresholds are fitted again to subjects drawn with replacement.

Accuracies are those that thresholds fitted to a resample reach on it. Shares, and differences between two sets of
thresholds, are counted in a second way as well (`apart`): on each part of a resample by thresholds fitted to the rest
of it, as the splits do it. The first way varies too much for a share and too little for a difference, the second the
other way round, so the mean of both deviations counts.

An interval is the figure plus and minus so many standard deviations over the resamples (`intervals.reach`). Their own
mean is not the figure's, because a resample has fewer distinct subjects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np

from pipelines import draws, intervals

REFITS = 200  # resamples at most: a standard deviation needs no more
FEWEST = 40  # resamples at least, if there are so many questions that REFITS take long
CELLS = 40_000_000  # questions x resamples from which there are fewer
Key = TypeVar("Key", bound=Hashable)
ROWS = 65_536  # questions at a time: bounds memory


class Resamples(NamedTuple):
    """How often each question is drawn, and into which part of its resample; both (n, resamples) int8."""

    times: np.ndarray
    parts: np.ndarray
    n_parts: int
    clusters: (
        np.ndarray
    )  # (n,) int: the subject of each question, or the group of subjects that are drawn together

    @property
    def n(self) -> int:
        """The number of resamples."""
        return self.times.shape[1]

    def without(self, part: int) -> np.ndarray:
        """How often each question is drawn into the other parts, (n, resamples)."""
        return self.times * (self.parts != part)

    def take(self, rows: np.ndarray | slice) -> Resamples:
        return Resamples(self.times[rows], self.parts[rows], self.n_parts, self.clusters[rows])


class Policy(NamedTuple):
    """Whether questions retrieve by fitted thresholds."""

    retrieved: (
        np.ndarray
    )  # (n,) share of the splits that hold a question out by which it retrieves, NaN if none does
    fitted: np.ndarray  # (n, resamples) bool: by thresholds fitted to the resample
    counted: (
        np.ndarray
    )  # (n, resamples) bool: by thresholds fitted to the other parts of the resample

    def take(self, rows: np.ndarray | slice) -> Policy:
        return Policy(*(of[rows] for of in self))


class Column(NamedTuple):
    """A figure of each question: base + the sum over policies of slope x whether the question retrieves by it."""

    base: np.ndarray | float  # (n,), or the same for all
    slopes: Mapping[str, np.ndarray | float] = MappingProxyType({})  # policy -> (n,)
    apart: bool = (
        False  # counted as well on each part of a resample by thresholds fitted to the others
    )

    def take(self, rows: np.ndarray | slice, n: int) -> Column:
        """The same of some of the n questions, in arrays."""
        base, *slopes = (
            np.array(np.broadcast_to(of, n)[rows], float)
            for of in (self.base, *self.slopes.values())
        )
        return Column(base, dict(zip(self.slopes, slopes, strict=True)), self.apart)


def resample(
    subjects: np.ndarray, units: np.ndarray, train_share: float, seed: int, resamples: int
) -> Resamples:
    """At most REFITS resamples of subjects, fewer of very many questions, and the parts that they are cut into.

    `units` (n,) are what a part has whole: subjects, or questions. Parts are as large as the sides that splits hold
    out.
    """
    resamples = min(resamples, max(FEWEST, min(REFITS, CELLS // max(len(subjects), 1))))
    generator = draws.generator(seed, "threshold resamples")
    clusters = intervals.units(np.unique(subjects, return_inverse=True)[1], generator)
    drawn = intervals.resampled(int(clusters.max()) + 1, generator, resamples)
    times = np.ascontiguousarray(np.concatenate([*drawn]).astype(np.int8).T)[clusters]
    n_parts = max(2, round(1 / (1 - train_share)))
    numbers = np.unique(units, return_inverse=True)[1]
    generator = draws.generator(seed, "parts of resamples")
    parts = generator.integers(0, n_parts, (int(numbers.max()) + 1, resamples), dtype=np.int8)
    return Resamples(times, parts[numbers], n_parts, clusters)


def make_policy(
    retrieved: np.ndarray, drawn: Resamples, fitted: np.ndarray, without: Iterable[np.ndarray]
) -> Policy:
    """A policy by decisions (n, resamples) bool, `fitted` to whole resamples and to each `without` one of its parts."""
    counted = np.zeros(drawn.times.shape, dtype=bool)
    for part, decisions in enumerate(without):
        counted |= (drawn.parts == part) & decisions
    return Policy(retrieved, fitted, counted)


def sums(
    columns: Mapping[Key, Column], policies: Mapping[str, Policy], drawn: Resamples
) -> dict[Key, np.ndarray]:
    """The sum of each column over the questions of every resample, (1, resamples), or (2, resamples) if `apart`.

    The first row goes by thresholds fitted to whole resamples, the second by those fitted to the other parts.
    """
    n, resamples = drawn.times.shape
    summed = {key: np.zeros((1 + column.apart, resamples)) for key, column in columns.items()}
    for start in range(0, n, ROWS):
        rows = slice(start, start + ROWS)
        times = drawn.times[rows].astype(float)
        retrieves = {
            of: (times * policy.fitted[rows], times * policy.counted[rows])
            for of, policy in policies.items()
        }
        for key, column in columns.items():
            of_rows = column.take(rows, n)
            summed[key] += of_rows.base @ times
            for name, slope in of_rows.slopes.items():
                for row, retrieving in zip(summed[key], retrieves[name], strict=False):
                    row += slope @ retrieving
    return summed


def values(column: Column, policies: Mapping[str, Policy]) -> np.ndarray:
    """A column's value of each question over the splits that hold it out, (n,), NaN if none does."""
    return column.base + sum(
        slope * policies[name].retrieved for name, slope in column.slopes.items()
    )


def refitted_means(
    columns: Mapping[Key, Column], policies: Mapping[str, Policy], drawn: Resamples
) -> dict[Key, intervals.Interval]:
    """The mean of each column over the questions known in all columns, with intervals over subjects and thresholds."""
    of_questions = {key: values(column, policies) for key, column in columns.items()}
    held = np.isfinite(np.stack([*of_questions.values()])).all(axis=0)
    if not held.any():
        return dict.fromkeys(columns, intervals.NOTHING)
    drawn, policies = (
        drawn.take(held),
        {name: policy.take(held) for name, policy in policies.items()},
    )
    taken = {key: column.take(held, len(held)) for key, column in columns.items()}
    questions, many = drawn.times.sum(axis=0, dtype=np.int64), len(np.unique(drawn.clusters))
    made = {}
    for key, summed in sums(taken, policies, drawn).items():
        with np.errstate(invalid="ignore"):
            mean = around(float(of_questions[key][held].mean()), summed / questions, many)
        base, slopes = taken[key].base, taken[key].slopes.values()
        least, most = (
            base + sum(end(slope, 0.0) for slope in slopes) for end in (np.minimum, np.maximum)
        )
        # A mean lies between the values that it is of, one that is `apart` between those of nothing and everything.
        bounds = (least.mean(), most.mean()) if taken[key].apart else (least.min(), most.max())
        made[key] = mean.within(*bounds)
    return made


def around(value: float, drawn: np.ndarray, clusters: int) -> intervals.Interval:
    """The interval of `value` by the standard deviation of what resamples of so many clusters give, (ways, resamples).

    Of several ways to fit thresholds to resamples it takes the mean deviation. One cluster or resample gives NOTHING.
    """
    drawn = drawn[:, np.isfinite(drawn).all(axis=0)]
    if min(drawn.shape[1], clusters) < 2 or not np.isfinite(value):
        return intervals.NOTHING
    half = intervals.reach(clusters) * float(drawn.std(axis=1, ddof=1).mean())
    return intervals.Interval(value, value - half, value + half)
