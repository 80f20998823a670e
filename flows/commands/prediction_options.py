"""What the commands on files of predictions share: options, reading, and writing of results."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from flows import terminal
from pipelines.errors import LongtailError
from pipelines.storage.atomic import SCRATCH, write_text
from pipelines.storage.file_kinds import check_link, check_no_folder

if TYPE_CHECKING:
    from pipelines.foreign.judge_files import Answered
    from pipelines.foreign.question_tables import Questions
    from pipelines.subsets import Subset

# Files of a release's folder; the first of them that is there is read.
RELEASED = ("popqa.parquet", "popqa.tsv", "popQA.tsv")
QUESTIONS = "a table of questions such as popQA.tsv, an address, or a release's folder"

QuestionsOption = Annotated[
    str | None,
    typer.Option(
        "--questions", "-q", help="Path or address of PopQA as published, a release, or any table."
    ),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns of the questions: question=NAME,answers=NAME,signal=NAME,group=NAME."
    ),
]
PatternOption = Annotated[
    str | None,
    typer.Option(
        help="Pattern that cuts the answer out of a longer text: '<answer>(.*?)</answer>'."
    ),
]
ByPositionOption = Annotated[
    bool,
    typer.Option(
        "--by-position", help="Rows without ids and questions are in the order of the questions."
    ),
]


@dataclass(frozen=True)
class Options:
    """The options that commands on files of predictions share."""

    questions: str | None
    columns: list[str] | None
    answer_pattern: str | None
    by_position: bool
    subset: str


def read_all(
    files: Sequence[str],
    options: Options,
    needed: Sequence[str] = ("question", "signal"),
    *,
    decisions: bool = False,
) -> tuple[Questions, list[Answered]]:
    """The question set and the answers of files, and with `decisions` when they retrieved.

    With a subset, the answers to its questions alone.
    """
    from pipelines.foreign.judge_files import keep_subset, named_files, read_answers

    subset = named_subset(options.subset)
    paths = named_files(files, terminal.CALLED_FROM)
    questions = read_questions(options.questions, options.columns, needed)
    answered = read_answers(
        paths,
        questions,
        options.answer_pattern,
        by_position=options.by_position,
        decisions=decisions,
    )
    if subset:
        keep_subset(answered, questions, options.subset, subset)
    return questions, answered


def named_subset(name: str) -> Subset | None:
    """The sample of PopQA of a name; None for an empty name.

    Raises LongtailError if no sample is called so.
    """
    from pipelines.subsets import read_subsets

    if not name:
        return None
    subsets = read_subsets()
    if name not in subsets:
        names = ", ".join(subsets)
        raise LongtailError(
            f"--subset {name}: no sample of PopQA is called so, expected one of {names}"
        )
    return subsets[name]


def read_questions(
    place: str | None,
    columns: list[str] | None,
    needed: Sequence[str] = ("question", "signal"),
) -> Questions:
    """The question set at a path or an address."""
    from pipelines.foreign.question_tables import read_question_table

    if place is None:
        raise LongtailError(
            "--questions is missing, expected popQA.tsv, a release's folder, or a table of "
            "questions"
        )

    named_columns = parse_columns(columns)
    if urlsplit(place).scheme in ("http", "https"):
        # requests, which a file on the disk does without
        from pipelines.sources.download import download_alone

        with tempfile.TemporaryDirectory() as folder:
            path = download_alone(place, Path(folder))
            return read_question_table(path, named_columns, needed)

    return read_question_table(question_file(place), named_columns, needed)


def question_file(place: str) -> Path:
    """The file with the questions at a path, which may be a release's folder.

    Raises LongtailError if there is none.
    """
    check_link(terminal.CALLED_FROM / place)
    path = (terminal.CALLED_FROM / place).resolve()
    if path.is_dir():
        released = [path / name for name in RELEASED if (path / name).is_file()]
        path = released[0] if released else path
    check_no_folder(path, f"{QUESTIONS} with {RELEASED[0]} or {RELEASED[-1]}")
    if not path.is_file():
        raise LongtailError(f"--questions {place}: no such file, expected {QUESTIONS}")
    return path


def parse_columns(texts: Sequence[str] | None) -> dict[str, str]:
    """Role -> column, of options as signal=popularity,group=relation; none without an option."""
    columns: dict[str, str] = {}
    if not texts:
        return columns
    text = ",".join(texts)
    for part in text.split(","):
        role, _, name = part.partition("=")
        if not name:
            raise LongtailError(f"--columns {role}: expected ROLE=NAME, as signal=popularity")
        if role.strip() in columns:
            raise LongtailError(
                f"--columns {text}: names a role twice, expected each once; leave one out"
            )
        columns[role.strip()] = name.strip()
    return columns


def notes_of(questions: Questions, answered: Sequence[Answered]) -> list[str]:
    """Lines on what was read."""
    lines = questions.described()
    for system in answered:
        lines += system.lines
    return lines


def write_files(out: Path, texts: Mapping[str, str]) -> None:
    """Write files into a folder, each whole or not at all; other files there stay."""
    for name, text in texts.items():
        write_text(out / name, text)
    if not Path("dvc.yaml").is_file():  # outside of a project nothing but the result stays
        for folder in (SCRATCH / "tmp", SCRATCH):
            with suppress(OSError):
                folder.rmdir()
