"""How well measures of popularity, links and mentions predict which questions a model answers from memory.

Each measure is a number of a question's subject, or of its subject and answer: page views of the month, which
thresholds go by, and the measures that might do better. As PopQA does with page views (its section 4), `compare`
correlates the logarithm of each, of 1 + it, with being right closed-book, on the same questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from pipelines import intervals
from pipelines.evaluation.accuracy import FEWEST, Answers
from pipelines.intervals import NOTHING
from pipelines.questions.subject_articles import view_subjects
from pipelines.storage import database, parquet

if TYPE_CHECKING:
    from pipelines.evaluation.analyse import AnswersOf

VIEWS = "views"
WORDS = {
    VIEWS: "page views of the month",
    "mean_views": "mean of the months' page views",
    "term_frequency": "term frequency in C4",
    "links": "incoming links",
    "subject": "documents with the subject",
    "answer": "documents with the answer",
    "together": "documents with both",
}
COUNTED = ("links", "subject", "answer", "together")  # columns of data/exposure
LEAST_KNOWN = 0.5  # share of the questions that a measure must be known of to be compared

Measure = tuple[str, str]  # its name, and the text that it is counted in or ""
TABLES = {
    "popularity_measures": (
        "dataset lm measure text known:int questions:int correlation:interval over_views:interval"
    )
}


def rows_of_answers(of: AnswersOf) -> dict[str, list[dict]]:
    """The table of measures."""
    return {"popularity_measures": compare_measures(of.answers, read_measures(of), *of.draw)}


def read_measures(of: AnswersOf) -> dict[Measure, np.ndarray]:
    """Measure -> its value of each question, (questions,) float, NaN where not known; only measures that a run has."""
    found: dict[Measure, np.ndarray] = {(VIEWS, ""): of.answers.popularity}
    knowledge = of.data / "knowledge"
    columns = {  # measure -> file, column, what joins it to the subject
        ("mean_views", ""): (knowledge / "popularity/views.parquet", "mean", "title"),
        ("term_frequency", ""): (
            knowledge / "term_frequency/term_frequency.parquet",
            "term_frequency",
            "qid",
        ),
    }
    columns |= {
        (name, text): (file, name, "question_id")
        for text, file in of.exposure.items()
        for name in COUNTED
    }
    for measure, (file, column, key) in columns.items():
        if file.is_file() and column in parquet.schema_of(file).names:
            with database.connect(1.0, 1) as db:
                database.view(db, "measured", file, columns=[key, column])
                view_subjects(db, "asked", of.questions, knowledge / "wikidata/entities.parquet")
                query = f"SELECT question_id, {column} FROM asked JOIN measured USING ({key})"
                values = dict(db.execute(query).fetchall())
            numbers = np.array(
                [values.get(id_) for id_ in of.answers.ids.tolist()], float
            )  # None becomes NaN
            if np.isfinite(numbers).any():
                found[measure] = numbers
    return found


def compare_measures(
    answers: Answers, measures: Mapping[Measure, np.ndarray], seed: int, resamples: int
) -> list[dict]:
    """A row for each measure: its correlation with being right closed-book, and that less that of page views.

    All are judged on the questions of which all are known, over the same resamples of subjects. Measures that are known
    of fewer than LEAST_KNOWN of the questions have no figures, nor has one that is the same for all.
    """
    if "closed_book" not in answers.by_method:
        return []
    logs = {measure: np.log10(1 + values) for measure, values in measures.items()}
    known = {measure: int(np.isfinite(values).sum()) for measure, values in logs.items()}
    compared = [
        measure for measure, n in known.items() if n >= max(FEWEST, LEAST_KNOWN * len(answers.ids))
    ]
    rows = np.ones(len(answers.ids), bool)
    for measure in compared:
        rows &= np.isfinite(logs[measure])
    answers = answers.take(rows)
    right, views = answers.by_method["closed_book"].correct, (VIEWS, "")
    sums = {}
    for measure in compared if len(right) >= FEWEST and np.ptp(right) > 0 else ():
        if np.ptp(values := logs[measure][rows]) > 0:
            x, y = (
                values - values.mean(),
                right - right.mean(),
            )  # centred, so that sums of squares keep their digits
            sums[measure] = [np.ones(len(x)), x, y, x * x, y * y, x * y]

    def asked() -> Iterator[tuple]:
        for measure, columns in sums.items():
            yield (measure, "correlation"), intervals.pearson, columns
            if measure != views and views in sums:
                yield (measure, "over_views"), _less, [*columns, *sums[views]]

    found = answers.bootstraps(asked(), seed, resamples)
    return [
        {"measure": measure[0], "text": measure[1], "known": n, "questions": len(right)}
        | {name: found.get((measure, name), NOTHING) for name in ("correlation", "over_views")}
        for measure, n in known.items()
    ]


def _less(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 12) sums: one correlation less another."""
    return intervals.pearson(sums[:, :6]) - intervals.pearson(sums[:, 6:])
