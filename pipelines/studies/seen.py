"""Accuracy by what a language model could have seen: documents with subject and answer, and when a fact began to hold.

Counts come from the stage `exposure`, dates from data/knowledge/wikidata/dates.parquet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.evaluation.accuracy import Answers, by_groups
from pipelines.evaluation.popularity_bins import bins_between
from pipelines.intervals import Interval
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.evaluation.analyse import AnswersOf

BOUNDS = np.concatenate(
    [[1.0], 10.0 ** (np.arange(1, 30) / 2)]
)  # between bins: no document, 1 to 3, 4 to 9 and so on
CHANGED, BEFORE, UNDATED = "changed since", "dated before", "undated"
_BOTH = {"questions": int, "substring": Interval, "word": Interval, "gain": Interval}
_OF_METHOD = {"dataset": str, "lm": str, "method": str}
TABLES = {
    "accuracy_by_documents": _OF_METHOD
    | {"text": str, "least": int, "most": int, "popularity": float}
    | _BOTH,
    "accuracy_by_date": _OF_METHOD | {"cutoff": str, "group": str} | _BOTH,
}


def of_answers(of: AnswersOf) -> dict[str, list[dict]]:
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


def report_entries() -> list:
    """What the model could have seen, and facts that changed since."""
    from pipelines.pages.figures import lines
    from pipelines.pages.values import Percent, alone, label
    from pipelines.report.entries import Drawn, Entry, Shown, every, of_main, of_one_passage

    def by_documents_of_each(inputs):
        for row in of_one_passage(of_main("accuracy_by_documents"))(inputs):
            both = " to ".join(dict.fromkeys((f"{row['least']:,}", f"{row['most']:,}")))
            yield row | {
                "of": f"{label(row['dataset'])}, {label(row['text'])}",
                "documents with both": both,
            }

    def says(inputs, rule):
        rows = [row for row in by_documents_of_each(inputs) if row["method"] == "closed_book"]
        rows = [row for row in rows if row["of"] == rows[0]["of"]]
        if len(rows) < 2:
            return ""
        few, many = rows[0], rows[-1]
        return (
            f"Where many documents of {label(many['text'])} name both subject and answer, {inputs.main} is right on "
            f"{alone(Percent(many[rule]))} % from memory; where {'few do' if few['most'] else 'none does'}, on "
            f"{alone(Percent(few[rule]))} %."
        )

    exposure = Entry(
        "exposure",
        "What the model could have seen",
        [
            Drawn(
                lines, "accuracy-by-documents", lambda inputs: [*by_documents_of_each(inputs)],
                lambda row: math.sqrt((1 + row["least"]) * (1 + row["most"])), "substring",
                "accuracy by the documents that have subject and answer. Bands are 95 % intervals.",
                {"x": "1 + documents with the subject and an answer (log scale)", "log_x": True, "y": "accuracy, %"},
                series="method", each="of", least=3,
            ),
            "A document counts if it has a name of the question's subject and an acceptable answer, as whole words, "
            "exactly as written. The counts say most where the text is what the model was trained on.",
            Shown(
                "accuracy-by-documents", lambda inputs: [*by_documents_of_each(inputs)],
                ["text", "documents with both", "dataset", "questions", "popularity", "method", "substring", "word",
                 "gain"],
                "Accuracy in per cent, and what a method gains over closed-book answers in points (substring), by the "
                "documents of a text that have the subject and an answer. Page views are the bin's median.",
            ),
        ],
        says,
        after="effect",
    )  # fmt: skip
    dates = Shown(
        "accuracy-by-date",
        every("accuracy_by_date"),
        ["group", "dataset", "lm", "cutoff", "questions", "method", "substring", "word", "gain"],
        "Accuracy in per cent, and the gain over closed-book answers in points (substring), of facts that surely "
        "changed after a model's text ended (exposure.cutoffs), by Wikidata's start time, end time or point in time, "
        "of other dated facts, and of those without a date, which may have changed too.",
        {"group": "facts", "cutoff": "text until"},
    )
    return [exposure, Entry("dates", "Facts that changed since", [dates], after="effect")]
