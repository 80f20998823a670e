"""Answers to a question set and how right they are, by method, relation and popularity (PopQA, sections 4 to 5).

The public functions return rows (dicts) of a table of `tables`, without the columns dataset and lm. Figures are
`Interval`s: Wilson's for shares, and bootstraps over subjects for differences and correlations, because the questions
of one subject are correlated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import draws, intervals
from pipelines.answering import answer_files
from pipelines.intervals import NOTHING, Interval

TAIL, HEAD = 0.60, 0.15  # shares of the questions, least and most popular
FEWEST = 10  # questions of a correlation
LEAST_POPULAR, OF_PUBLISHED = 4_000, 14_267  # the paper shows its 4,000 least popular of 14,267 questions
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
    """How one method answered each question; arrays (n,), NaN where an imported file does not say."""

    correct: np.ndarray  # 1 or 0, never NaN: right by the published substring rule
    word: np.ndarray  # 1 or 0: right by whole words
    has_answer: np.ndarray  # 1 or 0: what was read holds an answer; NaN closed-book
    is_subject: np.ndarray  # 1 or 0: the passage is from the subject's page; NaN if that page is not known
    is_namesake: np.ndarray  # 1 or 0: the passage is from another page by the same name; NaN if that is not known
    calls: np.ndarray  # prompts sent
    prompt_tokens: np.ndarray  # of all prompts
    new_tokens: np.ndarray
    cost: np.ndarray  # money


@dataclass(frozen=True)
class Answers:
    """One language model's answers to one question set by every method it has; arrays (n,), ordered by question id."""

    ids: np.ndarray
    relations: np.ndarray
    subjects: np.ndarray
    popularity: np.ndarray  # float, NaN where not known
    ambiguous: np.ndarray  # bool: the question set has the same text about another subject as well
    by_method: dict[str, Method]

    @cached_property
    def ranks(self) -> np.ndarray:
        """Each question's rank by popularity in [0, 1), NaN where not known; equal popularities have equal ranks."""
        known = np.isfinite(self.popularity)
        ranks = np.full(len(self.popularity), np.nan)
        if known.any():
            values, counts = np.unique(self.popularity[known], return_counts=True)
            middle = (np.cumsum(counts) - counts / 2) / known.sum()
            ranks[known] = middle[np.searchsorted(values, self.popularity[known])]
        return ranks

    def take(self, rows: np.ndarray) -> Answers:
        """The questions at these positions, or under this mask."""
        arrays = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "by_method"}
        taken = {
            method: Method(**{f.name: getattr(answered, f.name)[rows] for f in fields(Method)})
            for method, answered in self.by_method.items()
        }
        return replace(self, **arrays, by_method=taken)

    @cached_property
    def _subject_numbers(self) -> np.ndarray:
        return np.unique(self.subjects.astype(str), return_inverse=True)[1]

    def bootstraps(
        self, asked: Iterable[tuple[Any, Callable, Sequence[np.ndarray]]], seed: int, resamples: int
    ) -> dict[Any, Interval]:
        """For each (key, function, columns) the function of the columns' sums, all over the same resamples of subjects.

        The columns are (n,) each. They are summed as they come, so those of one key are in memory at a time.
        """
        generator = draws.generator(seed, "popqa bootstrap")
        drawn_together = intervals.units(self._subject_numbers, generator)
        sums, statistics = [], {}
        for key, function, columns in asked:
            statistics[key] = partial(intervals.of_columns, function, slice(len(sums), len(sums) + len(columns)))
            sums += [np.bincount(drawn_together, weights=column) for column in columns]
        if not statistics:
            return {}
        found = intervals.bootstraps(np.stack(sums, axis=1), [*statistics.values()], generator, resamples)
        return dict(zip(statistics, found, strict=True))

    def means(self, asked: dict[Any, tuple[np.ndarray, np.ndarray]], seed: int, resamples: int) -> dict[Any, Interval]:
        """For each key the mean of its values (n,) over its rows (n,) bool; unknown values (NaN) are left out."""
        columns = ((key, intervals.ratio, mean_columns(values, rows)) for key, (values, rows) in asked.items())
        return self.bootstraps(columns, seed, resamples)


def mean_columns(values: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Two columns, of which the ratio of sums is the mean of `values` over `rows`; unknown values are left out."""
    known = rows & np.isfinite(values)
    return [np.where(known, values, 0.0), known.astype(float)]


def read_answered(questions: Path, files: dict[str, Path], split: str = "all") -> Answers:
    """The question set with the answers of each method, a file each, as `answer_files.join` joins them."""
    joined = answer_files.join(questions, files, _COLUMNS, split)
    methods = {method: Method(**columns) for method, columns in joined.answers.items()}
    columns = joined.ids, joined.relations, joined.subjects, joined.popularity, joined.ambiguous
    return Answers(*columns, by_method=methods)


def accuracy(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method and rule, and its correlation with log popularity."""
    everyone = np.ones(len(answers.ids), bool)
    known = int(np.isfinite(answers.popularity).sum())
    return [
        {"method": method, **both(answered, everyone), "popularity_known": known}
        | {"correlation": correlations(answers, method, {"": everyone}, seed, resamples)[""]}
        for method, answered in answers.by_method.items()
    ]


def by_group(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method of ambiguous and other questions, and of the least popular. An empty group has no row."""
    groups = {
        "ambiguous": answers.ambiguous,
        "unambiguous": ~answers.ambiguous,
        "least popular": np.isin(np.arange(len(answers.ids)), least_popular(answers)),
    }
    return [
        {"method": method, "group": name, **both(answered, of)}
        for method, answered in answers.by_method.items()
        for name, of in groups.items()
        if of.any()
    ]


def least_popular(answers: Answers, count: int | None = None) -> np.ndarray:
    """The positions of the `count` least popular questions, or of all with a known popularity if these are fewer.

    The default is LEAST_POPULAR, or the same share of fewer than OF_PUBLISHED questions. Ties go by question id.
    """
    known = int(np.isfinite(answers.popularity).sum())
    share_of_known = round(known * LEAST_POPULAR / OF_PUBLISHED)
    count = min(known, LEAST_POPULAR, share_of_known) if count is None else min(known, count)
    return np.argsort(answers.popularity, kind="stable")[:count]  # unknown popularity comes last


def by_relation(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method and relation, and its correlation with log popularity (Figures 4, 16 to 19)."""
    groups = of_relations(answers)
    rows = []
    for method, answered in answers.by_method.items():
        found = correlations(answers, method, groups, seed, resamples)
        rows += [
            {"method": method, "relation": relation, **both(answered, group), "correlation": found[relation]}
            for relation, group in groups.items()
        ]
    return rows


def correlations(
    answers: Answers, method: str, groups: dict[str, np.ndarray], seed: int, resamples: int
) -> dict[str, Interval]:
    """Pearson's correlation of being right with log10 popularity in each group of questions, (n,) bool each.

    NOTHING if fewer than FEWEST questions have a known popularity, or if either is the same for all.
    """
    logs, right = np.log10(np.maximum(answers.popularity, 1)), answers.by_method[method].correct

    def asked() -> Iterator[tuple[str, Callable, list[np.ndarray]]]:
        for name, group in groups.items():
            known = group & np.isfinite(logs)
            if can_correlate(known, logs, right):
                yield name, intervals.pearson, pearson_columns(known, logs, right)

    return dict.fromkeys(groups, NOTHING) | answers.bootstraps(asked(), seed, resamples)


def can_correlate(rows: np.ndarray, *columns: np.ndarray) -> bool:
    """Whether some rows, (n,) bool, are FEWEST at least, and differ in each column."""
    return bool(rows.sum() >= FEWEST and all(np.ptp(column[rows]) > 0 for column in columns))


def pearson_columns(rows: np.ndarray, these: np.ndarray, those: np.ndarray) -> list[np.ndarray]:
    """The columns that `intervals.pearson` needs, centred: keeps sums of squares well conditioned."""
    x, y = (np.where(rows, values - values[rows].mean(), 0.0) for values in (these, those))
    return [rows.astype(float), x, y, x * x, y * y, x * y]


def gain(answers: Answers, method: str, rule: str = "correct") -> np.ndarray:
    """Whether a method is right less whether the closed-book answer is, (n,) in {-1, 0, 1}, NaN where not known."""
    return getattr(answers.by_method[method], rule) - getattr(answers.by_method["closed_book"], rule)


def share(values: np.ndarray, rows: np.ndarray) -> Interval:
    """The share of ones among the known `values` of some rows, with Wilson's interval."""
    of_rows = values[rows]
    return intervals.share(of_rows[np.isfinite(of_rows)] == 1)


def both(method: Method, rows: np.ndarray) -> dict:
    """How many rows there are, and a method's accuracy over them by both rules."""
    return {"questions": int(rows.sum()), "substring": share(method.correct, rows), "word": share(method.word, rows)}


def grouped(
    answers: Answers, method: str, groups: Sequence[np.ndarray], seed: int, resamples: int, rules: dict[str, str]
) -> list[dict]:
    """Accuracy of a method in each group, (n,) bool, and its gain over closed-book answers by `rules`: name -> rule."""
    gains: dict[tuple[str, int], Interval] = {}
    if method != "closed_book" and "closed_book" in answers.by_method:
        changes = {name: gain(answers, method, rule) for name, rule in rules.items()}
        asked = {(name, i): (change, rows) for name, change in changes.items() for i, rows in enumerate(groups)}
        gains = answers.means(asked, seed, resamples)
    return [
        both(answers.by_method[method], rows) | {name: gains.get((name, i), NOTHING) for name in rules}
        for i, rows in enumerate(groups)
    ]


def of_relations(answers: Answers) -> dict[str, np.ndarray]:
    """Relation -> its questions, (n,) bool."""
    return {str(relation): answers.relations == relation for relation in np.unique(answers.relations.astype(str))}
