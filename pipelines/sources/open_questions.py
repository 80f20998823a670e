"""Open-domain question sets (Natural Questions, TriviaQA): questions and their accepted answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.records import read_records, record_files, shown
from pipelines.sources.rejects import Rejects

COLUMNS = ("question", "answer", "golden_answers")
HIDDEN = "<unk>"  # TriviaQA's test split on the Hub: the answers are kept back


class Question(NamedTuple):
    id: str  # "<file>/<line>"
    text: str
    answers: list[str]  # the first is shown in demonstrations


def read_questions(folder: Path, rejects: Rejects) -> Iterator[Question]:
    """The questions of every file below `folder`: JSON lines, a JSON list, or Parquet.

    A record has "question", and "golden_answers" or "answer": a text, a list of texts (NQ-open), or an object with
    "value" and "aliases" (TriviaQA). Bad ones go to `rejects` ("not JSON", "not an object", "no question", "no
    answers"). Raises LongtailError for two files whose questions would have the same ids.
    """
    seen: dict[str, Path] = {}
    for path in record_files(folder):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name in seen:
            raise LongtailError(f"{path}: the questions' ids are those of {seen[name].name}; leave one of them out")
        seen[name] = path
        for number, record in read_records(path, COLUMNS, rejects):
            text, answers = record.get("question"), _answers(record.get("golden_answers") or record.get("answer"))
            if not isinstance(text, str) or not text.strip():
                rejects.add(path, number, "no question", shown(record))
            elif not answers:
                rejects.add(path, number, "no answers", shown(record))
            else:
                yield Question(f"{name}/{number}", text.strip(), answers)


def _answers(found: Any) -> list[str]:
    """The usable answers, each once."""
    if isinstance(found, dict):
        aliases = found.get("aliases")
        found = [found.get("value"), *(aliases if isinstance(aliases, list) else [])]
    found = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return list(dict.fromkeys(one for one in found if isinstance(one, str) and one.strip() not in ("", HIDDEN)))
