"""What retrieving changes: accuracy and recall, with examples of where it helps and hurts (PopQA, 5, C.3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipelines import draws, intervals
from pipelines.evaluation.accuracy import HEAD, TAIL, Answers, gain, mean_columns, share
from pipelines.intervals import NOTHING
from pipelines.language.language import ENGLISH, Language
from pipelines.questions import matching
from pipelines.storage import database

TAIL_LESS_HEAD = "tail less head"
EXAMPLES = 4  # of each kind
PASSAGE = 1_000  # characters of a passage that an example has


def where_retrieval_helps(answers: Answers, seed: int, resamples: int) -> list[dict]:
    """Augmented and closed-book accuracy by method and group of questions: by popularity, by the passage's page.

    The gain in TAIL_LESS_HEAD is the gain in the tail less the gain at the head.
    """
    if "closed_book" not in answers.by_method:
        return []
    closed, asked, rows = answers.by_method["closed_book"], [], []
    rules = {"": "correct", "_word": "word"}
    for method in (method for method in answers.by_method if method != "closed_book"):
        augmented, groups = answers.by_method[method], _groups(answers, method)
        rows += [
            {"method": method, "group": name, "questions": int(group.sum())}
            | {f"closed_book{rule}": share(getattr(closed, column), group) for rule, column in rules.items()}
            | {f"augmented{rule}": share(getattr(augmented, column), group) for rule, column in rules.items()}
            for name, group in groups.items()
        ]
        tail_and_head = int((groups["tail"] | groups["head"]).sum())
        unknown = {f"{name}{rule}": NOTHING for rule in rules for name in ("closed_book", "augmented")}
        rows.append({"method": method, "group": TAIL_LESS_HEAD, "questions": tail_and_head} | unknown)
        for rule, column in rules.items():
            change = gain(answers, method, column)
            for name, group in groups.items():
                asked.append(((method, name, rule), intervals.ratio, mean_columns(change, group)))
            ends = [*mean_columns(change, groups["tail"]), *mean_columns(change, groups["head"])]
            asked.append(((method, TAIL_LESS_HEAD, rule), _difference, ends))
    found = answers.bootstraps(asked, seed, resamples)
    return [row | {f"gain{rule}": found[row["method"], row["group"], rule] for rule in rules} for row in rows]


def _difference(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3]


def _groups(answers: Answers, method: str) -> dict[str, np.ndarray]:
    """Groups of questions by popularity and by whose page the method's passage is from, (n,) bool each."""
    ranks, answer = answers.ranks, answers.by_method[method]
    head, namesake = ranks >= 1 - HEAD, answer.is_namesake == 1
    return {
        "all": np.ones(len(ranks), bool),
        "tail": ranks < TAIL,
        "head": head,
        "subject's page": answer.is_subject == 1,
        "namesake's page": namesake,
        "namesake's page, head": namesake & head,
        "another page": (answer.is_subject == 0) & (answer.is_namesake == 0),
    }


def recall(answers: Answers) -> list[dict]:
    """How often what a method read holds an answer: over all questions, and by which answers are right (Table 1)."""
    rows = []
    for method, answer in answers.by_method.items():
        known, right = np.isfinite(answer.has_answer), answer.correct == 1
        if method == "closed_book" or not known.any():
            continue
        cells = {"all": known}
        if "closed_book" in answers.by_method:
            closed = answers.by_method["closed_book"].correct == 1
            cells["both right"] = known & closed & right
            cells["only closed-book right"] = known & closed & ~right
            cells["only augmented right"] = known & ~closed & right
            cells["both wrong"] = known & ~closed & ~right
        rows += [
            {"method": method, "answers": name, "share": float(cell.sum() / known.sum()), "questions": int(cell.sum())}
            | {"recall": share(answer.has_answer, cell)}
            for name, cell in cells.items()
        ]
    return rows


def examples(
    questions: Path, closed_book: Path, augmented: Path, docs: Path, seed: int, language: Language = ENGLISH
) -> list[dict]:
    """Questions on which only one of two answers is right, by both rules: EXAMPLES of each kind (Tables 3 and 4).

    Each relation's question with the smallest draw by hash of (seed, question id) is a candidate; the EXAMPLES
    candidates with the smallest draws are chosen. Questions of unknown popularity are left out. The passage is what
    the language model or an import wrote, else the beginning of the best document in `docs`, if there is that file.
    """
    rows = database.ask(
        """SELECT question_id, q.relation, q.question, q.possible_answers, q.possible_answers[1] AS answer,
                  q.s_pop AS popularity, a.doc_id, a.doc_title, a.doc_has_answer, a.passage,
                  c.prediction AS closed_book, a.prediction AS augmented, c.correct AS hurt
           FROM questions q JOIN closed_book c USING (question_id) JOIN augmented a USING (question_id)
           WHERE c.correct != a.correct AND c.correct_word = c.correct AND a.correct_word = a.correct
                 AND q.s_pop IS NOT NULL
           ORDER BY question_id""",
        questions=questions,
        closed_book=closed_book,
        augmented=augmented,
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
    texts = _texts(docs, [row["doc_id"] for row in chosen]) if docs.is_file() else {}
    for row in chosen:
        passage = (row["passage"] or texts.get((row["doc_id"], row["doc_title"]), ""))[:PASSAGE]
        row["passage"] = passage or None
        answers = row.pop("possible_answers")
        row["passage_answer"] = next((answer for answer in answers if matching.word(passage, [answer], language)), None)
    return [{name: value for name, value in row.items() if name not in ("hurt", "doc_id")} for row in chosen]


def _texts(docs: Path, ids: list[str | None]) -> dict[tuple[str, str], str]:
    """The texts of these documents by id and title. The title tells other documents by the same id, of an import."""
    query = "SELECT id, coalesce(title, ''), text FROM docs WHERE id IN (SELECT unnest(?::VARCHAR[]))"
    return {(id_, title): text for id_, title, text in database.ask(query, [ids], docs=docs).fetchall()}
