"""Tables as CSV files, with plain numbers, and harmless to spreadsheets; and as lines for a terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pipelines.intervals import Interval
from pipelines.report.page import Percent, Table, show

FORMULA = tuple("=+-@\t\r")  # what a formula begins with


def to_csv(table: Table) -> str:
    """The table with plain numbers, shares as shares; an Interval takes three columns, name, name_low and name_high."""
    wide = [any(isinstance(row[i], (Interval, Percent)) for row in table.rows) for i in range(len(table.head))]
    out = io.StringIO()
    lines = SimpleNamespace(write=lambda line: out.write(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(lines, lineterminator="\r\n")  # it quotes cells with one of both
    writer.writerow(
        [
            name
            for i, head in enumerate(table.head)
            for name in ((head, f"{head}_low", f"{head}_high") if wide[i] else (head,))
        ]
    )
    writer.writerows(
        [cell for i, value in enumerate(row) for cell in (_three(value) if wide[i] else (_plain(value),))]
        for row in table.rows
    )
    return out.getvalue()


def inert(table: Table) -> Table:
    """The table with an apostrophe before each text that a spreadsheet would take for a formula."""

    def text(cell: Any) -> Any:
        return f"'{cell}" if isinstance(cell, str) and cell[:1] in FORMULA and cell else cell

    return replace(table, head=[*map(text, table.head)], rows=[[*map(text, row)] for row in table.rows])


def to_lines(table: Table) -> Iterator[str]:
    """The table for a terminal: its head and a line for each row, with numbers to the right."""
    digits, numeric = table.digits, table.numeric
    rows = [[show(cell, digits=n) for cell, n in zip(row, digits, strict=True)] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.head, *rows, strict=True)]
    for row in (table.head, *rows):
        cells = (f"{cell:{'>' if right else '<'}{n}}" for cell, right, n in zip(row, numeric, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _three(value: Any) -> tuple[str, ...]:
    one = value.interval if isinstance(value, Percent) else value
    return tuple(map(_plain, (one.value, one.low, one.high))) if isinstance(one, Interval) else (_plain(value), "", "")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:z.0f}" if 1e10 <= abs(value) < 1e16 else f"{value:z.10g}"
    return "" if value is None else str(value)
