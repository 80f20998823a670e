"""Question sets that predictions are held against: PopQA as published, a release's, or any table of questions.

A table needs a question in each row. Its answers judge predictions. Its signal is what a threshold is a cut of, such as
popularity, and its group is what has a threshold of its own, such as a relation.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import as_text, clean_id, gold_answers, read_numbers
from pipelines.foreign.join_predictions import Asked
from pipelines.foreign.layouts import ANSWERS, QUESTION, TELLING
from pipelines.foreign.records import columns_of, listed, plain, read_any_records
from pipelines.language.relations import BY_NAME, RELATIONS

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
LARGEST_PUBLISHED = 2**52  # ids of questions that Longtail built are larger
LACKING = {  # role -> what follows if no column has it
    "subject": "each question counts as a subject of its own",
    "group": "all questions are one group",
}
NO_GROUP = "(none)"
EVERYTHING = "all"  # the group of a table without groups
VIEWS = "monthly page views"


@dataclass(frozen=True)
class Questions:
    """A question set; all columns are (questions,), in the table's order."""

    name: str  # of the file
    layout: str  # in words
    asked: Asked  # what predictions are joined by and judged with
    ids: list[str]
    groups: (
        np.ndarray
    )  # str: the relation's Wikidata id where it is one of PopQA's, else as in the table
    names: dict[str, str]  # group -> its name
    subjects: np.ndarray  # str: questions of one subject belong together
    signal: np.ndarray  # float64, NaN if not known
    columns: dict[str, str]  # role -> the column's name
    month: (
        str | None
    )  # of the page views, or the first and the last one; None if the table does not say it
    answers_note: str = ""  # how answer cells were read that may hold several answers in one text

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
                lines.append(
                    f"{self.name} has no column with the {role} ({', '.join(ROLES[role])}): {meaning}"
                )
        lines += filter(None, [self.answers_note])
        without = sum(not any(map(str.strip, answers)) for answers in self.asked.answers)
        for role, n, meaning in (
            ("answers", without, "no prediction of theirs is right"),
            ("signal", self.unknown, "thresholds do not count them"),
        ):
            if n and role in self.columns:
                lines.append(
                    f"{n:,} of {len(self.ids):,} questions have nothing in `{self.columns[role]}`: {meaning}"
                )
        return lines


def read_question_table(
    path: Path,
    chosen: Mapping[str, str] | None = None,
    separator: str = "",
    needed: Sequence[str] = ("question", "signal"),
) -> Questions:
    """The questions of a table (CSV, TSV, JSON, JSON lines or Parquet); `chosen` are the columns of some of ROLES.

    A cell of answers that is no list is one answer, or several if it holds the `separator`. Raises LongtailError for a
    role of `needed` or a column that is not there, an id that two rows have, and as `read_numbers` and `gold_answers`
    do. Answers are only read where the question is needed, which they answer.
    """
    chosen = dict(chosen or {})
    if unknown := next((role for role in chosen if role not in ROLES), None):
        raise LongtailError(f"--columns {unknown}=…: expected {', '.join(ROLES)} before the =")
    known = {plain(name) for names in (*ROLES.values(), TELLING, chosen.values()) for name in names}
    expected = " and ".join(f"one with the {role} ({', '.join(ROLES[role])})" for role in needed)
    layout, names, rows = read_any_records(path, known, f"{expected}, or --columns to name them")
    roles = {role: _column(path, role, names, role in needed, chosen) for role in ROLES}
    columns = {role: name for role, name in roles.items() if name}
    cells = columns_of(path, rows, known)
    texts = {
        role: list(map(as_text, cells[columns[role]]))
        for role in ("question", *LACKING, "month")
        if role in columns
    }
    n, signal, gold = len(next(iter(cells.values()))), [], columns.get("answers", "answers")
    if "signal" in columns:
        another = "; --columns signal=NAME names another column"
        signal = read_numbers(cells[columns["signal"]], f"{path}: {columns['signal']}", another)
    golds, firsts = (
        cells.pop(columns.get("answers", ""), [None] * n),
        list(map(as_text, cells.get("obj", ()))),
    )
    golds = golds if "question" in needed else [None] * n
    answers, answers_note = gold_answers(golds, f"{path}: {gold}", separator, firsts)
    if "signal" in needed and not any(map(math.isfinite, signal)):
        raise LongtailError(
            f"{path}: {columns['signal']} has no number in it, expected some; --columns signal=NAME names another"
        )
    ids = list(map(clean_id, cells[columns["id"]] if "id" in columns else range(1, n + 1)))
    if len(set(ids)) < n:
        twice, _ = Counter(ids).most_common(1)[0]
        raise LongtailError(
            f"{path}: the {columns['id']} {twice} is of two rows, expected every id once; drop one, or name another "
            "column with --columns id=NAME"
        )
    groups = {
        text: BY_NAME.get(text, text) or NO_GROUP for text in set(texts.get("group", [EVERYTHING]))
    }
    subjects = [subject or id_ for subject, id_ in zip(texts.get("subject", ids), ids, strict=True)]
    joined_by = {
        name: cells[name]
        for name in dict.fromkeys(("question_id", "id", columns.get("id")))
        if name in cells
    }
    by_authors = columns.get("signal") == "s_pop" and {"s_uri", "o_uri", "id"} <= cells.keys()
    by_authors = by_authors and all(id_.isdecimal() and int(id_) < LARGEST_PUBLISHED for id_ in ids)
    months = sorted({*texts.get("month", [PUBLISHED_MONTH * by_authors])} - {""})
    telling = {name: list(map(as_text, cells[name])) for name in TELLING if name in cells}
    return Questions(
        name=path.name,
        layout=layout,
        asked=Asked(texts.get("question", []), answers, joined_by, telling),
        ids=ids,
        groups=np.array(
            [groups[text] for text in texts.get("group", [EVERYTHING] * n)], dtype=object
        ),
        names={
            key: RELATIONS[key].name if key in RELATIONS else key
            for key in sorted(set(groups.values()))
        },
        subjects=np.array(subjects, dtype=object),
        signal=np.array(signal),
        columns={role: name for role, name in columns.items() if role != "month"},
        month=f"{months[0]} to {months[-1]}" if len(months) > 1 else next(iter(months), None),
        answers_note=answers_note,
    )


def _column(
    path: Path, role: str, names: Sequence[str], needed: bool, chosen: Mapping[str, str]
) -> str | None:
    """The column of the table's that has this role; None if the table has none and can do without."""
    there = set(map(plain, names))
    if role in chosen:
        if plain(chosen[role]) not in there:
            raise LongtailError(
                f"{path}: no column {chosen[role]!r} for {role}, expected one of {listed(names)}"
            )
        return plain(chosen[role])
    column = next((name for name in ROLES[role] if name in there), None)
    if column is None and needed:
        raise LongtailError(
            f"{path}: no column with the {role}, expected {' or '.join(ROLES[role])}; its columns are {listed(names)}, "
            f"name one of them with --columns {role}=NAME, or a field of its objects with {role}=NAME.FIELD"
        )
    return column
