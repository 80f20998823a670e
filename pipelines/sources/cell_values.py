"""Values of cells whose writer nobody knows: texts, ids, judgements and numbers, however they are spelled."""

import math
import re
import unicodedata
from collections.abc import Sequence
from html import unescape
from typing import Any

from pipelines.errors import LongtailError

WHOLE = re.compile(r"(-?\d+)\.0+")  # an id that a table with empty cells made a fraction
TRUTH = {"true": True, "1": True, "1.0": True, "1,0": True, "yes": True}
TRUTH |= {"false": False, "0": False, "0.0": False, "0,0": False, "no": False}
MARKS = "\"' ?.!"  # which may stand at the ends of a question, or not
QUOTES = str.maketrans("\u2018\u2019\u201b\u2032`\u00b4\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", "'" * 6 + '"' * 7)
OTHER = {".": ",", ",": "."}
UNKNOWN = ("", "na", "n/a", "#n/a", "<na>", r"\n", "null", "none", "nan", "inf", "-inf", "-")  # of R, Excel, MySQL …
READINGS = {  # what begins decimals -> how numbers are written then; the other mark may group thousands
    ".": re.compile(r"[-+]?(?:\d*|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d*)?(?:[eE][-+]?\d+)?"),
    ",": re.compile(r"[-+]?(?:\d*|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d*)?"),
}


def clean_id(value: Any) -> str:
    """An id as text; 4222362.0, as tables with empty cells have it, is 4222362."""
    if type(value) is str and value.isdecimal():  # most are
        return value
    text = as_text(value)
    match = WHOLE.fullmatch(text)
    return match[1] if match else text


def as_text(value: Any) -> str:
    """A cell as NFC without white space around it; "" for none."""
    if type(value) is not str:  # most are
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        value = str(value)
    return composed(value.strip())


def folded(text: str) -> str:
    """A text for comparison: NFC, without capitals, with single blanks."""
    return " ".join(as_text(text).casefold().split())


def text_key(text: str) -> str:
    """A question for comparison: its `plain_text` without MARKS at its ends."""
    return plain_text(text).strip(MARKS)


def plain_text(text: str) -> str:
    """A text as NFC without capitals and HTML's entities, with single blanks and straight quotes."""
    text = unescape(text) if "&" in text else text
    return folded(text if text.isascii() else text.translate(QUOTES))


def as_set(answers: Sequence[str]) -> frozenset[str]:
    """Answers for comparison."""
    return frozenset(map(folded, answers)) - {""}


def composed(text: str) -> str:
    """A text as NFC."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def judgement(value: Any) -> bool | None:
    """Whether a cell says right or wrong; None if it says neither."""
    return TRUTH.get(as_text(value).lower())


def read_numbers(cells: Sequence[Any], where: str, more: str = "") -> list[float]:
    """A column's numbers, NaN where a cell is empty or infinite.

    A text such as 12.345 is 12345 in some languages: other cells of the column say which mark begins decimals. Raises
    LongtailError where none says it, where two contradict each other, and for a cell that is no number; `where` names
    the column in a message, and `more` ends it.
    """
    points, commas = ([number_of(cell, mark) for cell in cells] for mark in READINGS)
    for row, (cell, point, comma) in enumerate(zip(cells, points, commas, strict=True), start=1):
        if point is None and comma is None:
            said = f"{str(cell).strip()[:80]!r}, expected a number, or nothing where it is not known"
            raise LongtailError(f"{where} of row {row} is {said}{more}")
    if None in points and None in commas:
        one, other = sorted((commas.index(None), points.index(None)))
        raise LongtailError(
            f"{where} is {cells[one]} in row {one + 1} and {cells[other]} in row {other + 1}, expected one way to "
            "write numbers; write all as 12345.6"
        )
    if None in points or None in commas:
        return commas if None in points else points
    for row, (cell, point, comma) in enumerate(zip(cells, points, commas, strict=True), start=1):
        if point != comma and not math.isnan(point):
            thousands, decimals = re.sub("[.,]", "", cell.strip()), cell.strip().replace(",", ".")
            raise LongtailError(
                f"{where} of row {row} is {cell}, which is {thousands} in one language and {decimals} in another, "
                f"and no row says which; write {thousands} or {decimals}0"
            )
    return points


def number_of(cell: Any, mark: str = ".") -> float | None:
    """A cell's number where `mark` begins decimals, NaN for none, None for what is no number so."""
    if cell is None or isinstance(cell, bool) or (isinstance(cell, str) and cell.strip().lower() in UNKNOWN):
        return math.nan
    if isinstance(cell, str) and not READINGS[mark].fullmatch(cell.strip()):
        return None
    try:
        number = float(cell.replace(OTHER[mark], "").replace(mark, ".") if isinstance(cell, str) else cell)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else math.nan
