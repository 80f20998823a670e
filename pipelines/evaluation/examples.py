"""Questions on which only one of two answers is right (PopQA, appendix C.3, Tables 3 and 4)."""

from pathlib import Path

import numpy as np

from pipelines import draws
from pipelines.storage import database

EXAMPLES = 4  # of each effect
PASSAGE = 1_000  # characters of a passage that an example has
EFFECTS = ("retrieving helps", "retrieving hurts")
CANDIDATES = """SELECT
        CASE WHEN c.correct THEN 'retrieving hurts' ELSE 'retrieving helps' END AS effect,
        question_id, q.relation, q.question, q.possible_answers[1] AS answer,
        q.s_pop AS popularity, a.doc_title, a.doc_has_answer, a.passage,
        c.prediction AS closed_book, a.prediction AS augmented, a.doc_id
    FROM questions q JOIN closed_book c USING (question_id) JOIN augmented a USING (question_id)
    WHERE c.correct != a.correct AND c.correct_word = c.correct AND a.correct_word = a.correct
        AND q.s_pop IS NOT NULL
    ORDER BY question_id"""
# The title tells other documents by the same id, of an import.
DOCUMENTS = """SELECT id, coalesce(title, ''), text FROM docs
    WHERE id IN (SELECT unnest(?::VARCHAR[]))"""


def draw_examples(
    questions: Path,
    closed_book: Path,
    augmented: Path,
    docs: Path,
    seed: int,
) -> list[dict]:
    """EXAMPLES questions of each effect, on which both rules say that one answer is right.

    Each relation's question with the smallest draw by hash of (seed, question id) is a candidate;
    the candidates with the smallest draws are shown. Questions whose popularity is not known are
    left out. The passage is what the language model or an import wrote, else the beginning of the
    best document in `docs`, if there is that file.
    """
    result = database.ask(
        CANDIDATES, None, questions=questions, closed_book=closed_book, augmented=augmented
    )
    rows = result.to_arrow_table().to_pylist()
    ids = [row["question_id"] for row in rows]
    drawn = draws.uniforms(seed, "examples", ids)
    by_effect: dict[str, dict] = {effect: {} for effect in EFFECTS}  # -> relation -> row
    for place in np.argsort(drawn, kind="stable").tolist():
        row = rows[place]
        by_effect[row["effect"]].setdefault(row["relation"], row)

    examples = []
    for by_relation in by_effect.values():
        examples += list(by_relation.values())[:EXAMPLES]
    texts = _texts(docs, examples)
    for row in examples:
        document = (row.pop("doc_id"), row["doc_title"])
        text_of_document = texts.get(document, "")
        passage = (row["passage"] or text_of_document)[:PASSAGE]
        row["passage"] = passage or None

    return examples


def _texts(docs: Path, examples: list[dict]) -> dict[tuple[str, str], str]:
    """The texts of the examples' documents by id and title; nothing if there is no file `docs`."""
    if not docs.is_file():
        return {}
    ids = [row["doc_id"] for row in examples]
    rows = database.ask(DOCUMENTS, [ids], docs=docs).fetchall()
    return {(doc_id, title): text for doc_id, title, text in rows}
