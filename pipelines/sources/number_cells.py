"""Numbers in cells, with the marks that languages put between thousands and before decimals: 12,345.6 or 12.345,6."""

import math
import re
from collections.abc import Sequence
from typing import Any

from pipelines.errors import LongtailError

# A blank, an apostrophe or an underscore between groups of three digits can only group thousands.
GROUPING = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f'\u2019_](?=\d{3}(?:\D|$))")
MARKED = re.compile(r"[-+]?(\d*(?:[.,]\d+)+|\d+[.,])([eE][-+]?\d+)?")
GROUPED = {
    ".": r"[1-9]\d{0,2}(?:\.\d{3})+",
    ",": r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d\d)+,\d{3}",
}  # the last in India
OTHER = {".": ",", ",": "."}
UNKNOWN = ("NA", "N/A", "#N/A", "<NA>", r"\N", "null", "NULL", "None", "-")  # as R, Excel, pandas, MySQL write it


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
