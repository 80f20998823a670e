"""Question sets that predictions are held against: PopQA as published, a release's, or any table.

A table needs a question in each row. Its answers judge predictions. Its signal is what a threshold
is a cut of, such as popularity, and its group is what has a threshold of its own, as a relation.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import LongtailError
from pipelines.foreign.answer_lists import gold_answers
from pipelines.foreign.cell_values import as_text, clean_id, read_numbers
from pipelines.foreign.join_predictions import Asked
from pipelines.foreign.layouts import TELLING
from pipelines.foreign.records import listed, plain, read_columns, read_records
from pipelines.language.relations import BY_NAME, RELATIONS
from pipelines.sources.question_files import ANSWERS, QUESTION

ROLES = {  # what a column can be for -> the names by which it is known, the likeliest first
    "id": ("question_id", "id", "qid"),
    "question": QUESTION,
    "answers": (*ANSWERS, "answer"),
    "signal": ("s_pop", "popularity", "pop", "pageviews", "views"),
    "group": ("relation", "prop", "category", "type"),
    "subject": ("s_uri", "subj", "subject"),
    "month": ("month",),
}
PUBLISHED_MONTH = "2021-10"  # of the page views in the authors' file
LARGEST_PUBLISHED_ID = 2**52  # ids of questions that Longtail built are larger
LACKING = {  # role -> what follows if no column has it
    "subject": "each question counts as a subject of its own",
    "group": "all questions are one group",
}
NO_GROUP = "(none)"
ALL_QUESTIONS = "all"  # the group of a table without groups
VIEWS = "monthly page views"


@dataclass(frozen=True)
class Questions:
    """A question set; all columns are (questions,), in the table's order."""

    name: str  # of the file
    layout: str  # in words
    asked: Asked  # what predictions are joined by and judged with
    ids: list[str]
    groups: np.ndarray  # str: the Wikidata id of PopQA's relations, else as in the table
    names: dict[str, str]  # group -> its name
    subjects: np.ndarray  # str: questions of one subject belong together
    signal: np.ndarray  # float64, NaN if not known
    columns: dict[str, str]  # role -> the column's name
    month: str | None  # of the page views, or the first and the last one; None if it is not known
    answers_note: str = ""  # how cells were read that may hold several answers in one text

    @property
    def unknown(self) -> int:
        """How many questions have no signal."""
        return int((~np.isfinite(self.signal)).sum())

    @property
    def signal_name(self) -> str:
        """What the signal is, in words."""
        column = self.columns["signal"]
        return VIEWS if column in ("s_pop", "popularity") and self.month else column

    def described(self) -> list[str]:
        """What the table is, in lines."""
        roles = ", ".join(f"{role} `{name}`" for role, name in self.columns.items())
        lines = [f"{self.name}: {self.layout}, {len(self.ids):,} questions; {roles}"]
        for role, meaning in LACKING.items():
            if role not in self.columns:
                names = ", ".join(ROLES[role])
                lines.append(f"{self.name} has no column with the {role} ({names}): {meaning}")

        if self.answers_note:
            lines.append(self.answers_note)

        n_unanswered = sum(not any(map(str.strip, texts)) for texts in self.asked.answers)
        lines += self._empty_cells("answers", n_unanswered, "no prediction of theirs is right")
        lines += self._empty_cells("signal", self.unknown, "thresholds do not count them")
        return lines

    def _empty_cells(self, role: str, count: int, meaning: str) -> list[str]:
        if not count or role not in self.columns:
            return []
        share = f"{count:,} of {len(self.ids):,} questions"
        return [f"{share} have nothing in `{self.columns[role]}`: {meaning}"]


def read_question_table(
    path: Path,
    named_columns: Mapping[str, str] | None = None,
    separator: str = "",
    needed: Sequence[str] = ("question", "signal"),
) -> Questions:
    """The questions of a table (CSV, TSV, JSON, JSON lines or Parquet).

    `named_columns` are the columns of some of ROLES, or paths into objects as `metadata.s_pop`. A
    cell of answers that is no list is one answer, or several if it holds the `separator`. Answers
    are only read where the question is needed, which they answer. Raises LongtailError for a role
    of `needed` or a named column that is not there, an id that two rows have, and as `read_numbers`
    and `gold_answers` do.
    """
    columns, cells, layout = _read_roles(path, dict(named_columns or {}), needed)
    n_questions = len(next(iter(cells.values())))
    signal = _signal(path, columns, cells, is_needed="signal" in needed)

    answer_column = columns.get("answers", "answers")
    golds = cells.pop(answer_column, None) if "answers" in columns else None
    if golds is None or "question" not in needed:
        golds = [None] * n_questions
    answers, answers_note = gold_answers(golds, f"{path}: {answer_column}", separator)

    ids = _ids(path, columns, cells, n_questions)
    group_texts = _texts(columns, cells, "group") or [ALL_QUESTIONS] * n_questions
    groups = {text: BY_NAME.get(text, text) or NO_GROUP for text in set(group_texts)}
    names = {}
    for key in sorted(set(groups.values())):
        names[key] = RELATIONS[key].name if key in RELATIONS else key

    subjects = _texts(columns, cells, "subject") or ids
    subjects = [subject or id_ for subject, id_ in zip(subjects, ids, strict=True)]
    return Questions(
        name=path.name,
        layout=layout,
        asked=_asked(columns, cells, answers),
        ids=ids,
        groups=np.array([groups[text] for text in group_texts], dtype=object),
        names=names,
        subjects=np.array(subjects, dtype=object),
        signal=np.array(signal),
        columns={role: name for role, name in columns.items() if role != "month"},
        month=_month(columns, cells, ids),
        answers_note=answers_note,
    )


def _read_roles(
    path: Path, named_columns: dict[str, str], needed: Sequence[str]
) -> tuple[dict[str, str], dict[str, list[Any]], str]:
    """Role -> its column, the cells of all columns that are known, and the file's layout in
    words.
    """
    for role in named_columns:
        if role not in ROLES:
            raise LongtailError(f"--columns {role}=…: expected {', '.join(ROLES)} before the =")

    known = set(map(plain, (*TELLING, *named_columns.values())))
    for names in ROLES.values():
        known.update(names)

    expected = " and ".join(f"one with the {role} ({', '.join(ROLES[role])})" for role in needed)
    file = read_records(path, known, f"{expected}, or --columns to name them")

    cells = read_columns(file, known)
    columns = {}
    for role in ROLES:
        column = _column(path, role, file.columns, cells, named_columns)
        if column:
            columns[role] = column
        elif role in needed:
            raise LongtailError(
                f"{path}: no column with the {role}, expected {' or '.join(ROLES[role])}; its "
                f"columns are {listed(file.columns)}, name one of them with --columns {role}=NAME, "
                f"or a field of its objects with {role}=NAME.FIELD"
            )

    return columns, cells, file.kind


def _column(
    path: Path,
    role: str,
    names: Sequence[str],
    cells: Mapping[str, list[Any]],
    named_columns: Mapping[str, str],
) -> str | None:
    """The column with a role; None if the table has none."""
    if role not in named_columns:
        return next((name for name in ROLES[role] if name in cells), None)
    column = plain(named_columns[role])
    if column not in cells:
        raise LongtailError(
            f"{path}: no column {named_columns[role]!r} for {role}, expected one of {listed(names)}"
        )

    return column


def _texts(columns: Mapping[str, str], cells: Mapping[str, list[Any]], role: str) -> list[str]:
    """The column with a role as texts; none if there is no such column."""
    return list(map(as_text, cells[columns[role]])) if role in columns else []


def _signal(
    path: Path, columns: Mapping[str, str], cells: Mapping[str, list[Any]], is_needed: bool
) -> list[float]:
    if "signal" not in columns:
        return []
    column = columns["signal"]
    advice = "--columns signal=NAME names another"
    signal = read_numbers(cells[column], f"{path}: {column}", f"; {advice} column")
    if is_needed and not any(map(math.isfinite, signal)):
        raise LongtailError(f"{path}: {column} has no number in it, expected some; {advice}")
    return signal


def _ids(
    path: Path, columns: Mapping[str, str], cells: Mapping[str, list[Any]], n_questions: int
) -> list[str]:
    """The questions' ids, or the numbers of their rows."""
    if "id" not in columns:
        return [str(number) for number in range(1, n_questions + 1)]
    ids = list(map(clean_id, cells[columns["id"]]))
    if len(set(ids)) < n_questions:
        twice, _ = Counter(ids).most_common(1)[0]
        raise LongtailError(
            f"{path}: the {columns['id']} {twice} is of two rows, expected every id once; drop "
            "one, or name another column with --columns id=NAME"
        )
    return ids


def _asked(
    columns: Mapping[str, str], cells: Mapping[str, list[Any]], answers: list[list[str]]
) -> Asked:
    """What predictions are joined by."""
    ids = {}
    for name in dict.fromkeys(("question_id", "id", columns.get("id", "id"))):
        if name in cells:
            ids[name] = cells[name]
    telling = {name: list(map(as_text, cells[name])) for name in TELLING if name in cells}
    return Asked(_texts(columns, cells, "question"), answers, ids, telling)


def _month(
    columns: Mapping[str, str], cells: Mapping[str, list[Any]], ids: Sequence[str]
) -> str | None:
    """The month of the page views, or the first and the last one; None if it is not known."""
    months = sorted(set(_texts(columns, cells, "month")) - {""})
    if len(months) > 1:
        return f"{months[0]} to {months[-1]}"
    if months:
        return months[0]
    if columns.get("signal") != "s_pop" or not {"s_uri", "o_uri", "id"} <= cells.keys():
        return None
    is_published = all(id_.isdecimal() and int(id_) < LARGEST_PUBLISHED_ID for id_ in ids)
    return PUBLISHED_MONTH if is_published else None
