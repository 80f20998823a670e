"""Open-domain question sets as JSON lines (Natural Questions, TriviaQA): a question and its accepted answers a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.sources.rejects import Rejects
from pipelines.sources.text import open_text


class Question(NamedTuple):
    id: str  # "<file>/<line>"
    text: str
    answers: list[str]


def read_questions(folder: Path, rejects: Rejects) -> Iterator[Question]:
    """The questions of every *.jsonl below `folder`; a line has "question", and "answer" or "golden_answers".

    Bad lines go to `rejects` ("not JSON", "no question", "no answers").
    """
    for path in sorted(folder.rglob("*.jsonl")):
        for number, line in enumerate(open_text(path), start=1):
            rejects.read += 1
            try:
                text, answers = _question(json.loads(line))
            except json.JSONDecodeError:
                rejects.add(path, number, "not JSON", line)
                continue
            if not text:
                rejects.add(path, number, "no question", line)
            elif not answers:
                rejects.add(path, number, "no answers", line)
            else:
                yield Question(f"{path.stem}/{number}", text, answers)


def _question(row: object) -> tuple[str, list[str]]:
    """Question and usable answers of a row, empty where they are missing or of another kind."""
    if not isinstance(row, dict):
        return "", []
    question, answers = row.get("question"), row.get("golden_answers", row.get("answer"))
    answers = [answers] if isinstance(answers, str) else answers if isinstance(answers, list) else []
    usable = [answer for answer in answers if isinstance(answer, str) and answer.strip()]
    return question.strip() if isinstance(question, str) else "", usable
