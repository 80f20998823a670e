"""How well measures of popularity, links and mentions predict which questions a model answers from memory.

Each measure is a number of a question's subject, or of its subject and answer: page views of the month, which
thresholds go by, and the measures that might do better. `compare` says how well each puts right closed-book answers
above wrong ones, as ROC AUC and as Spearman's rank correlation, on the same questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from pipelines import draws, intervals
from pipelines.evaluation.accuracy import Answers
from pipelines.intervals import NOTHING, Interval
from pipelines.questions.subject_articles import view_subjects
from pipelines.storage import database, parquet

if TYPE_CHECKING:
    from pipelines.evaluation.analyse import AnswersOf

VIEWS = "views"
MEAN = "mean_views"
TERMS = "term_frequency"
LINKS = "links"
COUNTS = ("subject", "answer", "together")  # columns of data/exposure
FEWEST = 10  # questions that measures are compared on
LEAST_KNOWN = 0.5  # share of the questions that a measure must be known of to be compared
_BLOCK = 4_000_000  # numbers held at a time

Measure = tuple[str, str]  # its name, and the text that it is counted in or ""
TABLES = {
    "popularity_measures": {"dataset": str, "lm": str, "measure": str, "text": str, "known": int, "questions": int}
    | dict.fromkeys(("correlation", "auc", "auc_gain"), Interval),
}


def of_answers(of: AnswersOf) -> dict[str, list[dict]]:
    """The table of measures."""
    return {"popularity_measures": compare_measures(of.answers, read_measures(of), *of.draw)}


def read_measures(of: AnswersOf) -> dict[Measure, np.ndarray]:
    """Measure -> its value of each question, (questions,) float, NaN where not known; only measures that a run has."""
    found: dict[Measure, np.ndarray] = {(VIEWS, ""): of.answers.popularity}
    knowledge = of.data / "knowledge"
    columns = {  # measure -> file, column, what joins it to the subject
        (MEAN, ""): (knowledge / "popularity/views.parquet", "mean", "title"),
        (TERMS, ""): (knowledge / "term_frequency/term_frequency.parquet", "term_frequency", "qid"),
    }
    for names in ((LINKS,), COUNTS):
        columns |= {(name, text): (file, name, "question_id") for text, file in of.exposure.items() for name in names}
    for measure, (file, column, key) in columns.items():
        if not file.is_file() or column not in parquet.schema_of(file).names:
            continue
        with database.connect(1.0, 1) as db:
            database.view(db, "measured", file, columns=[key, column])
            if key != "question_id":
                view_subjects(db, "asked", of.questions, knowledge / "wikidata/entities.parquet")
            of_questions = "measured" if key == "question_id" else f"asked JOIN measured USING ({key})"
            rows = db.execute(f"SELECT question_id, {column} FROM {of_questions}").fetchall()
        values = dict(rows)
        numbers = np.array([values.get(id_) for id_ in of.answers.ids.tolist()], float)  # None becomes NaN
        if np.isfinite(numbers).any():
            found[measure] = numbers
    return found


def compare_measures(answers: Answers, measures: Mapping[Measure, np.ndarray], seed: int, resamples: int) -> list[dict]:
    """A row for each measure: how well it predicts that the closed-book answer is right.

    All are judged on the questions of which all are known, but for measures that are known of fewer than LEAST_KNOWN of
    the questions; these have no figures. `auc_gain` is the AUC less that of the month's page views, on the same
    resamples of subjects.
    """
    if "closed_book" not in answers.by_method:
        return []
    known = {measure: int(np.isfinite(values).sum()) for measure, values in measures.items()}
    compared = [measure for measure, n in known.items() if n >= max(FEWEST, LEAST_KNOWN * len(answers.ids))]
    rows = np.ones(len(answers.ids), bool)
    for measure in compared:
        rows &= np.isfinite(measures[measure])
    of_rows = answers.take(rows)
    right = of_rows.by_method["closed_book"].correct
    scores = {measure: measures[measure][rows] for measure in compared}
    found = predictions(of_rows.subjects, scores, right, seed, resamples) if rows.sum() >= FEWEST else {}
    nothing = dict.fromkeys(("correlation", "auc", "auc_gain"), NOTHING)
    return [
        {"measure": name, "text": text, "known": n, "questions": int(rows.sum())} | found.get((name, text), nothing)
        for (name, text), n in known.items()
    ]


def predictions(
    subjects: np.ndarray, scores: Mapping[Measure, np.ndarray], right: np.ndarray, seed: int, resamples: int
) -> dict[Measure, dict[str, Interval]]:
    """Measure -> `correlation`, `auc` and `auc_gain` over page views, all over the same resamples of subjects.

    A measure that is the same for all questions, or answers that are all right or all wrong, give NOTHING.
    """
    generator = draws.generator(seed, "popqa bootstrap")
    units = intervals.units(np.unique(subjects.astype(str), return_inverse=True)[1], generator)
    n, size = int(units.max(initial=-1)) + 1, max(1, _BLOCK // len(right))
    orders = [(values, np.argsort(values, kind="stable")) for values in scores.values()]
    as_they_are = np.ones((1, n), np.int64)  # the first of the drawings
    judged = [
        np.stack([_judged(values[by], right[by], counts[start : start + size, units[by]]) for values, by in orders])
        for counts in chain([as_they_are], intervals.resampled(n, generator, resamples))
        for start in range(0, len(counts), size)
    ]
    by_measure = dict(zip(scores, np.concatenate(judged, axis=2), strict=True))  # -> (2, 1 + resamples)
    found: dict[Measure, dict[str, Interval]] = {}
    for measure, (correlation, auc) in by_measure.items():
        paired = measure != (VIEWS, "") and (VIEWS, "") in by_measure
        figures = {"correlation": correlation, "auc": auc}
        figures["auc_gain"] = auc - (by_measure[VIEWS, ""][1] if paired else np.nan)
        found[measure] = {
            name: intervals.percentiles(float(of[0]), of[1:], n).within(-1, 1) for name, of in figures.items()
        }
    return found


def _judged(scores: np.ndarray, right: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Spearman's correlation and the AUC, (2, resamples), of ascending scores (n,) drawn `counts` (resamples, n) times.

    Equal scores share their middle rank.
    """
    starts = np.flatnonzero(np.r_[True, scores[1:] != scores[:-1]])
    drawn = np.add.reduceat(counts, starts, axis=1).astype(float)  # (resamples, distinct scores)
    of_right = np.add.reduceat(counts * right, starts, axis=1)
    rank = np.cumsum(drawn, axis=1) - drawn / 2
    n, n_right, ranks = drawn.sum(axis=1), of_right.sum(axis=1), (of_right * rank).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        auc = (ranks - n_right**2 / 2) / (n_right * (n - n_right))
        spread = ((drawn * rank**2).sum(axis=1) - n**3 / 4) * (n_right - n_right**2 / n)
        return np.stack([(ranks - n_right * n / 2) / np.sqrt(spread), np.where(spread > 0, auc, np.nan)])


def report_entries() -> list:
    """What predicts that a model knows."""
    from pipelines.report.entries import Drawn, Entry, Shown
    from pipelines.report.figures import ranges
    from pipelines.report.page import label

    words = {
        VIEWS: "page views of the month",
        MEAN: "mean of the months' page views",
        LINKS: "incoming links",
        TERMS: "term frequency in C4",
        "subject": "documents with the subject",
        "answer": "documents with the answer",
        "together": "documents with both",
    }
    why = {MEAN: "popularity.months is 1", LINKS: "parts.exposure has no dump of Wikipedia"}

    def measure(row):
        return words[row["measure"]] + (f" ({label(row['text'])})" if row["text"] else "")

    def counted(row):
        if row["text"]:
            named = row["measure"].replace("together", "subject and answer")
            return f"How many documents of {label(row['text'])} name {named}"
        return f"The {words[row['measure']]}"

    def measured(inputs):
        """The measures of each language model and question set for which there are two at least."""
        rows = inputs.tables["popularity_measures"]
        known = [(row["dataset"], row["lm"]) for row in rows if np.isfinite(row["auc"].value)]
        return [row | {"name": measure(row)} for row in rows if known.count((row["dataset"], row["lm"])) > 1]

    def says(inputs, rule):
        """Which single measure predicts best."""
        rows = inputs.rows("popularity_measures", dataset=inputs.main_questions)
        of_views, others = ([row for row in rows if (row["measure"] == VIEWS) == views] for views in (True, False))
        others = [row for row in others if np.isfinite(row["auc"].value)]
        if not others or not all(np.isfinite(row["auc"].value) for row in of_views):
            return ""
        best = max(others, key=lambda row: row["auc"].value)
        tells = {1: "tells better than", -1: "tells less well than", 0: "does not clearly tell better than"}
        return (
            f"{counted(best)} {tells[best['auc_gain'].sign]} page views which questions {inputs.main} answers right "
            "from memory."
        )

    def caption(inputs, rows):
        there = {row["measure"] for row in rows}
        return (
            "How well each measure predicts being right closed-book (substring): Spearman's rank correlation, ROC AUC, "
            "and the AUC less that of the month's page views on the same resamples. All are judged on the questions of "
            "which all measures are known; one that is known of fewer than half of the questions has no figures."
            + "".join(f" Without {words[name]}: {reason}." for name, reason in why.items() if name not in there)
        )

    parts = [
        Drawn(
            ranges, "popularity-measures",
            lambda inputs: [row for row in measured(inputs) if np.isfinite(row["auc"].value)], "name", "auc",
            "how well each measure tells questions that a model answers right closed-book (substring) from others. 0.5 "
            "is chance, 1 is always. Lines are 95 % bootstrap intervals over subjects.",
            {"x": "ROC AUC of being right closed-book"}, series="lm", each="dataset",
        ),
        Shown(
            "popularity-measures", measured,
            ["dataset", "lm", "name", "known", "questions", "correlation", "auc", "auc_gain"], caption,
            {"name": "measure", "correlation": "rank correlation", "auc": "AUC", "auc_gain": "AUC over page views"},
        ),
    ]  # fmt: skip
    return [Entry("measures", "What predicts that a model knows", parts, says, after="effect")]
