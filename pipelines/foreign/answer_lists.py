"""Columns of gold answers: lists in JSON or as Python writes them, objects of TriviaQA and others,
and texts.
"""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import as_text, clean_id, composed
from pipelines.sources.streams import parse_json

SEPARATORS = ("|", ";", "\n", "\t", ",")  # may separate several answers in one text
# A separator in at least one of so many cells is no part of a single answer; a comma may be.
CELLS_PER_SEPARATOR = 20
LISTS_ADVICE = """write JSON lists, such as ["an answer", "another"]"""
ANSWER_FIELDS = ("value", "aliases", "target", "answer", "text")  # of an object that holds answers
NO_ANSWER = ("nan", "NaN", "<NA>")  # as pandas writes an empty cell
PYTHON_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
BRACKETED = re.compile(r"\[.*\]|\{.*\}", re.DOTALL)
LIST_BEGINNING = re.compile(r"""["]?\[\s*\\?['"]""")  # no single answer begins so


def gold_answers(cells: Sequence[Any], where: str) -> tuple[list[list[str]], str]:
    """The gold answers of each cell, and a line about what may surprise in how they are read.

    A cell that is no list is one answer. `where` names the column in messages. Raises
    LongtailError, naming the row, for a list that can't be read, and for texts that seem to be
    several answers.
    """
    answers = []
    cells_with: Counter[str] = Counter()
    for texts, cell in zip(read_lists(cells, where), cells, strict=True):
        if texts is None:
            text = as_text(cell) if isinstance(cell, str) else clean_id(cell)
            cells_with.update(mark for mark in SEPARATORS if mark in text)
            texts = [] if text in NO_ANSWER else [text]
        answers.append(texts)

    return answers, _separator_note(cells_with, len(cells), where)


def _separator_note(cells_with: Counter[str], n_cells: int, where: str) -> str:
    """A line about texts that may hold several answers; LongtailError where they seem to."""
    notes = []
    for mark, count in cells_with.most_common():
        is_common = count * CELLS_PER_SEPARATOR >= n_cells
        holds = f"{count:,} of {n_cells:,} cells of answers hold {mark!r}"
        if 2 * count > n_cells or (mark != "," and is_common):
            raise LongtailError(
                f"{where}: {holds}, which may be one answer or several; {LISTS_ADVICE}"
            )
        if mark != "," or is_common:
            notes.append(f"{holds}, and each is read as one answer; {LISTS_ADVICE} otherwise")
    return "; ".join(notes)


def read_lists(cells: Sequence[Any], where: str) -> list[list[str] | None]:
    """The texts of each cell that is a list or an object; None for a cell that is one text.

    Raises LongtailError, naming the row, for a list that is neither JSON nor Python. A text in
    brackets is such a list where most cells of the column are in brackets.
    """
    stripped = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    bracketed = sum(bool(BRACKETED.fullmatch(text)) for text in stripped)
    are_lists = 2 * bracketed > len(stripped)
    lists: list[list[str] | None] = []
    for row, cell in enumerate(cells, start=1):
        value = written_value(cell) if isinstance(cell, str) else cell
        if isinstance(value, list | dict):
            lists.append(_texts_of_list(value, f"{where} of row {row}"))
        elif isinstance(cell, str) and _is_damaged_list(cell.strip(), are_lists):
            shown = shorten(cell, 80, placeholder="…")
            raise LongtailError(
                f"{where} of row {row} is {shown}, no JSON list; write them by json.dumps"
            )
        else:
            lists.append(None if as_text(cell) else [])

    return lists


def _is_damaged_list(text: str, are_lists: bool) -> bool:
    """Whether a text that could not be read as a list is meant to be one."""
    if LIST_BEGINNING.match(text):
        return True
    return are_lists and text[:1] in ("[", "{")


def written_value(text: str) -> list | dict | None:
    """The list or object that a text is, in JSON or as Python writes it; None for any other text.

    Python joins texts that stand side by side, as NumPy's ['a' 'b'] are. So a list is Python's only
    if it has as many texts as the cell has texts in quotes.
    """
    text = text.strip()
    if text[:1] not in ("[", "{"):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        value = _python_value(text)
    return value if isinstance(value, list | dict) and value != {} else None


def _python_value(text: str) -> Any:
    """The value that Python writes so; None for what is none, or joins texts."""
    try:
        tree = ast.parse(text, mode="eval")
        value = ast.literal_eval(tree)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    n_texts = 0
    for node in ast.walk(tree):
        n_texts += isinstance(node, ast.Constant) and isinstance(node.value, str)
    return value if n_texts == len(PYTHON_TEXT.findall(text)) else None


def _texts_of_list(value: list | dict, where: str) -> list[str]:
    """The texts of a list or an object. Raises LongtailError for objects without any."""
    elements = value if isinstance(value, list) else [value]
    if len(elements) > 1 and any(isinstance(element, list) for element in elements):
        raise LongtailError(f"{where} is a list of lists, expected a list of texts")
    texts = _texts(value)
    if not texts and any(isinstance(element, dict) for element in elements):
        raise LongtailError(
            f"{where} is an object, or a list of them, without {', '.join(ANSWER_FIELDS)}"
        )
    return texts


def _texts(value: Any) -> list[str]:
    """The texts in a value; of an object, the distinct ones in its ANSWER_FIELDS."""
    if isinstance(value, str):
        return [composed(value)]
    texts: list[str] = []
    if isinstance(value, dict):
        for field in ANSWER_FIELDS:
            texts += _texts(value.get(field))
        return list(dict.fromkeys(texts))
    if isinstance(value, list):
        for element in value:
            texts += _texts(element)
        return texts
    number = clean_id(value)
    return [number] if number else []
