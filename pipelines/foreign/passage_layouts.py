"""Write questions with their best passages in the layouts that other systems read.

FlashRAG takes a file of `flashrag` as a data set whose passages are retrieved already. The fork of
lm-evaluation-harness for retrieval (Shao et al. 2024) takes one of `lm-eval` as --retrieval_file.
`sources/passage_files.py` reads both back.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.errors import LongtailError
from pipelines.foreign.question_tables import Questions
from pipelines.storage.atomic import atomic

QUESTIONS_AT_ONCE = 1_000  # questions searched at once; their passages are in memory

Passage = dict[str, Any]  # id, title, text and score
Search = Callable[[Sequence[str]], list[list[Passage]]]  # texts -> their passages, the best first


class AnsweredQuestion(NamedTuple):
    """A question and its right answers, of which a file may have none."""

    id: str
    text: str
    answers: Sequence[str]


def flashrag(question: AnsweredQuestion, passages: list[Passage]) -> dict[str, Any]:
    """A record of a FlashRAG data set.

    The contents of a passage are its title in quotes, and its text below.
    """
    retrieved = []
    for passage in passages:
        title = " ".join(passage["title"].split())
        first_line = f'"{title}"' if title else ""
        retrieved.append(passage | {"contents": f"{first_line}\n{passage['text']}"})
    return {
        "id": question.id,
        "question": question.text,
        "golden_answers": list(question.answers),
        "output": {"retrieval_result": retrieved},
    }


def lm_eval(question: AnsweredQuestion, passages: list[Passage]) -> dict[str, Any]:
    """A record of the harness's retrieval file.

    The harness puts passages before its prompt without anything between them, so each ends in a
    blank line.
    """
    contexts = []
    for passage in passages:
        lines = [line for line in (passage["title"], passage["text"]) if line]
        contexts.append(passage | {"retrieval text": "\n".join(lines) + "\n\n"})
    return {
        "id": question.id,
        "query": question.text,
        "answers": list(question.answers),
        "ctxs": contexts,
    }


LAYOUTS = {"flashrag": flashrag, "lm-eval": lm_eval}


def write_passages(file: Path, layout: str, questions: Questions, search: Search) -> int:
    """Write a record for each question, as JSON lines; returns how many have no passage.

    `layout` is one of LAYOUTS. Raises LongtailError for a question without a text.
    """
    asked = questions.asked
    records = list(map(AnsweredQuestion, questions.ids, asked.questions, asked.answers))
    for question in records:
        if not question.text:
            raise LongtailError(
                f"{questions.name}: the question {question.id} has no text; fill it"
            )

    without_passages = 0
    with atomic(file) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for start in range(0, len(records), QUESTIONS_AT_ONCE):
            block = records[start : start + QUESTIONS_AT_ONCE]
            passages_of_block = search([question.text for question in block])
            for question, passages in zip(block, passages_of_block, strict=True):
                without_passages += not passages
                record = LAYOUTS[layout](question, passages)
                stream.write(f"{json.dumps(record)}\n")
    return without_passages
