"""Where retrieving helps and where it hurts, recall, methods against each other, examples (PopQA, section 5, C.3)."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np

from pipelines import draws, intervals
from pipelines.evaluation import accuracy
from pipelines.evaluation.accuracy import HEAD, TAIL, Answers, gain, mean_columns, share
from pipelines.intervals import NOTHING

TAIL_LESS_HEAD = "tail less head"
AGAINST = (  # a method, and what it is held against beside closed-book answers
    ("lsr", "dense"),
    ("genread", "bm25"),
    ("genread", "dense"),
    ("replug", "dense"),
    ("replug_lsr", "lsr"),
    ("replug_lsr", "replug"),
)
EXAMPLES = 4  # of each kind


def where_retrieval_helps(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Augmented against closed-book accuracy by method: all, tail, head, and by whose page the passage is from.

    The last group's gain is that of the tail less that of the head.
    """
    if "closed_book" not in answers.of:
        return []
    closed, asked, rows = answers.of["closed_book"], {}, []
    rules = {"": "correct", "_word": "word"}
    for method in _augmented(answers):
        own, groups = answers.of[method], _groups(answers, method)
        rows += [
            {"method": method, "group": name, "questions": int(group.sum())}
            | {f"closed_book{rule}": share(getattr(closed, column), group) for rule, column in rules.items()}
            | {f"augmented{rule}": share(getattr(own, column), group) for rule, column in rules.items()}
            for name, group in groups.items()
        ]
        tail_and_head = int((groups["tail"] | groups["head"]).sum())
        unknown = {f"{name}{rule}": NOTHING for rule in rules for name in ("closed_book", "augmented")}
        rows.append({"method": method, "group": TAIL_LESS_HEAD, "questions": tail_and_head} | unknown)
        for rule, column in rules.items():
            change = gain(answers, method, column)
            for name, group in groups.items():
                asked[method, name, rule] = intervals.ratio, mean_columns(change, group)
            ends = [*mean_columns(change, groups["tail"]), *mean_columns(change, groups["head"])]
            asked[method, TAIL_LESS_HEAD, rule] = _difference, ends
    found = answers.bootstraps(asked, seed, resamples)
    return [row | {f"gain{rule}": found[row["method"], row["group"], rule] for rule in rules} for row in rows]


def _difference(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3]


def _augmented(answers: Answers) -> list[str]:
    return [method for method in answers.of if method != "closed_book"]


def _groups(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """Groups of questions by popularity and by whose page the method's passage is from, (n,) bool each."""
    ranks, own = answers.ranks, answers.of[method]
    head, namesake = ranks >= 1 - HEAD, own.is_namesake == 1
    return {
        "all": np.ones(len(ranks), bool),
        "tail": ranks < TAIL,
        "head": head,
        "subject's page": own.is_subject == 1,
        "namesake's page": namesake,
        "namesake's page, head": namesake & head,
        "another page": (own.is_subject == 0) & (own.is_namesake == 0),
    }


def comparisons(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Methods less what they are held against: accuracy by both rules, and how often what they read has an answer."""
    pairs = [(method, "closed_book") for method in _augmented(answers)] + list(AGAINST)
    pairs = [pair for pair in pairs if set(pair) <= set(answers.of)]
    everyone = np.ones(len(answers.ids), bool)
    columns = {"gain": "correct", "gain_word": "word", "recall_gain": "has_answer"}
    asked = {
        (pair, name): (getattr(answers.of[pair[0]], column) - getattr(answers.of[pair[1]], column), everyone)
        for pair in pairs
        for name, column in columns.items()
    }
    found = answers.means(asked, seed, resamples)
    return [
        {"method": pair[0], "against": pair[1], "questions": len(answers.ids)}
        | {name: found[pair, name] for name in columns}
        for pair in pairs
    ]


def recall(answers: Answers) -> list[dict]:
    """How often what a method read holds an answer: over all, and in the 2x2 of which answers are right (Table 2)."""
    rows = []
    for method in _augmented(answers):
        own = answers.of[method]
        known, right = np.isfinite(own.has_answer), own.correct == 1
        if not known.any():
            continue
        cells = {"all": known}
        if "closed_book" in answers.of:
            closed = answers.of["closed_book"].correct == 1
            cells["both right"] = known & closed & right
            cells["only closed-book right"] = known & closed & ~right
            cells["only augmented right"] = known & ~closed & right
            cells["both wrong"] = known & ~closed & ~right
        rows += [
            {"method": method, "answers": name, "share": float(cell.sum() / known.sum()), "questions": int(cell.sum())}
            | {"recall": share(own.has_answer, cell)}
            for name, cell in cells.items()
        ]
    return rows


def halves(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Closed-book accuracy by whether the offline world's language model was asked in the evaluation's own wording.

    It was about half of the subjects, by the draw of `sources.world_facts.World.asked_as_evaluated`.
    """
    if not {"closed_book", "dense"} <= set(answers.of):
        return []
    qids = [str(subject).rsplit("/", 1)[-1] for subject in answers.subjects]
    asked = draws.uniforms(seed, "world/wording", qids) < 0.5
    groups = {"asked there in the evaluation's wording": asked, "never asked in it": ~asked}
    correlation = accuracy.correlations(answers, "closed_book", groups, seed, resamples)
    tail = {name: (gain(answers, "dense"), own & (answers.ranks < TAIL)) for name, own in groups.items()}
    gains = answers.means(tail, seed, resamples)
    return [
        {"subjects": name, **accuracy.both(answers.of["closed_book"], own)}
        | {"correlation": correlation[name], "tail_gain": gains[name]}
        for name, own in groups.items()
    ]


def examples(questions: Path, closed_book: Path, augmented: Path, seed: int) -> list[dict]:
    """Questions on which only one of the two answers is right, by both rules (Tables 3 and 4): EXAMPLES of each kind.

    The rule: the one with the smallest draw by hash (seed, question id) of each relation, and of these the EXAMPLES
    with the smallest. A question must have a known popularity.
    """
    rows = duckdb.sql(
        """SELECT question_id, q.relation, q.question, q.possible_answers[1] AS answer, q.s_pop AS popularity,
                  a.doc_title, a.doc_has_answer, c.prediction AS closed_book, a.prediction AS augmented,
                  c.correct AS hurt
           FROM read_parquet(?) q
           JOIN read_parquet(?) c USING (question_id)
           JOIN read_parquet(?) a USING (question_id)
           WHERE c.correct != a.correct AND c.correct_word = c.correct AND a.correct_word = a.correct
                 AND q.s_pop IS NOT NULL
           ORDER BY question_id""",
        params=[str(questions), str(closed_book), str(augmented)],
    )
    table = rows.to_arrow_table().to_pylist()
    drawn = draws.uniforms(seed, "examples", [row["question_id"] for row in table])
    order = sorted(range(len(table)), key=lambda i: (drawn[i], table[i]["question_id"]))
    chosen = []
    for hurt, effect in ((False, "retrieving helps"), (True, "retrieving hurts")):
        of_relation: dict[str, dict] = {}
        for i in order:
            if table[i]["hurt"] is hurt:
                of_relation.setdefault(table[i]["relation"], table[i])
        chosen += [{"effect": effect} | row for row in list(of_relation.values())[:EXAMPLES]]
    return [{name: value for name, value in row.items() if name != "hurt"} for row in chosen]
