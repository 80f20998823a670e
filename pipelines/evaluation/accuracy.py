"""Answers to a question set and how right they are, by method, relation and popularity (PopQA, sections 4 to 5).

The functions return rows of a table of `tables`, without the columns dataset and lm. All intervals are clustered by
subject, because answers about one subject are right or wrong together.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import numpy as np

from pipelines import draws, intervals
from pipelines.answering import answer_files
from pipelines.intervals import NOTHING, Interval
from pipelines.questions.guessable import Guesses

TAIL, HEAD = 0.60, 0.15  # shares of the questions, least and most popular
FEWEST = 10  # questions of a correlation
LEAST_POPULAR, OF_PUBLISHED = (
    4_000,
    14_267,
)  # the paper shows its 4,000 least popular of 14,267 questions
GAINS = {"gain": "correct", "gain_word": "correct_word"}  # column -> the rule that it is by
DIFFERENCES = GAINS | {"recall_gain": "doc_has_answer"}
GUESSED = ("named", "majority", "majority_word", "guessable")  # columns of Guesses
Group = tuple[dict, np.ndarray]  # the key of a group's rows, and its questions, (n,) bool


@dataclass(frozen=True)
class Method:
    """How one method answered each question: columns of its file, (n,) float, NaN where the file does not say."""

    correct: np.ndarray  # 1 or 0, never NaN: right by the published substring rule
    correct_word: np.ndarray  # 1 or 0: right by whole words
    doc_has_answer: np.ndarray  # 1 or 0: what was read holds an answer; NaN closed-book
    doc_is_subject: (
        np.ndarray
    )  # 1 or 0: the passage is from the subject's page; NaN if that page is not known
    doc_is_namesake: (
        np.ndarray
    )  # 1 or 0: the passage is from another page by the same name; NaN if that is not known
    lm_calls: np.ndarray  # prompts sent
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

    def take(self, rows: np.ndarray) -> Self:
        """The questions at these positions, or under this mask."""
        arrays = {
            f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "by_method"
        }
        methods = {
            m: Method(*(getattr(of, f.name)[rows] for f in fields(of)))
            for m, of in self.by_method.items()
        }
        return replace(self, **arrays, by_method=methods)

    @cached_property
    def _subject_numbers(self) -> np.ndarray:
        return np.unique(self.subjects.astype(str), return_inverse=True)[1]

    def share(self, values: np.ndarray, rows: np.ndarray) -> Interval:
        """The share of ones among the known `values` (n,) of the rows (n,) bool, clustered by subject."""
        known = rows & np.isfinite(values)
        return intervals.share(values[known] == 1, self._subject_numbers[known])

    def bootstraps(
        self, asked: Iterable[tuple[Any, Callable, Sequence[np.ndarray]]], seed: int, resamples: int
    ) -> dict[Any, Interval]:
        """`intervals.of_clusters` over subjects; all calls use the same resamples."""
        return intervals.of_clusters(
            asked, self._subject_numbers, draws.generator(seed, "popqa bootstrap"), resamples
        )

    def means(
        self, asked: dict[Any, tuple[np.ndarray, np.ndarray]], seed: int, resamples: int
    ) -> dict[Any, Interval]:
        """For each key the mean of its values (n,) over its rows (n,) bool; unknown values (NaN) are left out."""
        columns = (
            (key, intervals.ratio, mean_columns(values, rows))
            for key, (values, rows) in asked.items()
        )
        return {
            key: one.within(-1, 1) for key, one in self.bootstraps(columns, seed, resamples).items()
        }

    def correlations(
        self, right: np.ndarray, groups: dict[Any, np.ndarray], seed: int, resamples: int
    ) -> dict:
        """For each group of questions, (n,) bool, Pearson's correlation of being right with log10 popularity.

        A group has none if fewer than FEWEST questions have a known popularity, or if either is the same for all.
        """
        logs = np.log10(np.maximum(self.popularity, 1))
        asked = []
        for key, group in groups.items():
            known = group & np.isfinite(logs)
            if known.sum() >= FEWEST and np.ptp(logs[known]) > 0 and np.ptp(right[known]) > 0:
                # centred, which keeps sums of squares well conditioned
                x, y = (
                    np.where(known, values - values[known].mean(), 0.0) for values in (logs, right)
                )
                asked.append(
                    (key, intervals.pearson, [known.astype(float), x, y, x * x, y * y, x * y])
                )
        return {
            key: one.within(-1, 1) for key, one in self.bootstraps(asked, seed, resamples).items()
        }


def mean_columns(values: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Two columns, of which the ratio of sums is the mean of `values` over `rows`; unknown values are left out."""
    known = rows & np.isfinite(values)
    return [np.where(known, values, 0.0), known.astype(float)]


def read_answered(questions: Path, files: dict[str, Path]) -> Answers:
    """The question set with the answers of each method, a file each, as `answer_files.join` joins them."""
    asked, answers = answer_files.join(questions, files, {f.name: f.name for f in fields(Method)})
    return Answers(
        **asked, by_method={method: Method(**columns) for method, columns in answers.items()}
    )


def by_groups(
    answers: Answers,
    groups: Sequence[Group],
    seed: int,
    resamples: int,
    measured: Iterable[str] = (),
) -> list[dict]:
    """A row for each method and group, with the key of the group: how many questions, and accuracy by both rules.

    `measured` says what else a row has: the median `popularity`, the gains over closed-book answers (GAINS), and the
    `correlation` of being right with log popularity.
    """
    rows, known = [], np.isfinite(answers.popularity)
    medians = [
        float(np.median(answers.popularity[of & known])) if (of & known).any() else np.nan
        for _, of in groups
    ]
    for method, answered in answers.by_method.items():
        asked, found = {}, {("popularity", i): median for i, median in enumerate(medians)}
        if method != "closed_book" and "closed_book" in answers.by_method:
            gains = {
                name: gain(answers, method, rule)
                for name, rule in GAINS.items()
                if name in measured
            }
            asked = {
                (name, i): (change, of)
                for name, change in gains.items()
                for i, (_, of) in enumerate(groups)
            }
        found |= answers.means(asked, seed, resamples)
        if "correlation" in measured:
            of_groups = {("correlation", i): of for i, (_, of) in enumerate(groups)}
            found |= answers.correlations(answered.correct, of_groups, seed, resamples)
        rows += [
            {"method": method, "questions": int(of.sum())}
            | {
                "substring": answers.share(answered.correct, of),
                "word": answers.share(answered.correct_word, of),
            }
            | {name: found.get((name, i), NOTHING) for name in measured}
            | key
            for i, (key, of) in enumerate(groups)
        ]
    return rows


def accuracy(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method and rule, and its correlation with log popularity."""
    known = {"popularity_known": int(np.isfinite(answers.popularity).sum())}
    return by_groups(
        answers, [(known, np.ones(len(answers.ids), bool))], seed, resamples, ["correlation"]
    )


def by_group(answers: Answers, guesses: Guesses, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method of ambiguous, least popular and guessable questions, and others. An empty group has no row."""
    least = np.isin(np.arange(len(answers.ids)), least_popular(answers))
    groups = {
        "ambiguous": answers.ambiguous,
        "unambiguous": ~answers.ambiguous,
        "least popular": least,
    }
    groups |= {"names an answer": guesses.named == 1, "usual answer": guesses.majority_word == 1}
    groups |= {"guessable": guesses.guessable == 1, "not guessable": guesses.guessable == 0}
    return by_groups(
        answers, [({"group": name}, of) for name, of in groups.items() if of.any()], seed, resamples
    )


def guessable(answers: Answers, guesses: Guesses) -> list[dict]:
    """What can be guessed of all questions (relation "") and of each relation's, beside the accuracy without retrieval.

    The usual answer is that of most of the questions.
    """
    rows, closed = [], answers.by_method.get("closed_book")
    columns = {name: getattr(guesses, name) for name in GUESSED}
    columns |= (
        {"closed_book": closed.correct, "closed_book_word": closed.correct_word} if closed else {}
    )
    for relation, of in {"": np.ones(len(answers.ids), bool), **of_relations(answers)}.items():
        usual, counts = np.unique(guesses.usual[of].astype(str), return_counts=True)
        row = {"relation": relation, "usual": str(usual[counts.argmax()]) if relation else ""}
        row |= {"questions": int(of.sum()), "closed_book": NOTHING, "closed_book_word": NOTHING}
        rows.append(row | {name: answers.share(values, of) for name, values in columns.items()})
    return rows


def least_popular(answers: Answers, count: int | None = None) -> np.ndarray:
    """The positions of the `count` least popular questions, or of all with a known popularity if these are fewer.

    The default is LEAST_POPULAR, or the same share of fewer than OF_PUBLISHED questions. Ties go by question id.
    """
    known = int(np.isfinite(answers.popularity).sum())
    if count is None:
        count = min(LEAST_POPULAR, round(known * LEAST_POPULAR / OF_PUBLISHED))
    return np.argsort(answers.popularity, kind="stable")[
        : min(known, count)
    ]  # unknown popularity comes last


def by_relation(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy by method and relation, and its correlation with log popularity (Figures 4, 16 to 19)."""
    groups = [({"relation": relation}, of) for relation, of in of_relations(answers).items()]
    return by_groups(answers, groups, seed, resamples, ["correlation"])


def gain(answers: Answers, method: str, rule: str = "correct") -> np.ndarray:
    """Whether a method is right less whether the closed-book answer is, (n,) in {-1, 0, 1}, NaN where not known."""
    return getattr(answers.by_method[method], rule) - getattr(
        answers.by_method["closed_book"], rule
    )


def of_relations(answers: Answers) -> dict[str, np.ndarray]:
    """Relation -> its questions, (n,) bool."""
    return {
        str(relation): answers.relations == relation
        for relation in np.unique(answers.relations.astype(str))
    }


def comparisons(by_lm: dict[str, Answers], seed: int, resamples: int) -> list[dict]:
    """Each method less every earlier one of its language model, then less the same method of every earlier model.

    Language models are compared on the questions that both answered. A row has the differences in accuracy by both
    rules and in how often what was read holds an answer, the numbers of questions on which only one of the two is right
    (substring), and McNemar's test of these.
    """
    rows = []
    for place, (lm, answers) in enumerate(by_lm.items()):
        asked = [
            (
                lm,
                answers,
                answers,
                [(method, against) for against, method in combinations(answers.by_method, 2)],
            )
        ]
        for earlier, others in list(by_lm.items())[:place]:
            same = [(method, method) for method in others.by_method if method in answers.by_method]
            asked.append((earlier, *in_common([answers, others]), same))
        for against_lm, these, those, pairs in asked:
            key = {"lm": lm, "against_lm": against_lm}
            rows += [key | row for row in compared(these, those, pairs, seed, resamples)]
    return rows


def in_common(of_models: Sequence[Answers]) -> list[Answers]:
    """The answers of each language model to the questions that all of them answered, in the same order."""
    ids = reduce(np.intersect1d, [answers.ids.astype(str) for answers in of_models])
    return [answers.take(np.isin(answers.ids.astype(str), ids)) for answers in of_models]


def compared(
    these: Answers, those: Answers, pairs: Sequence[tuple[str, str]], seed: int, resamples: int
) -> list[dict]:
    """A row for each pair of a method of `these` answers and one of `those`; both are of the same questions."""
    assert (these.ids == those.ids).all()
    everyone, asked, rows = np.ones(len(these.ids), bool), {}, []
    for method, against in pairs:
        this, that = these.by_method[method], those.by_method[against]
        only_this, only_that = (
            int(((this.correct - that.correct) == sign).sum()) for sign in (1, -1)
        )
        p = intervals.mcnemar(only_this, only_that)
        row = {"method": method, "against": against, "questions": len(these.ids)}
        rows.append(row | {"only_this": only_this, "only_that": only_that, "p": p})
        for name, column in DIFFERENCES.items():
            asked[method, against, name] = getattr(this, column) - getattr(that, column), everyone
    found = these.means(asked, seed, resamples)
    return [
        row | {name: found[row["method"], row["against"], name] for name in DIFFERENCES}
        for row in rows
    ]
