"""How well measures of popularity, links and mentions predict which questions a model answers from
memory.

Each measure is a number of a question's subject, or of its subject and answer: page views of the
month, which thresholds go by, and the measures that might do better. As PopQA does with page views
(its section 4), `compare_measures` correlates log10(1 + measure) with whether the closed-book
answer is right, for all measures on the same questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines import intervals
from pipelines.evaluation.answer_sets import FEWEST, Answers, correlation_columns
from pipelines.intervals import NOTHING
from pipelines.questions.subject_articles import view_subjects
from pipelines.storage import database, parquet

if TYPE_CHECKING:
    from pipelines.evaluation.analyse import AnswersOfLM, Tables

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
BY_VIEWS = (VIEWS, "")
FIGURES = ("correlation", "over_views")

Measure = tuple[str, str]  # its name, and the text that it is counted in or ""
TABLES = {
    "popularity_measures": (
        "dataset lm measure text known:int questions:int correlation:interval over_views:interval"
    )
}


def rows_of_answers(answered: AnswersOfLM) -> Tables:
    """The table of measures."""
    rows = compare_measures(answered.answers, read_measures(answered))
    return {"popularity_measures": rows}


def read_measures(answered: AnswersOfLM) -> dict[Measure, np.ndarray]:
    """Measure -> its value of each question, (questions,) float, NaN where it is not known.

    Only measures that a run has are there.
    """
    knowledge = answered.data / "knowledge"
    views = knowledge / "popularity/views.parquet"
    mentions = knowledge / "term_frequency/term_frequency.parquet"
    columns = {  # measure -> file, column, what joins it to the subject
        ("mean_views", ""): (views, "mean", "title"),
        ("term_frequency", ""): (mentions, "term_frequency", "qid"),
    }
    for text, file in answered.exposure.items():
        for name in COUNTED:
            columns[name, text] = (file, name, "question_id")

    measures: dict[Measure, np.ndarray] = {BY_VIEWS: answered.answers.popularity}
    for measure, (file, column, key) in columns.items():
        if file.is_file() and column in parquet.schema_of(file).names:
            values = _read_column(answered, file, column, key)
            if np.isfinite(values).any():
                measures[measure] = values

    return measures


def _read_column(answered: AnswersOfLM, file: Path, column: str, key: str) -> np.ndarray:
    """A file's column for each question, joined to its subject by `key`; NaN where there is
    none."""
    entities = answered.data / "knowledge/wikidata/entities.parquet"
    with database.connect(1.0, 1) as db:
        database.view(db, "measured", file)
        view_subjects(db, "asked", answered.questions, entities)
        query = f"SELECT question_id, {column} FROM asked JOIN measured USING ({key})"
        values = dict(db.execute(query).fetchall())
    ids = answered.answers.ids.tolist()
    return np.array([values.get(question_id) for question_id in ids], float)


def compare_measures(answers: Answers, measures: Mapping[Measure, np.ndarray]) -> list[dict]:
    """A row for each measure: its correlation with being right closed-book, and that less the
    correlation of page views.

    All are judged on the questions of which all are known, over the same resamples of subjects.
    Measures that are known of fewer than LEAST_KNOWN of the questions have no figures, nor has one
    that is the same for all.
    """
    if "closed_book" not in answers.by_method:
        return []
    enough = max(FEWEST, LEAST_KNOWN * len(answers.ids))
    counts = {}  # measure -> of how many questions it is known
    logs = {}  # of those that are known of enough
    complete = answers.everyone
    for measure, values in measures.items():
        is_known = np.isfinite(values)
        counts[measure] = int(is_known.sum())
        if counts[measure] >= enough:
            logs[measure] = np.log10(1 + values)
            complete &= is_known

    answers = answers.take(complete)
    comparable = {measure: values[complete] for measure, values in logs.items()}
    figures = answers.bootstraps(_statistics(answers, comparable))

    rows = []
    for measure, n in counts.items():
        name, text = measure
        row = {"measure": name, "text": text, "known": n, "questions": len(answers.ids)}
        for figure in FIGURES:
            row[figure] = figures.get((measure, figure), NOTHING)
        rows.append(row)

    return rows


def _statistics(answers: Answers, measures: Mapping[Measure, np.ndarray]) -> Iterator[tuple]:
    """The correlations and differences to bootstrap, as `intervals.of_clusters` takes them."""
    right = answers.by_method["closed_book"].correct
    columns = {}
    for measure, values in measures.items():
        columns_of_measure = correlation_columns(values, right, answers.everyone)
        if columns_of_measure:
            columns[measure] = columns_of_measure

    for measure, columns_of_measure in columns.items():
        yield (measure, "correlation"), intervals.pearson, columns_of_measure
        if measure != BY_VIEWS and BY_VIEWS in columns:
            both = [*columns_of_measure, *columns[BY_VIEWS]]
            yield (measure, "over_views"), _difference_of_correlations, both


def _difference_of_correlations(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 12) sums: one correlation less another."""
    first, second = np.split(sums, 2, axis=1)
    return intervals.pearson(first) - intervals.pearson(second)
