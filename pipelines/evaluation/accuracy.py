"""Tables of how often answers are right, by method, relation and popularity (PopQA, sections 4, 5).

The functions return rows of a table of `tables`, without the columns dataset and lm.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.evaluation.answer_metrics import ANSWER_METRICS, SHARES
from pipelines.evaluation.answer_sets import GAINS, Answers
from pipelines.intervals import NOTHING, Interval
from pipelines.questions.guessable import Guesses
from pipelines.storage import parquet

TAIL = 0.60  # share of the questions: the least popular ones
HEAD = 0.15  # share of the questions: the most popular ones
LEAST_POPULAR = 4_000  # the paper shows so many of its least popular questions,
OF_PUBLISHED = 14_267  # of so many
GUESSED = ("named", "majority", "majority_word", "guessable")  # columns of Guesses


@dataclass(frozen=True)
class Group:
    """Questions that are measured together."""

    key: dict[str, Any]  # columns of the group's rows
    rows: np.ndarray  # (n,) bool


def by_groups(
    answers: Answers,
    groups: Sequence[Group],
    measured: Collection[str] = (),
) -> list[dict]:
    """A row for each method and group: how many questions, and accuracy by both rules.

    `measured` says what else a row has: the median `popularity`, the gains over closed-book answers
    (GAINS), the `correlation` of being right with log popularity, and what other systems report
    (ANSWER_METRICS).
    """
    medians = [_median(answers.popularity[group.rows]) for group in groups]
    numbered = dict(enumerate(groups))
    rows = []
    for method, method_answers in answers.by_method.items():
        gains = {}
        if method != "closed_book" and "closed_book" in answers.by_method:
            for name in GAINS.keys() & set(measured):
                change = answers.gain(method, GAINS[name])
                for i, group in numbered.items():
                    gains[name, i] = (change, group.rows)
        figures = answers.means(gains)
        if "correlation" in measured:
            masks = {("correlation", i): group.rows for i, group in numbered.items()}
            figures |= answers.correlations(method_answers.correct, masks)
        if "f1" in measured:
            figures |= _metrics(answers, method, numbered)

        for i, group in numbered.items():
            row = {
                "method": method,
                "questions": int(group.rows.sum()),
                "substring": answers.share(method_answers.correct, group.rows),
                "word": answers.share(method_answers.correct_word, group.rows),
            }
            for name in measured:
                row[name] = figures.get((name, i), NOTHING)
            if "popularity" in measured:
                row["popularity"] = medians[i]
            rows.append(row | group.key)

    return rows


def _metrics(
    answers: Answers, method: str, groups: Mapping[int, Group]
) -> dict[tuple[str, int], Interval]:
    """The ANSWER_METRICS of a method's answers, by name and number of a group."""
    method_answers = answers.by_method[method]
    f1 = {("f1", i): (method_answers.f1, group.rows) for i, group in groups.items()}
    figures = {key: mean.within(0, 1) for key, mean in answers.means(f1).items()}
    for name in SHARES:
        values = getattr(method_answers, name)
        for i, group in groups.items():
            figures[name, i] = answers.share(values, group.rows)
    return figures


def _median(popularity: np.ndarray) -> float:
    finite = popularity[np.isfinite(popularity)]
    return float(np.median(finite)) if len(finite) else np.nan


def accuracy(answers: Answers) -> list[dict]:
    """Accuracy by method and rule, its correlation with log popularity, and ANSWER_METRICS."""
    with_popularity = int(np.isfinite(answers.popularity).sum())
    everyone = Group({"popularity_known": with_popularity}, answers.everyone)
    return by_groups(answers, [everyone], ["correlation", *ANSWER_METRICS])


def by_group(
    answers: Answers, guesses: Guesses | None, categories: Mapping[str, np.ndarray]
) -> list[dict]:
    """Accuracy by method of ambiguous, least popular and guessable questions, of others, and of the
    question set's own categories, (n,) bool each.

    An empty group has no row.
    """
    is_least_popular = np.zeros(len(answers.ids), bool)
    is_least_popular[least_popular(answers)] = True
    masks = {
        "ambiguous": answers.ambiguous,
        "unambiguous": ~answers.ambiguous,
        "least popular": is_least_popular,
    }
    if guesses is not None:
        masks["names an answer"] = guesses.named == 1
        masks["usual answer"] = guesses.majority_word == 1
        masks["guessable"] = guesses.guessable == 1
        masks["not guessable"] = guesses.guessable == 0
    groups = []
    for name, rows in {**masks, **categories}.items():
        if rows.any():
            groups.append(Group({"group": name}, rows))
    return by_groups(answers, groups)


def read_categories(questions: Path, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Category of a question set's questions -> which of `ids` have it, (n,) bool."""
    if "category" not in parquet.schema_of(questions).names:
        return {}
    columns = parquet.read_parquet(questions, ["question_id", "category"]).to_pydict()
    category_of = dict(zip(columns["question_id"], columns["category"], strict=True))
    categories = np.array([category_of[question_id] for question_id in ids], object)
    names = sorted(set(category_of.values()) - {None})
    return {name: categories == name for name in names}


def guessable(answers: Answers, guesses: Guesses) -> list[dict]:
    """What can be guessed of all questions (relation "") and of each relation's.

    The accuracy without retrieval stands beside it. The usual answer is that of most of the
    questions.
    """
    columns = {name: getattr(guesses, name) for name in GUESSED}
    closed_book = answers.by_method.get("closed_book")
    if closed_book:
        columns["closed_book"] = closed_book.correct
        columns["closed_book_word"] = closed_book.correct_word

    rows = []
    for relation, mask in {"": answers.everyone, **answers.by_relation()}.items():
        row = {
            "relation": relation,
            "usual": _most_frequent(guesses.usual[mask]) if relation else "",
            "questions": int(mask.sum()),
            "closed_book": NOTHING,
            "closed_book_word": NOTHING,
        }
        for name, values in columns.items():
            row[name] = answers.share(values, mask)
        rows.append(row)

    return rows


def _most_frequent(texts: np.ndarray) -> str:
    """The text that occurs most often; of equally frequent ones the first in their order."""
    distinct, counts = np.unique(texts.astype(str), return_counts=True)
    return str(distinct[counts.argmax()])


def least_popular(answers: Answers) -> np.ndarray:
    """The positions of the LEAST_POPULAR least popular questions, or of the same share of fewer
    than OF_PUBLISHED questions; ties by question id.
    """
    with_popularity = int(np.isfinite(answers.popularity).sum())
    count = min(LEAST_POPULAR, round(with_popularity * LEAST_POPULAR / OF_PUBLISHED))
    by_popularity = np.argsort(answers.popularity, kind="stable")  # NaN comes last
    return by_popularity[:count]


def by_relation(answers: Answers) -> list[dict]:
    """Accuracy by method and relation, and its correlation with log popularity.

    These are Figures 4 and 16 to 19.
    """
    groups = []
    for relation, rows in answers.by_relation().items():
        groups.append(Group({"relation": relation}, rows))
    return by_groups(answers, groups, ["correlation"])
