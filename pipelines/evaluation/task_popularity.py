"""How answers to benchmarks depend on the popularity of what is asked about: what the PopQA paper
measures on its own questions (sections 4 to 6), for natural questions.
"""

from dataclasses import fields
from pathlib import Path

import numpy as np

from pipelines.adaptive import tuning
from pipelines.evaluation import popularity_bins, retrieval_effects
from pipelines.evaluation.accuracy import Group, by_groups
from pipelines.evaluation.answer_sets import Answers, MethodAnswers
from pipelines.intervals import NOTHING, interval
from pipelines.params.params import Thresholds
from pipelines.storage import database

# Answers to the questions that all methods answer, with the entity that each asks about. A question
# without an entity is a subject of its own.
ANSWERED = """WITH answered AS (
        SELECT question_id FROM predictions GROUP BY question_id
        HAVING count(*) = (SELECT count(DISTINCT method) FROM predictions)
    )
    SELECT method, question_id, coalesce(qid, question_id) AS subject,
        CAST(popularity AS DOUBLE) AS popularity, CAST(correct AS DOUBLE) AS correct
    FROM predictions SEMI JOIN answered USING (question_id)
    LEFT JOIN entities USING (question_id) ORDER BY method, question_id"""
OF_DECILE = ("method", "decile", "popularity", "questions", "gain")
CUTS = ("threshold", "threshold_low", "threshold_high")
POLICIES = ("adaptive", "always", "never", "oracle", "gain", "retrieved")
EFFECTS = {  # column -> the questions whose change against answers without retrieval it has
    "tail": "tail",
    "head": "head",
    "tail_less_head": retrieval_effects.TAIL_LESS_HEAD,
}
NO_THRESHOLD = {
    **dict.fromkeys(CUTS),
    **dict.fromkeys(POLICIES, NOTHING),
    "policy": None,
    "verdict": None,
}


def join(predictions: Path, entities: Path, seed: int, resamples: int) -> Answers:
    """A language model's answers to a benchmark, with the popularity of each question's entity.

    `correct` is the benchmark's own metric, and other rules are not known.
    """
    result = database.ask(ANSWERED, predictions=predictions, entities=entities)
    columns = result.to_arrow_table().to_pydict()
    methods = np.array(columns["method"], dtype=object)
    correct = np.array(columns["correct"], dtype=float)
    by_method = {}
    for method in dict.fromkeys(columns["method"]):
        by_method[method] = _method_answers(correct[methods == method])

    n = len(methods) // max(len(by_method), 1)  # rows of the first method
    return Answers(
        ids=np.array(columns["question_id"][:n], dtype=object),
        relations=np.full(n, "", dtype=object),
        subjects=np.array(columns["subject"][:n], dtype=object),
        popularity=np.array(columns["popularity"][:n], dtype=float),
        ambiguous=np.zeros(n, bool),
        by_method=by_method,
        seed=seed,
        resamples=resamples,
    )


def _method_answers(correct: np.ndarray) -> MethodAnswers:
    """Answers of which nothing is known but whether they are right, (n,) 1 or 0."""
    unknown = np.full(len(correct), np.nan)
    columns = {field.name: unknown for field in fields(MethodAnswers)}
    return MethodAnswers(**columns | {"correct": correct})


def by_popularity(answers: Answers) -> list[dict]:
    """Accuracy by method and decile of popularity, and the gain over answers without retrieval."""
    rows = []
    for row in popularity_bins.by_decile(answers):
        columns = {name: row[name] for name in OF_DECILE}
        rows.append(columns | {"accuracy": row["substring"]})
    return rows


def thresholds(answers: Answers, settings: Thresholds) -> list[dict]:
    """By method, the correlation of being right with log popularity, what retrieval changes in the
    tail and at the head, and what a threshold against answers without retrieval is worth.

    The questions have no relations, so there is one threshold for all of them. Too few questions of
    known popularity, and answers without retrieval, have none.
    """
    known = np.isfinite(answers.popularity)
    of_known = answers.take(known)
    changes = {}
    for row in retrieval_effects.where_retrieval_helps(of_known):
        changes[row["method"], row["group"]] = row["gain"]

    rows = []
    for row in by_groups(of_known, [Group({}, of_known.everyone)], ["correlation"]):
        columns = {name: row[name] for name in ("method", "questions", "correlation")}
        columns["not_known"] = len(known) - row["questions"]
        columns["accuracy"] = row["substring"]
        for name, group in EFFECTS.items():
            columns[name] = changes.get((row["method"], group), NOTHING)
        rows.append(columns | _threshold(of_known, row["method"], settings))
    return rows


def _threshold(answers: Answers, method: str, settings: Thresholds) -> dict:
    """The columns of a method's threshold, all of them empty where it has none."""
    has_both = "closed_book" in answers.by_method and method != "closed_book"
    if not has_both or len(answers.ids) < settings.min_questions:
        return NO_THRESHOLD

    tuned = tuning.tune_arrays(
        answers.popularity,
        answers.relations,
        answers.subjects,
        right_above=answers.by_method["closed_book"].correct,
        right_below=answers.by_method[method].correct,
        settings=settings,
        seed=answers.seed,
        resamples=answers.resamples,
        searches=(settings.search,),
        ids=answers.ids,
    )
    figures = tuned.figures[settings.search]
    columns = {name: interval(figures[name]) for name in POLICIES}
    columns |= {name: tuned.relations[0][name] for name in CUTS}
    return columns | {"policy": figures["policy"], "verdict": figures["verdict"]}
