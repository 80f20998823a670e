"""PopQA's analyses (sections 4 to 5): accuracy by relation and popularity, where retrieving helps and hurts, recall@1.

Every function takes `Answers` and gives rows (dicts) of a table, each figure as an `Interval` where it has one.
Intervals of differences and correlations are bootstraps over subjects, because the questions of one subject are
correlated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from pipelines import draws
from pipelines.evaluation import intervals
from pipelines.evaluation.intervals import Interval

RETRIEVERS = ("bm25", "dense", "lsr")
TAIL, HEAD = 0.60, 0.15  # shares of the questions, least and most popular
DECILES = 10


@dataclass(frozen=True)
class Answers:
    """One question set with the answers of every method; arrays (n,), ordered by question id."""

    ids: np.ndarray
    relations: np.ndarray
    subjects: np.ndarray
    popularity: np.ndarray  # float, NaN where not known
    correct: dict[str, np.ndarray]  # method -> bool, by the published substring rule
    correct_word: dict[str, np.ndarray]  # method -> bool, by whole words
    has_answer: dict[str, np.ndarray]  # retriever -> bool, the passage holds an answer
    is_subject: dict[str, np.ndarray]  # retriever -> 1, 0, NaN where the subject's page is not known
    is_namesake: dict[str, np.ndarray]  # retriever -> 1, 0, NaN likewise

    def bootstrap(self, values: np.ndarray, rows: np.ndarray, seed: int, resamples: int) -> Interval:
        """Mean of `values[rows]`, with a bootstrap interval over subjects."""
        generator = draws.generator(seed, "popqa bootstrap")
        return intervals.mean(values[rows], generator, resamples, self.subjects[rows])

    def ranks(self) -> np.ndarray:
        """Each question's place by popularity in [0, 1), equal popularities at equal places; NaN where not known."""
        known = np.isfinite(self.popularity)
        ranks = np.full(len(self.popularity), np.nan)
        if known.any():
            values, counts = np.unique(self.popularity[known], return_counts=True)
            middle = (np.cumsum(counts) - counts / 2) / known.sum()
            ranks[known] = middle[np.searchsorted(values, self.popularity[known])]
        return ranks


def read(questions: Path, predictions: Path) -> Answers:
    """Join the question set with data/predictions/<dataset>/<method>.parquet of every method, on the question id."""
    methods = ("closed_book", *RETRIEVERS)
    columns = ", ".join(
        f"{m}.correct AS {m}_correct, {m}.correct_word AS {m}_word, {m}.doc_has_answer AS {m}_has_answer, "
        f"{m}.doc_is_subject AS {m}_is_subject, {m}.doc_is_namesake AS {m}_is_namesake"
        for m in methods
    )
    joins = " ".join(f"JOIN read_parquet('{predictions / m}.parquet') {m} USING (question_id)" for m in methods)
    rows = duckdb.sql(
        f"""SELECT question_id, q.relation, CAST(q.s_pop AS DOUBLE) AS s_pop,
                   coalesce(CAST(q.s_uri AS VARCHAR), q.subj, question_id) AS subject, {columns}
            FROM read_parquet('{questions}') q {joins} ORDER BY question_id"""
    ).fetchnumpy()

    def known(name: str) -> np.ndarray:
        values = rows[name]
        return np.where(np.ma.getmaskarray(values), np.nan, np.ma.getdata(values).astype(float))

    def flags(suffix: str, of: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {m: np.ma.getdata(rows[f"{m}_{suffix}"]).astype(bool) for m in of}

    return Answers(
        ids=np.ma.getdata(rows["question_id"]).astype(object),
        relations=np.ma.getdata(rows["relation"]).astype(object),
        subjects=np.ma.getdata(rows["subject"]).astype(object),
        popularity=known("s_pop"),
        correct=flags("correct", methods),
        correct_word=flags("word", methods),
        has_answer=flags("has_answer", RETRIEVERS),
        is_subject={m: known(f"{m}_is_subject") for m in RETRIEVERS},
        is_namesake={m: known(f"{m}_is_namesake") for m in RETRIEVERS},
    )


def accuracy(answers: Answers) -> list[dict]:
    """Accuracy by method and match rule, with Wilson's interval."""
    return [
        {"method": method, "questions": len(right), "substring": intervals.share(right)}
        | {"word": intervals.share(answers.correct_word[method])}
        for method, right in answers.correct.items()
    ]


def by_relation(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Accuracy of every method by relation, and the closed-book one's correlation with log popularity."""
    rows = []
    for relation in np.unique(answers.relations):
        own = answers.relations == relation
        row = {"relation": relation, "questions": int(own.sum())}
        row |= {method: intervals.share(right[own]) for method, right in answers.correct.items()}
        rows.append(row | {"correlation": correlation(answers, "closed_book", seed, resamples, own)})
    return rows


def correlation(answers: Answers, method: str, seed: int, resamples: int, rows: np.ndarray | None = None) -> Interval:
    """Correlation of being right with log10 popularity, over questions whose popularity is known."""
    own = np.isfinite(answers.popularity) & (True if rows is None else rows)
    log_popularity = np.log10(np.maximum(answers.popularity[own], 1))
    generator = draws.generator(seed, "popqa bootstrap")
    return intervals.correlation(
        log_popularity, answers.correct[method][own], generator, resamples, answers.subjects[own]
    )


def by_popularity(answers: Answers) -> list[dict]:
    """Accuracy of every method by decile of popularity, with Wilson's interval and the decile's median popularity."""
    return [
        row | {method: intervals.share(right[own]) for method, right in answers.correct.items()}
        for own, row in _deciles(answers)
    ]


def gains_by_popularity(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Augmented minus closed-book accuracy by decile of popularity, one figure a retriever."""
    return [
        row | {method: answers.bootstrap(gain(answers, method), own, seed, resamples) for method in RETRIEVERS}
        for own, row in _deciles(answers)
    ]


def _deciles(answers: Answers) -> Iterator[tuple[np.ndarray, dict]]:
    """Of each decile of popularity that has questions: which they are, (n,) bool, and what describes it."""
    ranks = answers.ranks()
    for decile in range(DECILES):
        own = (ranks >= decile / DECILES) & (ranks < (decile + 1) / DECILES)
        if own.any():
            median = float(np.median(answers.popularity[own]))
            yield own, {"decile": decile + 1, "questions": int(own.sum()), "popularity": median}


def gain(answers: Answers, method: str) -> np.ndarray:
    """Augmented minus closed-book correctness of each question, (n,) in {-1, 0, 1}."""
    return answers.correct[method].astype(float) - answers.correct["closed_book"]


def asked_as_evaluated(answers: Answers, seed: int) -> np.ndarray:
    """Which subjects the offline world's language model was asked about in the evaluation's own wording, (n,) bool.

    Half of the entities, by the draw of `sources.world_facts.World.asked_as_evaluated`.
    """
    qids = [str(subject).rsplit("/", 1)[-1] for subject in answers.subjects]
    return draws.uniforms(seed, "world/wording", qids) < 0.5


def share_of(answers: Answers, method: str, rows: np.ndarray) -> Interval:
    """Accuracy over some of the questions, with Wilson's interval."""
    return intervals.share(answers.correct[method][rows])


def where_retrieval_helps(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Augmented minus closed-book accuracy: all, tail, head, and by whose page the passage is, one row a retriever."""
    ranks = answers.ranks()
    rows = []
    for method in RETRIEVERS:
        subject, namesake = answers.is_subject[method], answers.is_namesake[method]
        groups = {
            "all": np.ones(len(ranks), dtype=bool),
            "tail": ranks < TAIL,
            "head": ranks >= 1 - HEAD,
            "subject's page": subject == 1,
            "namesake's page": namesake == 1,
            "namesake's page, head": (namesake == 1) & (ranks >= 1 - HEAD),
            "another page": (subject == 0) & (namesake == 0),
        }
        rows += [
            {
                "retriever": method,
                "questions of": name,
                "questions": int(own.sum()),
                "closed_book": intervals.share(answers.correct["closed_book"][own]),
                "augmented": intervals.share(answers.correct[method][own]),
                "gain": answers.bootstrap(gain(answers, method), own, seed, resamples),
            }
            for name, own in groups.items()
        ]
    return rows


def recall(answers: Answers) -> list[dict]:
    """Recall@1 (the passage holds an answer) by retriever, over all and in the 2x2 of which answers are right."""
    rows = []
    for method in RETRIEVERS:
        found, closed, augmented = answers.has_answer[method], answers.correct["closed_book"], answers.correct[method]
        cells = {
            "all": np.ones(len(found), dtype=bool),
            "both right": closed & augmented,
            "only closed-book right": closed & ~augmented,
            "only augmented right": ~closed & augmented,
            "both wrong": ~closed & ~augmented,
        }
        total = max(1, len(found))
        rows += [
            {
                "retriever": method,
                "answers": name,
                "share": float(own.sum() / total),
                "recall": intervals.share(found[own]),
            }
            for name, own in cells.items()
        ]
    return rows


def examples(questions: Path, predictions: Path, retriever: str, seed: int, n: int) -> list[dict]:
    """Questions drawn by hash on which only one of the two answers is right: `n` where it is the augmented, `n` not."""
    rows = duckdb.sql(
        f"""SELECT question_id, q.question, q.possible_answers[1] AS answer, q.s_pop AS popularity,
                   c.prediction AS closed_book, a.prediction AS augmented, a.doc_title, c.correct AS helped_not
            FROM read_parquet('{questions}') q
            JOIN read_parquet('{predictions}/closed_book.parquet') c USING (question_id)
            JOIN read_parquet('{predictions}/{retriever}.parquet') a USING (question_id)
            WHERE c.correct != a.correct ORDER BY question_id"""
    )
    table = [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]
    chosen = []
    for hurt in (False, True):
        group = [row for row in table if row["helped_not"] is hurt]
        drawn = draws.sample(seed, "examples", [row["question_id"] for row in group], n)
        chosen += [group[i] for i in drawn]
    return [{"effect": "retrieving hurts" if row.pop("helped_not") else "retrieving helps"} | row for row in chosen]
