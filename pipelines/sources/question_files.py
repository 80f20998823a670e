"""Question sets in files of JSON lines, JSON lists or Parquet: NQ, TriviaQA, and questions with retrieved passages."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.rejects import DETAIL, Rejects
from pipelines.sources.streams import is_parquet, open_blocks, open_rows, parse_json, parse_whole, visible_files
from pipelines.storage import parquet

PARQUET_BATCH = 1 << 10  # rows
LONGEST = 10_000  # characters of a question; all questions are held in memory
HIDDEN = "<unk>"  # stands for the answers in TriviaQA's test split on the Hub


class Question(NamedTuple):
    id: str  # "<file>/<line>"
    text: str
    answers: list[str]  # the first is shown in demonstrations


class QuestionWithPassages(NamedTuple):
    id: str  # "<file>/<line>"
    dataset: str  # the question's data set; "" if the line doesn't name it
    text: str
    answers: list[str]
    passages: list[tuple[str, str]]  # (title, text), without passages that have no text


def read_questions(folder: Path, rejects: Rejects) -> Iterator[Question]:
    """Yield the questions of every file below `folder`, except the training files in <folder>/train.

    A record has "question", and "golden_answers" or "answer": a text, a list of texts (NQ-open), or an object with
    "value" and "aliases" (TriviaQA). Bad records go to `rejects` ("not JSON", "not an object", "no question", "too
    long", "no answers"). Raises LongtailError if the questions of two files would have the same ids.
    """
    for name, path in _named(folder):
        if path.relative_to(folder).parts[0] == "train":
            continue
        for number, _, text, answers in _answered(path, rejects, ("golden_answers", "answer")):
            yield Question(f"{name}/{number}", text, answers)


def read_questions_with_passages(folder: Path, rejects: Rejects) -> Iterator[QuestionWithPassages]:
    """Yield the questions of every file below `folder`, in the layout of DPR's and Contriever's output.

    A record has "question", "answers" (or "ground_truth") and "ctxs" (or "context"), a list of passages: objects with
    "text" and perhaps "title", or plain texts. "data_source" names the question's data set. Bad ones go to `rejects`
    as those of `read_questions` do, and those with "no passages". Raises LongtailError as `read_questions` does.
    """
    for name, path in _named(folder):
        for number, row, text, answers in _answered(path, rejects, ("answers", "ground_truth")):
            given, passages = row.get("ctxs", row.get("context")), []
            for passage in given if isinstance(given, list) else []:
                fields = passage if isinstance(passage, dict) else {"text": passage}
                title, words = (fields[n] if isinstance(fields.get(n), str) else "" for n in ("title", "text"))
                if words.strip():
                    passages.append((title, " ".join(words.split())))
            if passages:
                dataset = row["data_source"] if isinstance(row.get("data_source"), str) else ""
                yield QuestionWithPassages(f"{name}/{number}", dataset, text, answers, passages)
            else:
                rejects.add(path, number, "no passages", shown(row))


def _named(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each visible file below a folder, with the name that its questions' ids begin with."""
    files: dict[str, Path] = {}
    for path in visible_files(folder):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if (other := files.setdefault(name, path)) != path:
            raise LongtailError(f"{path}: its questions have the same ids as those of {other.name}; leave one out")
        yield name, path


def read_records(path: Path, columns: Sequence[str], rejects: Rejects) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or row from 1, record) of one file. A Parquet file is read only for those of `columns` that it has.

    `rejects` counts all records, and has the bad ones ("not JSON", "not an object"). A damaged file is a LongtailError.
    """
    lines = False
    if is_parquet(path):
        rows = parquet.foreign_rows(path, lambda schema: [n for n in columns if n in schema.names], PARQUET_BATCH)
        records = enumerate(rows, start=1)
    elif next(open_blocks(path)).lstrip().startswith(b"["):
        records = enumerate(parse_whole(path), start=1)
    else:
        lines, records = True, open_rows(path, rejects)
    for number, record in records:
        rejects.read += not lines  # `open_rows` counts its own
        try:
            value = parse_json(record) if lines else record
        except ValueError:  # the line is not JSON, or not UTF-8
            rejects.add(path, number, "not JSON", record.decode("utf-8", "replace"))
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            rejects.add(path, number, "not an object", shown(value))


def shown(record: Any) -> str:
    """A record as it is kept in the rejects."""
    return json.dumps(record, ensure_ascii=False, default=str)


def _answered(path: Path, rejects: Rejects, names: Sequence[str]) -> Iterator[tuple[int, dict, str, list[str]]]:
    """Yield (line or row, record, question, answers) of a file's good records; the answers are in one of `names`."""
    for number, record in read_records(path, ("question", *names), rejects):
        text, answers = record.get("question"), _answers(next(filter(None, map(record.get, names)), None))
        if not isinstance(text, str) or not text.strip():
            rejects.add(path, number, "no question", shown(record))
        elif len(text) > LONGEST:
            rejects.add(path, number, "too long", text[:DETAIL])
        elif not answers:
            rejects.add(path, number, "no answers", shown(record))
        else:
            yield number, record, text.strip(), answers


def _answers(answer: Any) -> list[str]:
    """The usable answers, each once."""
    if isinstance(answer, dict):
        aliases = answer.get("aliases")
        answer = [answer.get("value"), *(aliases if isinstance(aliases, list) else [])]
    answer = [answer] if isinstance(answer, str) else answer if isinstance(answer, list) else []
    texts = [text for text in answer if isinstance(text, str) and text.strip() not in ("", HIDDEN)]
    return list(dict.fromkeys(texts))
