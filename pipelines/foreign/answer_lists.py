"""Columns of gold answers: lists in JSON or as Python writes them, objects of TriviaQA and others,
and texts.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.cell_values import as_text, clean_id, composed
from pipelines.sources.streams import parse_json

SEPARATORS = ("|", ";", "\n", "\t", ",")  # may separate several answers in one text
# A separator in at least one of so many cells is no part of a single answer; a comma may be.
CELLS_PER_SEPARATOR = 20
TYPED_SEPARATORS = {r"\n": "\n", r"\t": "\t"}  # as a person types them
ANSWER_FIELDS = ("value", "aliases", "target", "answer", "text")  # of an object that holds answers
NO_ANSWER = ("nan", "NaN", "<NA>")  # as pandas writes an empty cell
PYTHON_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
BRACKETED = re.compile(r"\[.*\]|\{.*\}", re.DOTALL)
LIST_BEGINNING = re.compile(r"""\[\s*['"]""")  # no single answer begins so


def gold_answers(
    cells: Sequence[Any], where: str, separator: str = ""
) -> tuple[list[list[str]], str]:
    """The gold answers of each cell, and a line about what may surprise in how they are read.

    A cell that is no list is one answer, or several with the `separator` between them. `where`
    names the column in messages. Raises LongtailError, naming the row, for a list that can't be
    read; for a separator that no cell has; and, without a separator, for texts that seem to be
    several answers.
    """
    separator = TYPED_SEPARATORS.get(separator, separator)
    marks = (separator,) if separator else SEPARATORS
    cells_with = Counter[str]()
    answers = []
    for texts, cell in zip(read_lists(cells, where), cells, strict=True):
        if texts is None:
            text = _single_answer(cell)
            cells_with.update(mark for mark in marks if mark in text)
            texts = text.split(separator) if separator else [text]
            texts = [part.strip() for part in texts if part.strip()]
        answers.append(texts)

    if not separator:
        return answers, _separator_note(cells_with, len(cells), where)
    if not cells_with[separator]:
        raise LongtailError(
            f"{where}: no cell has --answers-separator {separator!r}, expected some; leave it out"
        )

    count = f"{cells_with[separator]:,} of {len(cells):,} cells of answers"
    return answers, f"{count} hold several, separated by {separator!r}"


def _single_answer(cell: Any) -> str:
    """The text of a cell that is no list; "" for none."""
    text = as_text(cell) if isinstance(cell, str) else clean_id(cell)
    return "" if text in NO_ANSWER else text


def _separator_note(cells_with: Counter[str], n_cells: int, where: str) -> str:
    """A line about texts that may hold several answers; LongtailError where they seem to."""
    notes = []
    for mark, count in cells_with.most_common():
        is_common = count * CELLS_PER_SEPARATOR >= n_cells
        holds = f"{count:,} of {n_cells:,} cells of answers hold {mark!r}"
        advice = f"if they hold several, say --answers-separator {mark!r}"
        if 2 * count > n_cells or (mark != "," and is_common):
            raise LongtailError(
                f"{where}: {holds}; {advice}; if each is one answer, write it as a JSON list of one"
            )
        if mark != "," or is_common:
            notes.append(f"{holds}, and each is read as one answer; {advice}")
    return "; ".join(notes)


def read_lists(cells: Sequence[Any], where: str) -> list[list[str] | None]:
    """The texts of each cell that is a list or an object; None for a cell that is one text.

    Raises LongtailError, naming the row, for a list that is neither JSON nor Python. A text in
    brackets is such a list where most cells of the column are in brackets.
    """
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    bracketed = sum(bool(BRACKETED.fullmatch(text)) for text in texts)
    are_lists = 2 * bracketed > len(texts)
    columns: list[list[str] | None] = []
    for row, cell in enumerate(cells, start=1):
        value = written_value(cell) if isinstance(cell, str) else cell
        if isinstance(value, list | tuple | dict):
            columns.append(_texts(value, f"{where} of row {row}"))
        elif isinstance(cell, str) and _is_damaged_list(cell.strip(), are_lists):
            raise _unreadable(f"{where} of row {row}", cell)
        elif as_text(cell) == "":
            columns.append([])
        else:
            columns.append(None)

    return columns


def _is_damaged_list(text: str, are_lists: bool) -> bool:
    """Whether a text that could not be read as a list is meant to be one."""
    return bool(LIST_BEGINNING.match(text)) or (are_lists and text[:1] in ("[", "{"))


def are_answer_lists(cells: Sequence[Any]) -> bool:
    """Whether all cells of a column are lists of gold answers, rather than what a model said."""
    for cell in cells:
        value = written_value(cell) if isinstance(cell, str) else cell
        if isinstance(value, dict) and value.keys().isdisjoint(("aliases", "target")):
            return False
        if isinstance(value, list) and any(isinstance(element, dict) for element in value):
            return False
    try:
        return all(read_lists(cells, ""))
    except LongtailError:
        return True


def written_value(text: str) -> list | tuple | dict | None:
    """The list or object that a text is, in JSON or as Python writes it; None for any other text.

    Python joins texts that stand side by side, as NumPy's ['a' 'b'] are. So a list is Python's only
    if it has as many texts as the cell has texts in quotes.
    """
    text = text.strip()
    if text[:1] not in ("[", "{", "(", '"'):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        value = _python_value(text)

    if isinstance(value, str) and value[:1] == "[":  # JSON within JSON
        return written_value(value)
    return value if isinstance(value, list | tuple | dict) and value != {} else None


def _python_value(text: str) -> Any:
    """The value that Python writes so; None for what is none, or joins texts."""
    if text[:1] == "(" and not PYTHON_TEXT.match(text[1:].lstrip()):
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if _count_texts(value) == len(PYTHON_TEXT.findall(text)) else None


def _count_texts(value: Any) -> int:
    """How many texts are anywhere in a value."""
    if isinstance(value, dict):
        return sum(map(_count_texts, value)) + sum(map(_count_texts, value.values()))
    if isinstance(value, list | tuple | set):
        return sum(map(_count_texts, value))
    return isinstance(value, str)


def _texts(value: Any, where: str) -> list[str]:
    """The texts of a list or an object.

    Raises LongtailError where it has none though it is not empty.
    """
    if isinstance(value, dict):
        return _texts_of_object(value, where)
    if len(value) == 1 and isinstance(value[0], list):
        return _texts(value[0], where)
    if any(isinstance(element, list) for element in value):
        raise LongtailError(f"{where} is a list of lists, expected a list of texts")

    texts = []
    for element in value:
        is_nan = isinstance(element, float) and math.isnan(element)
        if isinstance(element, str):
            texts.append(composed(element))
        elif isinstance(element, dict):
            if any(element.get(field) for field in ANSWER_FIELDS):
                texts += _texts_of_object(element, where)
        elif element is not None and not is_nan:
            texts.append(clean_id(element))

    if not texts and any(isinstance(element, dict) for element in value):
        raise LongtailError(f"{where} is a list of objects without {', '.join(ANSWER_FIELDS)}")
    return texts


def _texts_of_object(value: dict[str, Any], where: str) -> list[str]:
    """The distinct texts in an object's ANSWER_FIELDS."""
    texts = []
    for field in ANSWER_FIELDS:
        inside = value.get(field)
        if isinstance(inside, str):
            texts.append(inside)
        elif isinstance(inside, list | dict):
            texts += _texts(inside, where)
        elif inside is not None:
            texts.append(clean_id(inside))
    if value and not texts:
        raise LongtailError(f"{where} is an object without {', '.join(ANSWER_FIELDS)}")
    return list(dict.fromkeys(texts))


def _unreadable(where: str, cell: str) -> LongtailError:
    shown = " ".join(cell.split())
    if len(shown) > 80:
        shown = f"{shown[:80]}…"
    return LongtailError(f"{where} is {shown}, no JSON list; write them by json.dumps")
