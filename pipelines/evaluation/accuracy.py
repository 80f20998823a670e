"""Answers to a question set and how right they are, by method, relation and popularity (PopQA, sections 4 to 5).

Every function gives rows (dicts) of a table of `tables`, without the columns dataset and lm, each figure as an
`Interval`. Shares have Wilson's interval; those of differences and correlations are bootstraps over subjects, because
the questions of one subject are correlated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import draws, intervals
from pipelines.answering import answer_files
from pipelines.intervals import NOTHING, Interval

TAIL, HEAD = 0.60, 0.15  # shares of the questions, least and most popular
DECILES, FIFTHS = 10, 5
RELATIVE = np.arange(-1.5, 2.0, 0.5)  # bounds between bins of relative popularity, in standard deviations
_COLUMNS = {
    "correct": "correct",
    "word": "correct_word",
    "has_answer": "doc_has_answer",
    "is_subject": "doc_is_subject",
    "is_namesake": "doc_is_namesake",
    "calls": "lm_calls",
    "prompt_tokens": "prompt_tokens",
    "new_tokens": "new_tokens",
    "cost": "cost",
}


@dataclass(frozen=True)
class Method:
    """What one method's answers came to; arrays (n,), NaN where a file from elsewhere does not say."""

    correct: np.ndarray  # 1 or 0, never NaN: by the published substring rule
    word: np.ndarray  # 1 or 0: by whole words
    has_answer: np.ndarray  # 1 or 0: what was read holds an answer; NaN closed-book
    is_subject: np.ndarray  # 1 or 0: the passage is from the subject's own page; NaN where that page is not known
    is_namesake: np.ndarray  # 1 or 0: from another page by the same name; NaN likewise
    calls: np.ndarray  # prompts sent
    prompt_tokens: np.ndarray  # over all of them
    new_tokens: np.ndarray
    cost: np.ndarray  # money


@dataclass(frozen=True)
class Answers:
    """One language model's answers to one question set by every method it has; arrays (n,), ordered by question id."""

    ids: np.ndarray
    relations: np.ndarray
    subjects: np.ndarray
    popularity: np.ndarray  # float, NaN where not known
    of: dict[str, Method]

    @cached_property
    def ranks(self) -> np.ndarray:
        """Each question's place by popularity in [0, 1), equal popularities at equal places; NaN where not known."""
        known = np.isfinite(self.popularity)
        ranks = np.full(len(self.popularity), np.nan)
        if known.any():
            values, counts = np.unique(self.popularity[known], return_counts=True)
            middle = (np.cumsum(counts) - counts / 2) / known.sum()
            ranks[known] = middle[np.searchsorted(values, self.popularity[known])]
        return ranks

    @cached_property
    def _subject_numbers(self) -> np.ndarray:
        return np.unique(self.subjects.astype(str), return_inverse=True)[1]

    def bootstraps(
        self, asked: dict[Any, tuple[Callable, Sequence[np.ndarray]]], seed: int, resamples: int
    ) -> dict[Any, Interval]:
        """For each key a function of the sums of its columns (n,), all over the same resamples of subjects."""
        if not asked:
            return {}
        columns = [column for _, own in asked.values() for column in own]
        ends = np.cumsum([len(own) for _, own in asked.values()])
        statistics = [
            partial(_of_columns, function, int(end) - len(own), int(end))
            for (function, own), end in zip(asked.values(), ends, strict=True)
        ]
        sums = intervals.cluster_sums(np.stack(columns, axis=1), self._subject_numbers)
        generator = draws.generator(seed, "popqa bootstrap")
        found = intervals.bootstraps(sums, statistics, generator, resamples)
        return dict(zip(asked, found, strict=True))

    def means(self, asked: dict[Any, tuple[np.ndarray, np.ndarray]], seed: int, resamples: int) -> dict[Any, Interval]:
        """For each key the mean of its values (n,) over its rows (n,) bool; values not known (NaN) are left out."""
        columns = {key: mean_columns(*own) for key, own in asked.items()}
        return self.bootstraps({key: (intervals.ratio, own) for key, own in columns.items()}, seed, resamples)


def _of_columns(function: Callable, start: int, end: int, sums: np.ndarray) -> np.ndarray:
    return function(sums[:, start:end])


def mean_columns(values: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """The two columns whose sums' ratio is the mean of `values` over `rows`, those not known left out."""
    known = rows & np.isfinite(values)
    return [np.where(known, values, 0.0), known.astype(float)]


def read(questions: Path, files: dict[str, Path]) -> Answers:
    """The question set with the answers of each method, a file each. Raises LongtailError as `answer_files.join`."""
    joined = answer_files.join(questions, files, _COLUMNS)
    methods = {method: Method(**columns) for method, columns in joined.answers.items()}
    return Answers(joined.ids, joined.relations, joined.subjects, joined.popularity, methods)


def accuracy(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method and rule, and its correlation with log popularity."""
    everyone = np.ones(len(answers.ids), bool)
    known = int(np.isfinite(answers.popularity).sum())
    return [
        {"method": method, **both(own, everyone), "popularity_known": known}
        | {"correlation": correlations(answers, method, {"": everyone}, seed, resamples)[""]}
        for method, own in answers.of.items()
    ]


def by_relation(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method and relation, and its correlation with log popularity (Figures 4, 16 to 19)."""
    groups = _relations(answers)
    rows = []
    for method, own in answers.of.items():
        found = correlations(answers, method, groups, seed, resamples)
        rows += [
            {"method": method, "relation": relation, **both(own, group), "correlation": found[relation]}
            for relation, group in groups.items()
        ]
    return rows


def by_popularity(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method and decile of popularity, and what it is above the closed-book one (Figures 5 to 7)."""
    bins, rows = dict(_quantiles(answers, DECILES)), []
    for method, own in answers.of.items():
        gains = _gains(answers, method, bins, seed, resamples)
        rows += [
            {"method": method, "decile": decile, "popularity": float(np.median(answers.popularity[group]))}
            | both(own, group)
            | {"gain": gains[decile]}
            for decile, group in bins.items()
        ]
    return rows


def _gains(
    answers: Answers, method: str, groups: dict[Any, np.ndarray], seed: int, resamples: int
) -> dict[Any, Interval]:
    """What a method's accuracy is above the closed-book one in each group; NOTHING without closed-book answers."""
    if method == "closed_book" or "closed_book" not in answers.of:
        return dict.fromkeys(groups, NOTHING)
    change = gain(answers, method)
    return answers.means({key: (change, group) for key, group in groups.items()}, seed, resamples)


def by_relation_and_popularity(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """`by_popularity` by relation and fifth of popularity; the fifths are those of all relations together (Figure 20).

    `least` and `most` are a fifth's own bounds; relations without a question in it have no row.
    """
    fifths = dict(_quantiles(answers, FIFTHS))
    bounds = {
        fifth: {"least": answers.popularity[own].min(), "most": answers.popularity[own].max()}
        for fifth, own in fifths.items()
    }
    cells = {
        (relation, fifth): own & of_relation
        for relation, of_relation in _relations(answers).items()
        for fifth, own in fifths.items()
        if (own & of_relation).any()
    }
    rows = []
    for method, own in answers.of.items():
        gains = _gains(answers, method, cells, seed, resamples)
        rows += [
            {"method": method, "relation": relation, "fifth": fifth, **bounds[fifth], **both(own, cell)}
            | {"gain": gains[relation, fifth]}
            for (relation, fifth), cell in cells.items()
        ]
    return rows


def by_relative_popularity(answers: Answers) -> list[dict]:
    """Accuracy by method and relative popularity (Figure 8).

    A question's relative popularity is its log popularity, less the mean of its relation, over that one's standard
    deviation; in bins of half a deviation, the outer two open.
    """
    relative = np.full(len(answers.ids), np.nan)
    logs = np.log10(np.maximum(answers.popularity, 1))
    for own in _relations(answers).values():
        known = own & np.isfinite(logs)
        if known.any() and (deviation := logs[known].std()) > 0:
            relative[known] = (logs[known] - logs[known].mean()) / deviation
    places = np.where(np.isfinite(relative), np.digitize(relative, RELATIVE) + 1, 0)
    return [
        {"method": method, "bin": int(place), "relative_popularity": float(relative[places == place].mean())}
        | both(answers.of[method], places == place)
        for method in answers.of
        for place in np.unique(places[places > 0])
    ]


def correlations(
    answers: Answers, method: str, groups: dict[str, np.ndarray], seed: int, resamples: int
) -> dict[str, Interval]:
    """Pearson's correlation of being right with log10 popularity in each group of questions, (n,) bool each.

    NOTHING where fewer than 10 have a known popularity, or either is the same for all.
    """
    logs, right = np.log10(np.maximum(answers.popularity, 1)), answers.of[method].correct
    asked = {}
    for name, group in groups.items():
        own = group & np.isfinite(logs)
        if own.sum() >= 10 and np.ptp(logs[own]) > 0 and np.ptp(right[own]) > 0:
            x = np.where(own, logs - logs[own].mean(), 0.0)  # centred: keeps the sums of squares well conditioned
            y = np.where(own, right - right[own].mean(), 0.0)
            asked[name] = intervals.pearson, [own.astype(float), x, y, x * x, y * y, x * y]
    return dict.fromkeys(groups, NOTHING) | answers.bootstraps(asked, seed, resamples)


def gain(answers: Answers, method: str, rule: str = "correct") -> np.ndarray:
    """A method's less the closed-book correctness of each question, (n,) in {-1, 0, 1}, NaN where not known."""
    return getattr(answers.of[method], rule) - getattr(answers.of["closed_book"], rule)


def share(values: np.ndarray, rows: np.ndarray) -> Interval:
    """The share of ones among the known `values` of some rows, with Wilson's interval."""
    own = values[rows]
    return intervals.share(own[np.isfinite(own)] == 1)


def both(of: Method, rows: np.ndarray) -> dict:
    """How many rows there are, and the accuracy over them by both rules."""
    return {"questions": int(rows.sum()), "substring": share(of.correct, rows), "word": share(of.word, rows)}


def _relations(answers: Answers) -> dict[str, np.ndarray]:
    """Relation -> its questions, (n,) bool."""
    return {str(relation): answers.relations == relation for relation in np.unique(answers.relations.astype(str))}


def _quantiles(answers: Answers, parts: int) -> Iterator[tuple[int, np.ndarray]]:
    """Of each of so many equal parts by popularity that has questions: its number from 1, and which, (n,) bool."""
    for part in range(parts):
        own = (answers.ranks >= part / parts) & (answers.ranks < (part + 1) / parts)
        if own.any():
            yield part + 1, own
