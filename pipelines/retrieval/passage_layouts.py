"""Write questions with their best passages in the layouts that other systems read.

FlashRAG takes a file of `flashrag` as a data set whose passages are retrieved already. The fork of
lm-evaluation-harness for retrieval (Shao et al. 2024) takes one of `lm-eval` as --retrieval_file.
`sources/passage_files.py` reads both back.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines import progress
from pipelines.retrieval.documents import Passage
from pipelines.storage.atomic import atomic

QUESTIONS_AT_ONCE = 1_000  # questions searched at once; their passages are in memory

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


def write_passages(
    file: Path, layout: str, questions: Sequence[AnsweredQuestion], search: Search
) -> int:
    """Write a record for each question, as JSON lines; returns how many have no passage.

    `layout` is one of LAYOUTS. A file whose name ends in .gz is compressed.
    """
    without_passages = 0
    with (
        atomic(file) as temporary,
        temporary.open("wb") as stream,
        progress.bar(f"{file.name}: passages", len(questions), "question") as bar,
    ):
        for start in range(0, len(questions), QUESTIONS_AT_ONCE):
            block = questions[start : start + QUESTIONS_AT_ONCE]
            with progress.piece(bar, len(block)):
                passages_of_block = search([question.text for question in block])
            lines = []
            for question, passages in zip(block, passages_of_block, strict=True):
                without_passages += not passages
                record = LAYOUTS[layout](question, passages)
                lines.append(f"{json.dumps(record)}\n")

            written = "".join(lines).encode()
            if file.suffix == ".gz":
                written = gzip.compress(written, mtime=0)  # the same bytes at any time
            stream.write(written)
    return without_passages
