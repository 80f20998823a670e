"""Single values of files from elsewhere, as they are compared: texts, ids, numbers, judgements."""

import math
import re
import unicodedata
from collections.abc import Sequence
from html import unescape
from typing import Any

from pipelines.errors import LongtailError

INTEGER_AS_FRACTION = re.compile(r"(-?\d+)\.0+")  # as tables with empty cells write an integer
TRUTH = {"true": True, "1": True, "1.0": True, "yes": True}
TRUTH |= {"false": False, "0": False, "0.0": False, "no": False}
END_MARKS = "\"' ?.!"  # may stand at the ends of a question, or not
QUOTES = str.maketrans(
    "\u2018\u2019\u201b\u2032`\u00b4\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", "'" * 6 + '"' * 7
)
UNKNOWN_NUMBERS = (
    "",
    "na",
    "n/a",
    "#n/a",
    "<na>",
    r"\n",
    "null",
    "none",
    "nan",
    "inf",
    "-inf",
    "-",
)
# Such a number is a thousand times as large in languages that group thousands by full stops.
GROUPED_BY_POINTS = re.compile(r"[-+]?[1-9]\d{0,2}(?:\.\d{3})+")


def as_text(value: Any) -> str:
    """A cell as NFC without white space around it; "" for none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return composed(str(value).strip())


def composed(text: str) -> str:
    """A text as NFC."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def clean_id(value: Any) -> str:
    """An id as text; 4222362.0, as tables with empty cells have it, is 4222362."""
    text = as_text(value)
    match = INTEGER_AS_FRACTION.fullmatch(text)
    return match[1] if match else text


def folded(text: str) -> str:
    """A text for comparison: NFC, without capitals, with single blanks."""
    return " ".join(as_text(text).casefold().split())


def text_key(text: str) -> str:
    """A question for comparison: folded, with straight quotes, without HTML's entities and
    END_MARKS.
    """
    if "&" in text:
        text = unescape(text)
    if not text.isascii():
        text = text.translate(QUOTES)
    return folded(text).strip(END_MARKS)


def as_set(answers: Sequence[str]) -> frozenset[str]:
    """Answers for comparison."""
    return frozenset(map(folded, answers)) - {""}


def judgement(value: Any) -> bool | None:
    """Whether a cell says right or wrong; None if it says neither."""
    return TRUTH.get(as_text(value).lower())


def number_of(cell: Any) -> float | None:
    """A cell's number, NaN for an unknown or infinite one, None for what is no number."""
    if cell is None or isinstance(cell, bool):
        return math.nan
    if isinstance(cell, str) and cell.strip().lower() in UNKNOWN_NUMBERS:
        return math.nan
    try:
        number = float(cell)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else math.nan


def read_numbers(cells: Sequence[Any], where: str, advice: str = "") -> list[float]:
    """A column's numbers, NaN where a cell is empty or infinite.

    Raises LongtailError for a cell that is no number, and where all numbers may be grouped by
    points, as 12.345 is twelve thousand in some languages. `where` names the column in the message,
    and `advice` ends it.
    """
    numbers = []
    for row, cell in enumerate(cells, start=1):
        number = number_of(cell)
        if number is None:
            raise LongtailError(
                f"{where} of row {row} is {str(cell).strip()[:80]!r}, expected a number such as "
                f"12345.6, or nothing where it is not known{advice}"
            )
        numbers.append(number)

    with_points = {}  # row -> its number
    for row, cell in enumerate(cells, start=1):
        if isinstance(cell, str) and "." in cell:
            with_points[row] = cell.strip()
    if with_points and all(map(GROUPED_BY_POINTS.fullmatch, with_points.values())):
        row, text = next(iter(with_points.items()))
        integer = text.replace(".", "")
        raise LongtailError(
            f"{where} of row {row} is {text}, which is {integer} in one language and {text} in "
            f"another, and no row says which; write {integer} or {text}0"
        )

    return numbers
