"""One language model's answers to a question set, and how right they are (PopQA, section 4).

All intervals are clustered by subject, because answers about one subject are right or wrong
together.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from pipelines import draws, intervals
from pipelines.answering import answer_files
from pipelines.arrays import take_rows
from pipelines.evaluation import answer_metrics
from pipelines.intervals import Interval, Statistic
from pipelines.language.language import ENGLISH, Language

FEWEST = 10  # questions that a correlation needs
GAINS = {"gain": "correct", "gain_word": "correct_word"}  # column of a table -> its rule


@dataclass(frozen=True)
class MethodAnswers:
    """How one method answered each question: columns of its file and what its texts tell, (n,)
    float.

    A value is NaN where the file does not say it. Questions without an answer are left out.
    """

    correct: np.ndarray  # 1 or 0, never NaN: right by the rule of the question set
    correct_word: np.ndarray  # 1 or 0: right by whole words
    doc_has_answer: np.ndarray  # 1 or 0: the passage holds an answer; NaN closed-book
    doc_is_subject: np.ndarray  # 1 or 0: the passage is from the subject's page
    doc_is_namesake: np.ndarray  # 1 or 0: the passage is from another page by the same name
    lm_calls: np.ndarray  # prompts sent
    prompt_tokens: np.ndarray  # of all prompts
    new_tokens: np.ndarray
    cost: np.ndarray  # money
    exact: np.ndarray  # 1 or 0, as are the next but one: of answer_metrics.ANSWER_METRICS
    f1: np.ndarray  # between 0 and 1
    abstained: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """All tokens that are read and written, (n,)."""
        return self.prompt_tokens + self.new_tokens

    def take(self, rows: np.ndarray) -> Self:
        """The answers at these positions, or under this mask."""
        return take_rows(self, rows)


@dataclass(frozen=True)
class Answers:
    """One language model's answers to a question set by every method it has.

    Arrays are (n,), ordered by question id.
    """

    ids: np.ndarray
    relations: np.ndarray
    subjects: np.ndarray
    popularity: np.ndarray  # float, NaN where it is not known
    ambiguous: np.ndarray  # bool: the question set has the same text about another subject as well
    by_method: dict[str, MethodAnswers]
    seed: int  # of all bootstraps
    resamples: int

    @property
    def everyone(self) -> np.ndarray:
        """The mask of all questions, (n,) bool."""
        return np.ones(len(self.ids), bool)

    @cached_property
    def ranks(self) -> np.ndarray:
        """Each question's rank by popularity in [0, 1), NaN where popularity is not known.

        Equal popularities have equal ranks.
        """
        finite = np.isfinite(self.popularity)
        ranks = np.full(len(self.popularity), np.nan)
        if finite.any():
            known = self.popularity[finite]
            values, counts = np.unique(known, return_counts=True)
            middle = (np.cumsum(counts) - counts / 2) / len(known)
            ranks[finite] = middle[np.searchsorted(values, known)]
        return ranks

    def by_relation(self) -> dict[str, np.ndarray]:
        """Relation -> its questions, (n,) bool."""
        masks = {}
        for relation in np.unique(self.relations.astype(str)):
            masks[str(relation)] = self.relations == relation
        return masks

    def take(self, rows: np.ndarray) -> Self:
        """The questions at these positions, or under this mask."""
        by_method = {}
        for method, answers in self.by_method.items():
            by_method[method] = answers.take(rows)
        return replace(take_rows(self, rows), by_method=by_method)

    def gain(self, method: str, rule: str = "correct") -> np.ndarray:
        """Whether a method is right less whether the closed-book answer is, (n,) in {-1, 0, 1}.

        The gain is NaN where either is not known.
        """
        closed_book = getattr(self.by_method["closed_book"], rule)
        return getattr(self.by_method[method], rule) - closed_book

    @cached_property
    def _subject_numbers(self) -> np.ndarray:
        return np.unique(self.subjects.astype(str), return_inverse=True)[1]

    def share(self, values: np.ndarray, rows: np.ndarray) -> Interval:
        """The share of ones among the known `values` (n,) of the rows (n,) bool."""
        finite = rows & np.isfinite(values)
        is_one = values[finite] == 1
        return intervals.share(is_one, self._subject_numbers[finite])

    def bootstraps(
        self,
        statistics: Iterable[tuple[Hashable, Statistic, Sequence[np.ndarray]]],
    ) -> dict[Hashable, Interval]:
        """`intervals.of_clusters` over subjects; all calls use the same resamples."""
        generator = draws.generator(self.seed, "popqa bootstrap")
        return intervals.of_clusters(statistics, self._subject_numbers, generator, self.resamples)

    def means(
        self, columns: Mapping[Hashable, tuple[np.ndarray, np.ndarray]]
    ) -> dict[Hashable, Interval]:
        """For each key the mean of its values (n,) over its rows (n,) bool.

        Values that are not known (NaN) are left out.
        """
        statistics = []
        for key, (values, rows) in columns.items():
            statistics.append((key, intervals.ratio, mean_columns(values, rows)))
        means = self.bootstraps(statistics)
        return {key: mean.within(-1, 1) for key, mean in means.items()}

    def correlations(
        self, right: np.ndarray, groups: Mapping[Hashable, np.ndarray]
    ) -> dict[Hashable, Interval]:
        """For each group, (n,) bool, Pearson's correlation of being right with log10 popularity.

        A group that `_correlation_columns` has no columns of has no correlation.
        """
        logs = np.log10(np.maximum(self.popularity, 1))
        statistics = []
        for key, group in groups.items():
            columns = _correlation_columns(logs, right, group)
            if columns:
                statistics.append((key, intervals.pearson, columns))

        correlations = self.bootstraps(statistics)
        return {key: correlation.within(-1, 1) for key, correlation in correlations.items()}


def read_answered(
    questions: Path,
    files: Mapping[str, Path],
    seed: int,
    resamples: int,
    language: Language = ENGLISH,
) -> Answers:
    """The question set with the answers of each method, a file each, joined by question id.

    Raises LongtailError as `answer_files.join` does.
    """
    expressions = {"prediction": "prediction"}
    for field in fields(MethodAnswers):
        if field.name not in answer_metrics.ANSWER_METRICS:
            expressions[field.name] = f"CAST({field.name} AS DOUBLE)"
    columns, columns_by_method = answer_files.join(questions, files, expressions)
    golds = answer_files.read_golds(questions, columns["ids"])

    by_method = {}
    for method, known in columns_by_method.items():
        predictions = known.pop("prediction")
        metrics = answer_metrics.measure(predictions, golds, known["correct"], language)
        by_method[method] = MethodAnswers(**known, **metrics)
    return Answers(**columns, by_method=by_method, seed=seed, resamples=resamples)


def mean_columns(values: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Two columns, of which the ratio of sums is the mean of `values` over `rows`.

    Values that are not known (NaN) are left out.
    """
    finite = rows & np.isfinite(values)
    return [np.where(finite, values, 0.0), finite.astype(float)]


def _correlation_columns(
    values: np.ndarray, right: np.ndarray, rows: np.ndarray
) -> list[np.ndarray]:
    """Columns for `intervals.pearson`, which correlates being right with `values` over `rows`.

    There are none if fewer than FEWEST of the values are known, or if either is the same for all.
    """
    finite = rows & np.isfinite(values)
    known_values = values[finite]
    known_right = right[finite]
    if len(known_values) < FEWEST:
        return []
    if np.ptp(known_values) == 0 or np.ptp(known_right) == 0:
        return []

    # centred, so that sums of squares keep their digits
    x = np.where(finite, values - known_values.mean(), 0.0)
    y = np.where(finite, right - known_right.mean(), 0.0)
    return [finite.astype(float), x, y, x * x, y * y, x * y]
