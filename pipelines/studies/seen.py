"""Accuracy by what a language model could have seen: documents with subject and answer, and when a
fact began to hold.

Counts come from the stage `exposure`, dates from data/knowledge/wikidata/dates.parquet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.evaluation.accuracy import Group, by_groups
from pipelines.evaluation.answer_sets import Answers
from pipelines.evaluation.popularity_bins import bins_between
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.evaluation.analyse import AnswersOfLM, Tables

# between bins of documents: none, 1 to 3, 4 to 9 and so on, in half powers of ten
BOUNDS = np.concatenate([[1.0], 10.0 ** (np.arange(1, 30) / 2)])
CHANGED = "changed since"
BEFORE = "dated before"
UNDATED = "undated"
DATES = """SELECT question_id,
        coalesce(max(greatest("start", "end", point)), '') AS latest
    FROM questions JOIN dates
        ON regexp_extract(s_uri, 'Q(\\d+)$', 1) = s::VARCHAR AND relation = 'P' || p
    GROUP BY question_id"""
TABLES = {
    "accuracy_by_documents": (
        "dataset lm method text least:int most:int popularity:float questions:int "
        "substring:interval word:interval gain:interval"
    ),
    "accuracy_by_date": (
        "dataset lm method cutoff group questions:int "
        "substring:interval word:interval gain:interval"
    ),
}


def rows_of_answers(answered: AnswersOfLM) -> Tables:
    """The tables by what the language model could have seen."""
    answers = answered.answers
    counts = {}
    for text, file in answered.exposure.items():
        counts[text] = read_counts(file, answers.ids)
    rows = {"accuracy_by_documents": by_documents(answers, counts)}
    dates = answered.data / "knowledge/wikidata/dates.parquet"
    cutoff = answered.settings.exposure.cutoffs.get(answered.lm)
    if cutoff and dates.is_file():
        latest = latest_dates(answered.questions, dates, answers.ids)
        rows["accuracy_by_date"] = by_date(answers, latest, cutoff)
    return rows


def read_counts(file: Path, ids: np.ndarray) -> np.ndarray:
    """The documents with the subject and an answer of each question, (n,), NaN where the stage
    `exposure` has none."""
    rows = database.ask("SELECT question_id, together FROM counted", counted=file).fetchall()
    counts = dict(rows)
    counts_of_questions = [counts.get(question_id) for question_id in ids.tolist()]
    return np.array(counts_of_questions, float)


def by_documents(answers: Answers, together: Mapping[str, np.ndarray]) -> list[dict]:
    """Accuracy and gain by the documents of each text that have the subject and an answer, in half
    powers of ten."""
    rows = []
    for text, counts in together.items():
        groups = []
        for documents in bins_between(counts, BOUNDS):
            counts_of_bin = counts[documents.rows]
            least = int(counts_of_bin.min())
            most = int(counts_of_bin.max())
            key = {"text": text, "least": least, "most": most}
            groups.append(Group(key, documents.rows))
        rows += _by_group_then_method(answers, groups, ["popularity", "gain"])

    return rows


def by_date(answers: Answers, latest: np.ndarray, cutoff: str) -> list[dict]:
    """Accuracy and gain on facts that surely changed after the month `cutoff`, on other dated ones,
    and on all others.

    `latest` are the last dates of the questions' facts, (questions,) str, "" for none.
    """
    # a year alone, such as 2021, is not after 2021-10
    month = np.array([date[:7] for date in latest], str)
    is_dated = month != ""
    masks = {
        CHANGED: month > cutoff,
        BEFORE: is_dated & (month <= cutoff),
        UNDATED: ~is_dated,
    }
    groups = []
    for name, mask in masks.items():
        if mask.any():
            groups.append(Group({"cutoff": cutoff, "group": name}, mask))

    return _by_group_then_method(answers, groups, ["gain"])


def _by_group_then_method(
    answers: Answers, groups: Sequence[Group], measured: list[str]
) -> list[dict]:
    """The rows of `by_groups`, which come method by method, group by group instead."""
    rows_by_method = by_groups(answers, groups, measured)
    rows = []
    for number in range(len(groups)):
        rows += rows_by_method[number :: len(groups)]
    return rows


def latest_dates(questions: Path, dates: Path, ids: np.ndarray) -> np.ndarray:
    """The last date that the facts behind each question have: start, end or point in time, "" for
    none."""
    rows = database.ask(DATES, questions=questions, dates=dates).fetchall()
    latest = dict(rows)
    latest_of_questions = [latest.get(question_id, "") for question_id in ids.tolist()]
    return np.array(latest_of_questions, str)
