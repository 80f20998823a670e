"""Question sets in files of JSON lines, JSON lists or Parquet: NQ, TriviaQA, and questions with retrieved passages."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.prediction_layouts import ANSWERS, IDS, QUESTION, values_at
from pipelines.sources.rejects import DETAIL_CHARS, Rejects
from pipelines.sources.streams import (
    is_parquet,
    open_blocks,
    open_rows,
    parse_json,
    parse_whole,
    visible_files,
)
from pipelines.storage import parquet

PARQUET_BATCH = 1 << 10  # rows
LONGEST = 10_000  # characters of a question; all questions are held in memory
# Where systems have a question, and the passages that were retrieved for it, the best first
ASKED = "|".join((*QUESTION, "input", "user_input"))
PASSAGES = "ctxs|context|contexts|top_contexts|retrieval_result|output.retrieval_result|output.0.provenance"
PASSAGES += "|retrieved_contexts|docs|passages"
SCORES = "doc_scores|scores|retrieval_scores"  # a list of as many numbers, where passages have none themselves
FIELDS = {  # of a passage
    "text": ("text", "contents", "content", "passage", "page_content"),
    "title": ("title", "wikipedia_title"),
    "id": ("id", "_id", "docid", "doc_id", "pid", "passage_id"),
    "score": ("score", "similarity", "retrieval_score"),
}
# A title in front of its text: FlashRAG's and HippoRAG's first line, in quotes or short, and ActiveRAG's.
TITLED = r'"([^\n]+)"[ \t]*\n+|([^\n]{1,100}?(?<![.!?:;,\s]))[ \t]*\n+'
NUMBERED = r"Document \d+ \(Title: ([^\n]*?)\):\s*"
HIDDEN = "<unk>"  # stands for the answers in TriviaQA's test split on the Hub


class Question(NamedTuple):
    id: str  # "<file>/<line>"
    text: str
    answers: list[str]  # the first is shown in demonstrations


class Passage(NamedTuple):
    title: str
    text: str
    id: str  # "" where it has none
    score: float | None


class QuestionWithPassages(NamedTuple):
    id: str  # "<file>/<line>"
    dataset: str  # the question's data set; "" if the line doesn't name it
    text: str
    answers: list[str]
    passages: list[Passage]  # without those that have no text
    record: dict[str, Any]  # all that the file says of it


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


def read_questions_with_passages(
    folder: Path, rejects: Rejects, *, answered: bool = True
) -> Iterator[QuestionWithPassages]:
    """Yield the questions of every file below `folder`, in the layout of any of the systems of PASSAGES.

    A record has a question (ASKED), answers and a list of passages, the best first: objects with FIELDS, or texts.
    "data_source" names the question's data set. Bad ones go to `rejects` as those of `read_questions` do, and those
    with "no passages". Without `answered`, a record needs no answers. Raises LongtailError as `read_questions` does.
    """
    for name, path in _named(folder):
        for number, row, text, answers in _answered(path, rejects, ANSWERS, ASKED, needed=answered):
            if passages := passages_of(row):
                dataset = row["data_source"] if isinstance(row.get("data_source"), str) else ""
                yield QuestionWithPassages(
                    f"{name}/{number}", dataset, text, answers, passages, row
                )
            else:
                rejects.add(path, number, "no passages", shown(row))


def passages_of(record: dict[str, Any]) -> list[Passage]:
    """The passages with a text in a record, in its order, but ActiveRAG's in reverse: its last one is the best."""
    given = next(
        (list_ for list_ in values_at(record, PASSAGES) if isinstance(list_, list) and list_), []
    )
    scores = next((list_ for list_ in values_at(record, SCORES) if isinstance(list_, list)), [])
    passages = []
    for passage, score in zip(
        given, scores if len(scores) == len(given) else [None] * len(given), strict=True
    ):
        record = passage if isinstance(passage, dict) else {"text": passage}
        fields = {
            of: next((record[name] for name in names if name in record), None)
            for of, names in FIELDS.items()
        }
        title, text = (
            fields[name] if isinstance(fields[name], str) else "" for name in ("title", "text")
        )
        if not title and (match := re.match(f"{TITLED}|{NUMBERED}", text)):
            title, text = match[match.lastindex], text[match.end() :]
        try:
            number = float(score if fields["score"] is None else fields["score"])
        except (TypeError, ValueError):
            number = None
        if text.strip():
            id_ = fields["id"] if isinstance(fields["id"], str | int) else ""
            passages.append(Passage(title, " ".join(text.split()), str(id_), number))
    worst_first = all(
        isinstance(passage, str) and re.match(NUMBERED, passage) for passage in given
    )  # ActiveRAG
    return passages[::-1] if worst_first else passages


def _named(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each visible file below a folder, with the name that its questions' ids begin with."""
    files: dict[str, Path] = {}
    for path in visible_files(folder):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if (other := files.setdefault(name, path)) != path:
            raise LongtailError(
                f"{path}: its questions have the same ids as those of {other.name}; leave one out"
            )
        yield name, path


def read_records(
    path: Path, columns: Sequence[str], rejects: Rejects
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or row from 1, record) of one file. A Parquet file is read only for those of `columns` that it has.

    `rejects` counts all records, and has the bad ones ("not JSON", "not an object"). A damaged file is a LongtailError.
    """
    if is_parquet(path):
        rows = parquet.foreign_rows(
            path, lambda schema: [n for n in columns if n in schema.names], PARQUET_BATCH
        )
        records = enumerate(rows, start=1)
    elif next(open_blocks(path)).lstrip().startswith(b"["):
        records = enumerate(parse_whole(path), start=1)
    else:
        records = open_rows(path, rejects)
    for number, record in records:
        is_line = isinstance(record, bytes)
        rejects.read += not is_line  # `open_rows` counts its own
        try:
            value = parse_json(record) if is_line else record
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


def _answered(
    path: Path,
    rejects: Rejects,
    names: Sequence[str],
    asked: str = "question",
    *,
    needed: bool = True,
) -> Iterator[tuple[int, dict, str, list[str]]]:
    """Yield (line or row, record, question, answers) of a file's good records; the answers are in one of `names`."""
    places = f"{asked}|{PASSAGES}|{SCORES}".split("|")
    columns = (
        *names,
        *IDS,
        "metadata",
        "data_source",
        *(place.partition(".")[0] for place in places),
    )
    for number, record in read_records(path, columns, rejects):
        text = next(iter(values_at(record, asked)), None)
        answers = _answers(next(filter(None, map(record.get, names)), None))
        if not isinstance(text, str) or not text.strip():
            rejects.add(path, number, "no question", shown(record))
        elif len(text) > LONGEST:
            rejects.add(path, number, "too long", text[:DETAIL_CHARS])
        elif needed and not answers:
            rejects.add(path, number, "no answers", shown(record))
        else:
            yield number, record, text.strip(), answers


def _answers(answer: Any) -> list[str]:
    if isinstance(answer, dict):
        aliases = answer.get("aliases")
        answer = [answer.get("value"), *(aliases if isinstance(aliases, list) else [])]
    answer = [answer] if isinstance(answer, str) else answer if isinstance(answer, list) else []
    texts = [text for text in answer if isinstance(text, str) and text.strip() not in ("", HIDDEN)]
    return list(dict.fromkeys(texts))
