"""Accuracy by what a language model could have seen: documents with subject and answer, and when a fact began to hold.

Counts come from the stage `exposure`, dates from data/knowledge/wikidata/dates.parquet.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.evaluation.accuracy import Answers, by_groups
from pipelines.evaluation.popularity_bins import bins_between
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.evaluation.analyse import AnswersOf

BOUNDS = np.concatenate(
    [[1.0], 10.0 ** (np.arange(1, 30) / 2)]
)  # between bins: no document, 1 to 3, 4 to 9 and so on
CHANGED, BEFORE, UNDATED = "changed since", "dated before", "undated"
TABLES = {
    "accuracy_by_documents": (
        "dataset lm method text least:int most:int popularity:float questions:int "
        "substring:interval word:interval gain:interval"
    ),
    "accuracy_by_date": (
        "dataset lm method cutoff group questions:int substring:interval word:interval gain:interval"
    ),
}


def rows_of_answers(of: AnswersOf) -> dict[str, list[dict]]:
    """The tables by what the language model could have seen."""
    counts = {text: read_counts(file, of.answers.ids) for text, file in of.exposure.items()}
    rows = {"accuracy_by_documents": by_documents(of.answers, counts, *of.draw)}
    dates, cutoff = (
        of.data / "knowledge/wikidata/dates.parquet",
        of.params.exposure.cutoffs.get(of.lm),
    )
    if cutoff and dates.is_file():
        latest = latest_dates(of.questions, dates, of.answers.ids)
        rows["accuracy_by_date"] = by_date(of.answers, latest, cutoff, *of.draw)
    return rows


def read_counts(file: Path, ids: np.ndarray) -> np.ndarray:
    """The documents with the subject and an answer of each question, (n,), NaN where the stage `exposure` has none."""
    found = dict(database.ask("SELECT question_id, together FROM counted", counted=file).fetchall())
    return np.array([found.get(id_, np.nan) for id_ in ids.tolist()], float)


def by_documents(
    answers: Answers, together: Mapping[str, np.ndarray], seed: int, resamples: int
) -> list[dict]:
    """Accuracy and gain by the documents of each text that have the subject and an answer, in half powers of ten."""
    found = []
    for text, counts in together.items():
        bins = [
            (
                {"text": text, "least": int(counts[rows].min()), "most": int(counts[rows].max())},
                rows,
            )
            for _, _, rows in bins_between(counts, BOUNDS)
        ]
        found += by_bin(
            by_groups(answers, bins, seed, resamples, ["popularity", "gain"]), len(bins)
        )
    return found


def by_date(
    answers: Answers, latest: np.ndarray, cutoff: str, seed: int, resamples: int
) -> list[dict]:
    """Accuracy and gain on facts that surely changed after the month `cutoff`, on other dated ones, and on all others.

    `latest` are the last dates of the questions' facts, (questions,) str, "" for none.
    """
    month = np.array(
        [date[:7] for date in latest], str
    )  # a year alone, such as 2021, is not after 2021-10
    groups = {
        CHANGED: month > cutoff,
        BEFORE: (month != "") & (month <= cutoff),
        UNDATED: month == "",
    }
    bins = [
        ({"cutoff": cutoff, "group": name}, rows) for name, rows in groups.items() if rows.any()
    ]
    return by_bin(by_groups(answers, bins, seed, resamples, ["gain"]), len(bins))


def by_bin(rows: list[dict], n_bins: int) -> list[dict]:
    """Rows that come method by method, bin by bin instead."""
    return [row for number in range(n_bins) for row in rows[number::n_bins]]


def latest_dates(questions: Path, dates: Path, ids: np.ndarray) -> np.ndarray:
    """The last date that the facts behind each question have: start, end or point in time, "" for none."""
    found = database.ask(
        """SELECT question_id, coalesce(max(greatest("start", "end", point)), '') AS latest
        FROM questions JOIN dates ON regexp_extract(s_uri, 'Q(\\d+)$', 1) = s::VARCHAR AND relation = 'P' || p
        GROUP BY question_id""",
        questions=questions,
        dates=dates,
    ).fetchall()
    latest = dict(found)
    return np.array([latest.get(id_, "") for id_ in ids.tolist()], str)
