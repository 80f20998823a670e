"""Question sets in files of JSON lines, JSON lists or Parquet, such as NQ-open and TriviaQA."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.sources.json_rows import json_rows
from pipelines.sources.rejects import DETAIL_CHARS, Rejects
from pipelines.sources.repeats import Repeats
from pipelines.sources.streams import parse_json, visible_files

LONGEST_QUESTION = 10_000  # characters; all questions are held in memory
# What stands for the answers in test splits; "<unk>" in TriviaQA's on the Hub.
HIDDEN_ANSWERS = ("", "-", "[]", "<unk>")

# Fields in which published files have an id, a question and its answers, the likeliest first.
# Self-RAG's `golds` and verl's `gts` are lists of answers.
IDS = ("question_id", "id", "qid", "popqa_id", "_id")
QUESTION = ("question", "query", "question_text")
ANSWERS = (
    "possible_answers",
    "golden_answers",
    "gold_answers",
    "gt_answers",
    "answers",
    "golds",
    "gts",
    "ground_truth",
)


class Question(NamedTuple):
    id: str  # "<file>/<line>"
    text: str
    answers: list[str]  # the first is shown in demonstrations


class AnsweredRecord(NamedTuple):
    """A good record of a file, with its question and its answers."""

    number: int  # its line or row, from 1
    record: dict[str, Any]
    text: str
    answers: list[str]


def read_questions(folder: Path, rejects: Rejects) -> Iterator[Question]:
    """Yield the questions of every file below `folder`, except the training files in
    <folder>/train.

    A record has "question", and "golden_answers" or "answer": a text, a list of texts (NQ-open), or
    an object with "value" and "aliases" (TriviaQA). Bad records go to `rejects` ("not JSON", "not
    an object", "no question", "too long", "no answers"). Repeated ones, by `Repeats`, count once; a
    line says how many there are. Raises LongtailError if the questions of two files would have the
    same ids, and for a file without answers.
    """
    answer_fields = ("golden_answers", "answer")
    repeats = Repeats(rejects)
    for name, path in named_files(folder):
        if path.relative_to(folder).parts[0] == "train":
            continue
        rejects_of_file = Rejects(1.0)
        records = answered_records(path, rejects_of_file, ("question",), answer_fields, IDS)
        for record in records:
            content = (record.text, frozenset(record.answers))
            if not repeats.has(path, content, first_value(record.record, IDS)):
                yield Question(f"{name}/{record.number}", record.text, record.answers)

        _check_answers(path, rejects_of_file)
        rejects.take(rejects_of_file)
    repeats.say(folder.name)


def _check_answers(path: Path, rejects: Rejects) -> None:
    """Raise LongtailError for a file of which no record has answers."""
    if rejects.read and rejects.bad["no answers"] == rejects.read:
        raise LongtailError(
            f"{path}: none of its {rejects.read:,} records has answers, expected some; "
            "leave it out of fetch.files"
        )


def named_files(folder: Path, left_out: Collection[Path] = ()) -> Iterator[tuple[str, Path]]:
    """Yield each visible file below a folder, with the name that its questions' ids begin with.

    The files of folders that are `left_out` are not there.
    """
    files: dict[str, Path] = {}
    for path in visible_files(folder):
        if path.parent in left_out:
            continue
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name in files:
            raise LongtailError(
                f"{path}: its questions have the same ids as those of {files[name].name}; "
                "leave one out"
            )
        files[name] = path
        yield name, path


def answered_records(
    path: Path,
    rejects: Rejects,
    question_places: Sequence[str],
    answer_fields: Sequence[str],
    more_columns: Sequence[str],
    *,
    answers_needed: bool = True,
) -> Iterator[AnsweredRecord]:
    """Yield the records of a file that have a question and answers; `rejects` has the others.

    The question is at the first of `question_places` that a record has, and the answers are in the
    first of `answer_fields` with something in it. Of a Parquet file only these and `more_columns`
    are read.
    """
    columns = [place.partition(".")[0] for place in question_places]
    records = read_records(path, (*columns, *answer_fields, *more_columns), rejects)
    yield from good_records(
        path, records, rejects, question_places, answer_fields, answers_needed=answers_needed
    )


def good_records(
    path: Path,
    records: Iterable[tuple[int, dict[str, Any]]],
    rejects: Rejects,
    question_places: Sequence[str],
    answer_fields: Sequence[str],
    *,
    answers_needed: bool,
) -> Iterator[AnsweredRecord]:
    """Yield those of a file's records, each with its number, that `answered_records` yields."""
    for number, record in records:
        text = first_value(record, question_places)
        answers = _answers(record, answer_fields)
        if not isinstance(text, str) or not text.strip():
            rejects.add(path, number, "no question", shown(record))
        elif len(text) > LONGEST_QUESTION:
            rejects.add(path, number, "too long", text[:DETAIL_CHARS])
        elif answers_needed and not answers:
            rejects.add(path, number, "no answers", shown(record))
        else:
            yield AnsweredRecord(number, record, text.strip(), answers)


def read_records(
    path: Path, columns: Sequence[str], rejects: Rejects
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or row from 1, record) of one file.

    A Parquet file is read only for those of `columns` that it has. `rejects` counts all records,
    and has the bad ones ("not JSON", "not an object"). A damaged file is a LongtailError.
    """

    def used_columns(schema: pa.Schema) -> list[str]:
        return [name for name in columns if name in schema.names]

    for number, row in json_rows(path, rejects, used_columns):
        record = row
        if isinstance(row, bytes):
            try:
                record = parse_json(row)
            except ValueError:  # the line is not JSON, or not UTF-8
                rejects.add(path, number, "not JSON", row.decode("utf-8", "replace"))
                continue
        if isinstance(record, dict):
            yield number, record
        else:
            rejects.add(path, number, "not an object", shown(record))


def shown(record: Any) -> str:
    """A record as it is kept in the rejects."""
    return json.dumps(record, ensure_ascii=False, default=str)


def values_at(record: Mapping[str, Any], places: Sequence[str]) -> list[Any]:
    """What stands at each of some places that a record has.

    A place is a field, or a path of fields such as `output.pred`; a number is a place in a list,
    such as `output.0.provenance`.
    """
    values = []
    for place in places:
        value: Any = record
        try:
            for field in place.split("."):
                value = value[int(field)] if isinstance(value, list) else value[field]
        except (KeyError, IndexError, TypeError, ValueError):
            continue
        values.append(value)
    return values


def first_value(record: Mapping[str, Any], places: Sequence[str]) -> Any:
    """What stands at the first of some places that a record has; None without any."""
    values = values_at(record, places)
    return values[0] if values else None


def _answers(record: Mapping[str, Any], fields: Sequence[str]) -> list[str]:
    """The distinct texts of the first of the fields that has something in it."""
    filled = [record[field] for field in fields if record.get(field)]
    answer = filled[0] if filled else None
    if isinstance(answer, dict):
        aliases = answer.get("aliases")
        answer = [answer.get("value")]
        if isinstance(aliases, list):
            answer += aliases
    if isinstance(answer, str):
        answer = [answer]
    if not isinstance(answer, list):
        return []
    texts = [text for text in answer if isinstance(text, str)]
    return list(dict.fromkeys(text for text in texts if text.strip() not in HIDDEN_ANSWERS))
