"""Tables and figures as text: CSV for spreadsheets, and lines for a terminal."""

import csv
import io
import math
from collections.abc import Iterator
from typing import Any

from pipelines.intervals import Interval
from pipelines.pages.section import Figure, Table
from pipelines.pages.values import Percent, label, show

FORMULA = tuple("=+-@\t\r")  # what a spreadsheet's formula begins with
BOUNDS = ("_low", "_high")  # of the two columns that follow a column of intervals


def to_csv(table: Table) -> str:
    """The table with plain numbers, and shares as shares.

    An Interval takes three columns: name, name_low and name_high. A text that a spreadsheet would
    take for a formula has an apostrophe before it.
    """
    has_intervals = [
        any(isinstance(cell, Interval | Percent) for cell in cells) for cells in table.columns
    ]
    head = []
    for name, wide in zip(table.head, has_intervals, strict=True):
        head.append(_plain(name))
        if wide:
            head += [_plain(f"{name}{bound}") for bound in BOUNDS]

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for row in table.rows:
        texts = []
        for cell, wide in zip(row, has_intervals, strict=True):
            texts += _csv_cells(cell, wide)
        writer.writerow(texts)

    return out.getvalue()


def _csv_cells(cell: Any, wide: bool) -> list[str]:
    """The texts of a cell: three in a column that has intervals, else one."""
    figure = cell.interval if isinstance(cell, Percent) else cell
    if isinstance(figure, Interval):
        return [_plain(figure.value), _plain(figure.low), _plain(figure.high)]
    if wide:
        return [_plain(cell), "", ""]
    return [_plain(cell)]


def _plain(value: Any) -> str:
    """A value as CSV has it: up to ten digits of a float, and no carriage return, which csv does
    not quote.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return f"{value:z.0f}" if 1e10 <= abs(value) < 1e16 else f"{value:z.10g}"

    text = "" if value is None else str(value).replace("\r", " ")
    if isinstance(value, str) and text.startswith(FORMULA):
        return f"'{text}"
    return text


def figure_csv(figure: Figure) -> str:
    """The values of a figure as it draws them: a row for each place, a column for each series."""
    values: dict[Any, dict[str, float]] = {}  # place -> series -> value
    for series, marks in figure.points.items():
        for place, value in marks:
            values.setdefault(place, {})[series] = value.value

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([figure.x, *(_plain(label(series)) for series in figure.points)])
    for place, by_series in values.items():
        writer.writerow([_plain(place), *(_plain(by_series.get(name)) for name in figure.points)])
    return out.getvalue()


def to_lines(table: Table) -> Iterator[str]:
    """The table for a terminal: its head and a line for each row, with numbers to the right."""
    rows = [list(table.head)]
    for row in table.rows:
        rows.append([show(cell, digits=n) for cell, n in zip(row, table.digits, strict=True)])

    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = []
        for text, is_numeric, width in zip(row, table.numeric, widths, strict=True):
            cells.append(text.rjust(width) if is_numeric else text.ljust(width))
        yield "  ".join(cells).rstrip()
