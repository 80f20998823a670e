"""Question sets that predictions are held against: PopQA as published, a release's, or any table.

A table needs a question in each row. Its answers judge predictions. Its signal is what a threshold
is a cut of, such as popularity, and its group is what has a threshold of its own, as a relation.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pipelines.errors import LongtailError
from pipelines.foreign.answer_lists import gold_answers
from pipelines.foreign.cell_values import as_text, clean_id, read_numbers
from pipelines.foreign.join_predictions import QuestionKeys
from pipelines.foreign.layouts import TELLING, rows_of_columns
from pipelines.foreign.record_file import Cells, RecordFile, plain
from pipelines.foreign.records import read_records, showing_columns, to_columns
from pipelines.language.relations import BY_NAME, name_of
from pipelines.questions.published import LARGEST_ID
from pipelines.safe_text import mended
from pipelines.sources.question_files import ANSWERS, QUESTION

ROLES = {  # what a column can be for -> the names by which it is known, the likeliest first
    "id": ("question_id", "id", "qid"),
    "question": QUESTION,
    "answers": (*ANSWERS, "answer"),
    "signal": ("s_pop", "popularity", "pop", "pageviews", "views"),
    "group": ("relation", "prop", "prop_id", "category", "type"),
    "subject": ("s_uri", "subj", "subject"),
}
MONTH = "month"  # the column of a table that says of which month its page views are
PUBLISHED_MONTH = "2021-10"  # of the page views in the authors' file
LACKING = {  # role -> what follows if no column has it
    "subject": "each question counts as a subject of its own",
    "group": "all questions are one group",
}
EMPTY = {  # role -> what follows for questions without it
    "answers": "no prediction of theirs is right",
    "signal": "thresholds do not count them",
}
NO_GROUP = "(none)"
ALL_QUESTIONS = "all"  # the group of a table without groups
VIEWS = "monthly page views"


@dataclass(frozen=True)
class Questions:
    """A question set; all columns are (questions,), in the table's order."""

    name: str  # of the file
    layout: str  # in words
    asked: QuestionKeys  # what predictions are joined by and judged with
    ids: list[str]
    groups: np.ndarray  # str: the Wikidata id of PopQA's relations, else as in the table
    names: dict[str, str]  # group -> its name
    subjects: np.ndarray  # str: questions of one subject belong together
    signal: np.ndarray  # float64, NaN if not known
    columns: dict[str, str]  # role -> the column's name
    month: str | None  # of the page views, or the first and the last one; None if it is not known
    notes: Sequence[str] = ()  # on what may surprise about the cells

    @property
    def has_fractions(self) -> bool:
        """Whether the signal is no count, such as the logarithm of one."""
        known = self.signal[np.isfinite(self.signal)]
        return bool((known % 1 != 0).any())

    @property
    def signal_name(self) -> str:
        """What the signal is, in words."""
        column = self.columns.get("signal", "popularity")
        are_views = column in ("s_pop", "popularity") and self.month and not self.has_fractions
        return VIEWS if are_views else column

    def described(self) -> list[str]:
        """What the table is, in lines."""
        roles = [f"{role} `{name}`" for role, name in self.columns.items()]
        size = f"{len(self.ids):,} questions"
        lines = [f"{self.name}: {self.layout}, {size}; {', '.join(roles)}"]
        for role, meaning in LACKING.items():
            if role not in self.columns:
                names = ", ".join(ROLES[role])
                lines.append(f"{self.name} has no column with the {role} ({names}): {meaning}")

        if "signal" in self.columns and self.has_fractions:
            lines.append(
                f"`{self.columns['signal']}` has fractions, so it is no number of page views, but "
                "maybe its logarithm; thresholds are in its unit"
            )
        lines += self.notes
        n_unknown = int(np.isnan(self.signal).sum())
        empty = {"signal": n_unknown, "answers": self.asked.answer_sets.count(frozenset())}
        for role, meaning in EMPTY.items():
            if role in self.columns and empty[role]:
                count = f"{empty[role]:,} of {size}"
                lines.append(f"{count} have nothing in `{self.columns[role]}`: {meaning}")

        return lines


class Table(NamedTuple):
    """A table's cells, and which of its columns has which role."""

    path: Path
    kind: str  # of the file, in words
    columns: dict[str, str]  # role -> column
    cells: Cells
    notes: list[str]  # on what may surprise about the cells

    def texts(self, role: str) -> list[str]:
        """The column with a role as texts; none if there is no such column."""
        if role not in self.columns:
            return []
        return list(map(as_text, self.cells[self.columns[role]]))


def read_question_table(
    path: Path,
    named_columns: Mapping[str, str] = MappingProxyType({}),
    needed: Sequence[str] = ("question", "signal"),
) -> Questions:
    """The questions of a table (CSV, TSV, JSON, JSON lines or Parquet).

    `named_columns` are the columns of some of ROLES, or paths into objects as `metadata.s_pop`. A
    cell of answers that is no list is one answer. Answers are only read where the question is
    needed, which they answer. Raises LongtailError for a role of `needed` or a named column that is
    not there, an id that two rows have, and as `read_numbers` and `gold_answers` do.
    """
    for role in named_columns:
        if role not in ROLES:
            raise LongtailError(f"--columns {role}=…: expected {', '.join(ROLES)} before the =")

    known = {MONTH, *TELLING}.union(*ROLES.values(), map(plain, named_columns.values()))
    beginnings = {name.partition(".")[0] for name in known}
    roles = [f"one with the {role} ({', '.join(ROLES[role])})" for role in needed]
    expected = f"{' and '.join(roles)}, or --columns to name them"
    file = read_records(path, known | beginnings, expected)
    with showing_columns(file.shown):
        return _questions(_read_table(path, file, known, named_columns, needed), needed)


def _questions(table: Table, needed: Sequence[str]) -> Questions:
    """The questions in a table's cells."""
    columns = table.columns
    n_questions = len(next(iter(table.cells.values())))
    ids = _ids(table, n_questions)

    answers: list[list[str]] = [[]] * n_questions
    if "answers" in columns and "question" in needed:
        cells = table.cells[columns["answers"]]
        answers, note = gold_answers(cells, f"{table.path}: {columns['answers']}")
        if note:
            table.notes.append(note)

    asked = _keys(table, answers)
    groups = _groups(table, n_questions)
    names = {group: name_of(group) for group in sorted(set(groups))}
    subjects = table.texts("subject") or ids
    subjects = [subject or id_ for subject, id_ in zip(subjects, ids, strict=True)]
    signal = _signal(table, n_questions, is_needed="signal" in needed)
    return Questions(
        name=mended(table.path.name),
        layout=table.kind,
        asked=asked,
        ids=ids,
        groups=np.array(groups, dtype=object),
        names=names,
        subjects=np.array(subjects, dtype=object),
        signal=np.array(signal),
        columns=columns,
        month=_month(table, ids),
        notes=table.notes,
    )


def _groups(table: Table, n_questions: int) -> list[str]:
    """The group of each question: the Wikidata id of PopQA's relations, else as in the table."""
    texts = table.texts("group") or [ALL_QUESTIONS] * n_questions
    if table.columns.get("group") == "prop_id":  # PopQA's, the number of a Wikidata property
        texts = [f"P{text}" if text.isdecimal() else text for text in texts]
    return [BY_NAME.get(text, text) or NO_GROUP for text in texts]


def _read_table(
    path: Path,
    file: RecordFile,
    known: Set[str],
    named_columns: Mapping[str, str],
    needed: Sequence[str],
) -> Table:
    """The known columns of a table, which are also those that are named, and their roles."""
    # A name with full stops is a path into objects, or a column's.
    paths = {name: name for name in map(plain, named_columns.values()) if "." in name}
    rows = rows_of_columns(file.records, paths, known)
    cells = to_columns(path, rows, file.notes)
    for name in paths:
        if all(value is None for value in cells[name]):
            del cells[name]

    columns = {}
    for role, candidates in ROLES.items():
        column = next((name for name in candidates if name in cells), "")
        if role in named_columns:
            column = plain(named_columns[role])
        if column in cells:
            columns[role] = column
        elif role in named_columns:
            raise LongtailError(
                f"{path}: no column {named_columns[role]!r} for {role}, expected one of its own"
            )
        elif role in needed:
            raise LongtailError(
                f"{path}: no column with the {role}, expected {' or '.join(candidates)}; name one "
                f"of its own with --columns {role}=NAME, or a field of its objects with "
                f"{role}=NAME.FIELD"
            )

    return Table(path, file.kind, columns, cells, file.notes)


def _signal(table: Table, n_questions: int, is_needed: bool) -> list[float]:
    if "signal" not in table.columns:
        return [math.nan] * n_questions
    column = table.columns["signal"]
    advice = "--columns signal=NAME names another"
    where = f"{table.path}: {column}"
    signal = read_numbers(table.cells[column], where, f"; {advice} column")
    if is_needed and not any(map(math.isfinite, signal)):
        raise LongtailError(f"{where} has no number in it, expected some; {advice}")
    return signal


def _ids(table: Table, n_questions: int) -> list[str]:
    """The questions' ids, or the numbers of their rows."""
    if "id" not in table.columns:
        return [str(number) for number in range(1, n_questions + 1)]
    column = table.columns["id"]
    ids = list(map(clean_id, table.cells[column]))
    if len(set(ids)) < n_questions:
        twice, _ = Counter(ids).most_common(1)[0]
        raise LongtailError(
            f"{table.path}: the {column} {twice} is of two rows, expected every id once; drop "
            "one, or name another column with --columns id=NAME"
        )
    return ids


def _keys(table: Table, answers: list[list[str]]) -> QuestionKeys:
    """What predictions are joined by."""
    ids = {}
    for name in ("question_id", "id", table.columns.get("id", "id")):
        if name in table.cells:
            ids[name] = table.cells[name]
    telling = {name: table.cells[name] for name in TELLING if name in table.cells}
    return QuestionKeys(table.texts("question"), answers, ids, telling)


def _month(table: Table, ids: Sequence[str]) -> str | None:
    """The month of the page views, or the first and the last one; None if it is not known."""
    months = sorted(set(map(as_text, table.cells.get(MONTH, []))) - {""})
    if len(months) > 1:
        return f"{months[0]} to {months[-1]}"
    if months:
        return months[0]
    has_columns = {"s_uri", "o_uri", "id"} <= table.cells.keys()
    is_popqa = has_columns and table.columns.get("signal") == "s_pop"
    if is_popqa and all(id_.isdecimal() and int(id_) < LARGEST_ID for id_ in ids):
        return PUBLISHED_MONTH
    return None
