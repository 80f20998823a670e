"""Accuracy by popularity: deciles, bins of log popularity, and popularity relative to the relation
(PopQA, section 4).

The functions return rows as those of `accuracy` do. Neighbouring bins with fewer than `least`
questions are merged. Bins of one relation and of relative popularity are left out instead, as in
the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.evaluation.accuracy import Group, by_groups
from pipelines.evaluation.answer_sets import GAINS, Answers

LEAST = 40  # questions of a bin, where three such bins can be made
LEAST_OF_RELATION = 5  # questions of a bin of one relation
FEWEST = 10  # questions of a bin
DECILES = 10
HALF_DECADES = 10.0 ** (np.arange(1, 30) / 2)  # bounds between bins of popularity
# bounds between bins of relative popularity, in standard deviations
RELATIVE = np.arange(-1.5, 2.0, 0.5)
DIGITS = 12  # of a deviation, after the point
MEASURED = ("popularity", *GAINS)


@dataclass(frozen=True)
class Bin:
    """Neighbouring bins that are merged into one."""

    first: int  # the first of them, from 0
    last: int
    rows: np.ndarray  # the questions, (n,) bool


def by_decile(answers: Answers) -> list[dict]:
    """Accuracy by method and decile of popularity, and the gain over closed-book answers.

    These are Figures 5 to 7. Where deciles would be too small, there are fewer bins of equal size;
    `decile` is that in which a bin begins.
    """
    ranked = int(np.isfinite(answers.ranks).sum())
    count = ranked // least_of(ranked)
    count = max(1, min(DECILES, count))

    deciles = []
    for merged_bin in bins_between(answers.ranks, np.arange(1, count) / count):
        decile = DECILES * merged_bin.first // count + 1
        deciles.append(Group({"decile": decile}, merged_bin.rows))

    return by_groups(answers, deciles, MEASURED)


def by_log_popularity(answers: Answers) -> list[dict]:
    """Accuracy by method and half power of ten of popularity, and the gain over closed-book answers
    (Figure 1)."""
    return by_groups(answers, _half_decades(answers.popularity), MEASURED)


def by_relation(answers: Answers) -> list[dict]:
    """`by_log_popularity` of each relation's questions, with bins of its own (Figures 6, 20 and
    21)."""
    groups = []
    for relation, rows in answers.by_relation().items():
        popularity = np.where(rows, answers.popularity, np.nan)
        for group in _half_decades(popularity, LEAST_OF_RELATION, merge=False):
            groups.append(Group({"relation": relation} | group.key, group.rows))
    return by_groups(answers, groups, MEASURED)


def by_relative_popularity(answers: Answers) -> list[dict]:
    """Accuracy by method and log popularity, in standard deviations from the mean of the relation
    (Figure 8)."""
    logs = np.log10(np.maximum(answers.popularity, 1))
    relative = np.full(len(answers.ids), np.nan)
    for rows in answers.by_relation().values():
        finite = rows & np.isfinite(logs)
        deviation = logs[finite].std() if finite.any() else 0
        if deviation > 0:
            deviations = (logs[finite] - logs[finite].mean()) / deviation
            # of two questions, each is one deviation off, which floats may miss by a last digit
            relative[finite] = deviations.round(DIGITS)

    groups = []
    for merged_bin in bins_between(relative, RELATIVE, merge=False):
        mean = float(relative[merged_bin.rows].mean())
        key = {"bin": merged_bin.first + 1, "relative_popularity": mean}
        groups.append(Group(key, merged_bin.rows))

    return by_groups(answers, groups)


def bins_between(
    values: np.ndarray, edges: np.ndarray, least: int | None = None, merge: bool = True
) -> list[Bin]:
    """The bins between `edges` of the known values (n,); a value at an edge is in the upper bin.

    Bins with fewer than `least` values are merged with neighbours, or else left out.
    """
    places = np.digitize(values, edges)
    places[~np.isfinite(values)] = -1
    sizes = np.bincount(places[places >= 0], minlength=1)
    least = least or least_of(int(sizes.sum()))
    first = int(np.flatnonzero(sizes)[0]) if sizes.any() else 0
    sizes = sizes[first:].tolist()

    if merge:
        slices = merged(sizes, least)
    else:
        large_enough = np.flatnonzero(np.array(sizes) >= least).tolist()
        slices = [slice(i, i + 1) for i in large_enough]

    bins = []
    for part in slices:
        start = first + part.start
        stop = first + part.stop
        rows = (places >= start) & (places < stop)
        bins.append(Bin(start, stop - 1, rows))

    return bins


def merged(sizes: Sequence[int], least: int) -> list[slice]:
    """Neighbouring bins of these sizes, merged from the first on until each has `least` questions.

    The bins that remain at the end join the last; there are none if all together have fewer.
    """
    slices = []
    start = 0
    for end in range(1, len(sizes) + 1):
        if sum(sizes[start:end]) >= least:
            slices.append(slice(start, end))
            start = end
    if slices:
        slices[-1] = slice(slices[-1].start, len(sizes))
    return slices


def least_of(questions: int) -> int:
    """How many questions each bin has at least: LEAST, or a third of all, but at least FEWEST."""
    return max(FEWEST, min(LEAST, questions // 3))


def _half_decades(
    popularity: np.ndarray, least: int | None = None, merge: bool = True
) -> list[Group]:
    groups = []
    for merged_bin in bins_between(popularity, HALF_DECADES, least, merge):
        stop = merged_bin.last + 1
        least_views = 10 ** (merged_bin.first / 2)
        key = {"bin": merged_bin.first + 1, "least": least_views, "below": 10 ** (stop / 2)}
        groups.append(Group(key, merged_bin.rows))
    return groups
