"""MMLU's questions, each with its four options, and the demonstrations of each subject (REPLUG,
section 6.2).

Writes data/questions/mmlu/{mmlu,demonstrations,rejects}.parquet.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines import yaml_files
from pipelines.errors import LongtailError
from pipelines.questions.matching import LETTERS
from pipelines.questions.settings import Settings
from pipelines.sources.delimited import table_rows
from pipelines.sources.question_files import read_records, shown
from pipelines.sources.rejects import Rejects
from pipelines.sources.repeats import Repeats
from pipelines.sources.streams import is_readable, visible_files
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.tables.questions import DEMONSTRATIONS, NATURAL_QUESTIONS

RAW = Path("data/raw")
COLUMNS = ("question", "subject", "choices", "answer")


def _read_categories() -> dict[str, str]:
    """Subject of MMLU -> its category."""
    file = Path(__file__).with_name("mmlu.yaml")
    categories = {}
    for category, subjects in yaml_files.read(file).items():
        categories |= dict.fromkeys(subjects, category)
    return categories


CATEGORIES = _read_categories()


def build_mmlu(settings: Settings, out: Path, raw: Path = RAW) -> dict[str, int]:
    """Write `out`: the questions of the test split, and the demonstrations of the dev split.

    Returns counts. Without files the tables are empty.
    """
    rejects = Rejects(settings.ingest.max_reject_share)
    questions = read_split(raw / out.name, "test", rejects)
    demonstrations = read_split(raw / out.name, "dev", rejects) if questions else []
    rejects.check()
    table = pa.Table.from_pylist(questions, NATURAL_QUESTIONS.schema).sort_by("question_id")
    shown_first = pa.Table.from_pylist(demonstrations, DEMONSTRATIONS.schema)
    with atomic(out) as folder:
        folder.mkdir()
        parquet.write_parquet(table, folder / f"{out.name}.parquet", NATURAL_QUESTIONS)
        parquet.write_parquet(shown_first, folder / DEMONSTRATIONS.name, DEMONSTRATIONS)
        rejects.write(folder / "rejects.parquet")
    counts = {"questions": len(questions), "demonstrations": len(demonstrations)}
    return counts | rejects.metrics()


def read_split(folder: Path, split: str, rejects: Rejects) -> list[dict]:
    """The questions below <folder>/<split>, as rows of NATURAL_QUESTIONS, in the benchmark's own
    layout or the Hub's.

    The benchmark's own layout is <subject>_<split>.csv without a header, with the columns question,
    A, B, C, D and the right letter. The Hub's is Parquet or JSON with question, subject, choices
    (four) and answer (0 to 3, or the letter); a file named after its subject, or in a folder of its
    name, needs no `subject`. A question's id has its place among its subject's questions, so it is
    the same in both layouts. A question that a subject's file and another have, such as the Hub's
    `all`, counts once; a line says so. Bad rows go to `rejects`. Raises LongtailError if both
    layouts are there.
    """
    files = visible_files(folder / split)
    files.sort(key=lambda file: not _subject_of_file(file, split))
    if len({file.suffix == ".csv" for file in files}) > 1:
        raise LongtailError(
            f"{folder / split}: has .csv and other files, expected one layout; leave the others out"
        )

    places: Counter[str] = Counter()  # subject -> its questions so far
    repeats = Repeats(rejects)
    questions = []
    for file in files:
        for number, record in _records(file, split, rejects):
            subject = _text(record.get("subject")) or _subject_of_file(file, split)
            question_id = f"{subject}/{split}/{places[subject] + 1}"
            row = _row_of_record(question_id, subject, record)
            if not row:
                places[subject] += 1
                reason = "no question of a subject of MMLU with 4 options and a letter"
                rejects.add(file, number, reason, shown(record))
                continue
            content = (subject, row["question"], row["possible_answers"][0])
            if not repeats.has(file, content):
                places[subject] += 1
                questions.append(row)

    repeats.say(folder.name)
    return questions


def _subject_of_file(file: Path, split: str) -> str:
    """The subject of MMLU that a file or its folder is named after; "" if there is none."""
    for name in (file.stem.removesuffix(f"_{split}"), file.parent.name):
        if name in CATEGORIES:
            return name
    return ""


def _records(file: Path, split: str, rejects: Rejects) -> Iterator[tuple[int, dict]]:
    """The line or row number and the record of each question of a file, in either layout."""
    if file.suffix == ".csv":
        return _csv(file, split, rejects)
    return read_records(file, COLUMNS, rejects)


def _csv(path: Path, split: str, rejects: Rejects) -> Iterator[tuple[int, dict]]:
    """The rows of <subject>_<split>.csv as the Hub has them."""
    subject = path.stem.removesuffix(f"_{split}")
    for number, row, text in table_rows(path, ",", len(LETTERS) + 2):
        rejects.read += 1
        if not row or not is_readable(row):
            rejects.add(path, number, "unreadable_row", text)
            continue
        question, *rest = row
        *choices, answer = rest or [""]
        record = {"question": question, "subject": subject, "choices": choices, "answer": answer}
        yield number, record


def _row_of_record(question_id: str, subject: str, record: Mapping[str, Any]) -> dict:
    """The row of NATURAL_QUESTIONS of a record as the Hub has it; {} if a part of it is missing or
    wrong.
    """
    question = _text(record.get("question"))
    choices = record.get("choices")
    options = [_text(choice) for choice in choices] if isinstance(choices, list) else []
    answer = _letter(record.get("answer"))
    has_options = len(options) == len(LETTERS) and all(options)
    if not question or not has_options or not answer or subject not in CATEGORIES:
        return {}

    lines = [question]
    for letter, option in zip(LETTERS, options, strict=True):
        lines.append(f"{letter}. {option}")
    return {
        "question_id": question_id,
        "relation": subject,
        "question": "\n".join(lines),
        "possible_answers": [answer],
        "split": "test",
        "category": CATEGORIES[subject],
    }


def _letter(answer: object) -> str:
    """The letter of an answer, which is a number from 0 or the letter; "" if it is neither."""
    if type(answer) is int and 0 <= answer < len(LETTERS):
        return LETTERS[answer]
    letter = str(answer).strip()
    return letter if letter in tuple(LETTERS) else ""


def _text(cell: object) -> str:
    return cell.strip() if isinstance(cell, str) else ""
