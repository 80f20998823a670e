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
# A blank, an apostrophe or an underscore between groups of three digits can only group thousands.
GROUPING = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f'\u2019_](?=\d{3}(?:\D|$))")
MARKED = re.compile(r"[-+]?(\d*(?:[.,]\d+)+|\d+[.,])([eE][-+]?\d+)?")
GROUPED = {
    ".": r"[1-9]\d{0,2}(?:\.\d{3})+",
    ",": r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d\d)+,\d{3}",
}  # the last in India
OTHER = {".": ",", ",": "."}
UNKNOWN = ("NA", "N/A", "#N/A", "<NA>", r"\N", "null", "NULL", "None", "-")  # as R, Excel, pandas, MySQL write it


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
    numbers: list[float] = []
    marked: dict[int, str] = {}  # row -> a text with a full stop or a comma in it
    shown: dict[str, int] = {}  # mark -> the first row that shows what it is: "." or "," begins decimals, "" is unclear
    for row, cell in enumerate(cells):
        number: float | None = math.nan
        if isinstance(cell, str) and (text := GROUPING.sub("", cell.strip())) and text not in UNKNOWN:
            if match := MARKED.fullmatch(text):
                marked[row] = text
                mark = _decimal_mark(match[1], exponent=bool(match[2]))
                number = None if mark is None else math.nan
                shown.setdefault(mark or "", row)
            else:
                number = _number(text)
        elif cell is not None and not isinstance(cell, bool | str):
            number = _number(cell)
        if number is None:
            said = f"{str(cell).strip()[:80]!r}, expected a number, or nothing where it is not known"
            raise LongtailError(f"{where} of row {row + 1} is {said}{more}")
        numbers.append(number if math.isfinite(number) else math.nan)
    unclear = shown.pop("", None)
    if len(shown) == 2:
        (row, one), (other_row, other) = ((row, marked[row]) for row in sorted(shown.values()))
        raise LongtailError(
            f"{where} is {one} in row {row + 1} and {other} in row {other_row + 1}, expected one way to write numbers; "
            "write all as 12345.6"
        )
    if unclear is not None and not shown:
        text = marked[unclear]
        thousands, decimals = re.sub("[.,]", "", text), text.replace(",", ".")
        raise LongtailError(
            f"{where} of row {unclear + 1} is {text}, which is {thousands} in one language and {decimals} in another, "
            f"and no row says which; write {thousands} or {decimals}0"
        )
    for row, text in marked.items():
        mark = next(iter(shown))
        numbers[row] = float(text.replace(OTHER[mark], "").replace(mark, "."))
    return numbers


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _decimal_mark(number: str, *, exponent: bool) -> str | None:
    """The mark that begins decimals, as far as this number shows it; "" where it does not, None if it is no number."""
    marks = re.findall("[.,]", number)
    last = marks[-1]
    if len(set(marks)) == 2:
        whole = number.rpartition(last)[0]
        return last if re.fullmatch(GROUPED[OTHER[last]], whole) else None
    grouped = re.fullmatch(GROUPED[last], number)
    if len(marks) > 1:
        return OTHER[last] if grouped and not exponent else None
    return "" if grouped and not exponent else last
