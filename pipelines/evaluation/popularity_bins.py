"""Accuracy by popularity: deciles, bins of log popularity, and popularity relative to the relation (PopQA, section 4).

The functions return rows as those of `accuracy` do. Neighbouring bins with fewer than `least` questions are put
together. Where `merge` is false, they are left out, as the paper does.
"""

from collections.abc import Sequence

import numpy as np

from pipelines.evaluation.accuracy import GAINS, Answers, Group, by_groups, of_relations

LEAST = 40  # questions of a bin, where three such bins can be made
LEAST_OF_RELATION = 5  # questions of a bin of one relation, unless bins are merged
FEWEST = 10  # questions of a bin
DECILES = 10
HALF_DECADES = 10.0 ** (np.arange(1, 30) / 2)  # bounds between bins of popularity
MEASURED = ("popularity", *GAINS)
RELATIVE = np.arange(
    -1.5, 2.0, 0.5
)  # bounds between bins of relative popularity, in standard deviations

Bin = tuple[
    int, int, np.ndarray
]  # the first and last of the bins put together, from 0, and the questions, (n,) bool


def least_of(questions: int) -> int:
    """How many questions each bin has at least: LEAST, or a third of all, but not fewer than FEWEST."""
    return max(FEWEST, min(LEAST, questions // 3))


def by_decile(answers: Answers, seed: int, resamples: int, least: int | None = None) -> list[dict]:
    """Accuracy by method and decile of popularity, and the gain over closed-book answers (Figures 5 to 7).

    Where deciles would be too small, there are fewer bins of equal size; `decile` is that in which a bin begins.
    """
    known = int(np.isfinite(answers.ranks).sum())
    count = max(1, min(DECILES, known // (least or least_of(known))))
    bins = bins_between(answers.ranks, np.arange(1, count) / count, least)
    deciles = [({"decile": DECILES * first // count + 1}, rows) for first, _, rows in bins]
    return by_groups(answers, deciles, seed, resamples, MEASURED)


def by_log_popularity(
    answers: Answers, seed: int, resamples: int, least: int | None = None
) -> list[dict]:
    """Accuracy by method and half power of ten of popularity, and the gain over closed-book answers (Figure 1)."""
    return by_groups(answers, _half_decades(answers.popularity, least), seed, resamples, MEASURED)


def by_relation(answers: Answers, seed: int, resamples: int, merge: bool = False) -> list[dict]:
    """`by_log_popularity` of each relation's questions, with bins of its own (Figures 6, 20 and 21)."""
    least, bins = LEAST if merge else LEAST_OF_RELATION, []
    for relation, rows in of_relations(answers).items():
        bins += _half_decades(
            np.where(rows, answers.popularity, np.nan), least, merge, relation=relation
        )
    return by_groups(answers, bins, seed, resamples, MEASURED)


def by_relative_popularity(
    answers: Answers, seed: int, resamples: int, merge: bool = False, least: int | None = None
) -> list[dict]:
    """Accuracy by method and log popularity, in standard deviations from the mean of the relation (Figure 8)."""
    relative, logs = np.full(len(answers.ids), np.nan), np.log10(np.maximum(answers.popularity, 1))
    for of_relation in of_relations(answers).values():
        known = of_relation & np.isfinite(logs)
        if known.any() and (deviation := logs[known].std()) > 0:
            relative[known] = (logs[known] - logs[known].mean()) / deviation
    bins = [
        ({"bin": first + 1, "relative_popularity": float(relative[rows].mean())}, rows)
        for first, _, rows in bins_between(relative, RELATIVE, least, merge)
    ]
    return by_groups(answers, bins, seed, resamples)


def merged(sizes: Sequence[int], least: int) -> list[slice]:
    """Neighbouring bins of these sizes, put together from the first on until each has `least` questions.

    What remains at the end joins the last; there are none if all together have fewer.
    """
    slices, start = [], 0
    for end in range(1, len(sizes) + 1):
        if sum(sizes[start:end]) >= least:
            slices.append(slice(start, end))
            start = end
    return [*slices[:-1], slice(slices[-1].start, len(sizes))] if slices else []


def bins_between(
    values: np.ndarray, edges: np.ndarray, least: int | None = None, merge: bool = True
) -> list[Bin]:
    """The bins between `edges` of the known values (n,); a value at an edge is in the upper bin.

    Bins with fewer than `least` values are merged with neighbours, or else left out.
    """
    places = np.where(np.isfinite(values), np.digitize(values, edges), -1)
    sizes = np.bincount(places[places >= 0], minlength=1)
    first = int(np.flatnonzero(sizes)[0]) if sizes.any() else 0
    least = least or least_of(int(sizes.sum()))
    enough = [slice(i, i + 1) for i, size in enumerate(sizes[first:].tolist()) if size >= least]
    kept = [
        (first + s.start, first + s.stop)
        for s in (merged(sizes[first:].tolist(), least) if merge else enough)
    ]
    return [(start, stop - 1, (places >= start) & (places < stop)) for start, stop in kept]


def _half_decades(
    popularity: np.ndarray, least: int | None, merge: bool = True, **key: str
) -> list[Group]:
    return [
        (
            key | {"bin": first + 1, "least": 10 ** (first / 2), "below": 10 ** ((last + 1) / 2)},
            rows,
        )
        for first, last, rows in bins_between(popularity, HALF_DECADES, least, merge)
    ]
