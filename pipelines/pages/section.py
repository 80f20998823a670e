"""What a page is made of: sections of text, links, tables and figures; and findings on the papers'
claims.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from pipelines.evaluation.tables import column
from pipelines.intervals import NORMAL, NOTHING, Interval
from pipelines.pages.values import digits_of, is_number, label

SHOWN = "shown"
OPPOSITE = "the opposite"
UNCLEAR = "no clear effect"
NOT_TESTABLE = "not testable"
VERDICTS = (SHOWN, OPPOSITE, UNCLEAR, NOT_TESTABLE)  # of findings, in the order of the page
SERIES_DRAWN = 10  # of a figure at most, one for each style; its table has all

Row = dict[str, Any]  # column -> value, as `evaluation/tables.py` reads them
Points = dict[str, list[tuple[Any, Interval]]]  # series -> (place, figure) of each mark


@dataclass(frozen=True)
class Table:
    """`rows` hold text, numbers, Shares, Intervals and Percents; `name` is the CSV file's.

    The page leaves out the columns `csv_only`, by their places.
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    csv_only: Sequence[int] = ()

    @property
    def on_page(self) -> Table:
        """The table as a page shows it."""
        shown = [i for i in range(len(self.head)) if i not in self.csv_only]
        head = [self.head[i] for i in shown]
        rows = [[row[i] for i in shown] for row in self.rows]
        return replace(self, head=head, rows=rows, csv_only=())

    @property
    def columns(self) -> list[list[Any]]:
        """The cells of each column that hold something."""
        columns = []
        for i in range(len(self.head)):
            columns.append([row[i] for row in self.rows if row[i] is not None])
        return columns

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, which are aligned to the right."""
        return [bool(cells) and all(map(is_number, cells)) for cells in self.columns]

    @property
    def digits(self) -> list[int]:
        """The digits after the point of the Intervals in each column, the same for all
        of a column.
        """
        digits = []
        for cells in self.columns:
            digits.append(digits_of(cell for cell in cells if isinstance(cell, Interval)))
        return digits


@dataclass(frozen=True)
class Axis:
    """An axis of a figure: its name, and whether it is logarithmic or has a line of zero."""

    name: str
    log: bool = False
    zero: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing of rows: `y` by `x`, with a line or a mark for each value of the column `series`.

    `x` and `y` are columns. Places along `x` are numbers or texts, values of `y` Intervals or
    numbers; shares are drawn in per cent. Only lines have an `x_axis`. With `by`, a column, a
    section shows a figure for each of its values.
    """

    name: str
    kind: Literal["lines", "bars", "ranges", "dumbbell"]
    rows: Sequence[Row]
    x: str
    y: str
    y_axis: Axis
    caption: str
    x_axis: Axis = Axis("")
    series: str = "series"
    low_is_good: bool = False  # decides which lines show their intervals
    min_marks: int = 1  # that a series must have, else there is no figure
    by: str = ""

    @cached_property
    def points(self) -> Points:
        """The marks of each series; none where there is nothing to draw."""
        n_known: Counter = Counter()  # series -> its marks with a known figure
        for row in self.rows:
            if not math.isnan(as_interval(row[self.y]).value):
                n_known[row[self.series]] += 1
        if max(n_known.values(), default=0) < self.min_marks:
            return {}

        points: Points = {name: [] for name in list(n_known)[:SERIES_DRAWN]}
        factor = 100 if column(self.y).unit in ("share", "points") else 1
        for row in self.rows:
            name = row[self.series]
            if name in points:
                place = label(row[self.x]) if isinstance(row[self.x], str) else row[self.x]
                points[name].append((place, as_interval(row[self.y]).times(factor)))
        return points

    def one_of(self, value: str, rows: Sequence[Row], caption: str = "") -> Figure:
        """The figure of these rows alone, which are those of `value`: its name and caption say
        so.
        """
        file_name = re.sub(r"[^\w.-]+", "-", value)
        return replace(
            self,
            name=f"{self.name}-{file_name}",
            rows=rows,
            caption=f"{label(value)}: {caption or self.caption}",
        )


@dataclass(frozen=True)
class Link:
    """A paragraph that leads to a file beside the page."""

    text: str
    href: str


Block = str | Link | Table | Figure


@dataclass(frozen=True)
class Section:
    """A section of a page, which leads with the sentence `leads` and its first figure; all else is
    folded.

    `missing` says what there is no data for, if anything.
    """

    id: str
    title: str
    blocks: list[Block] = field(default_factory=list)
    leads: str = ""
    missing: str = ""

    @property
    def shown(self) -> Section:
        """The section with a figure for each value of `by`, and without blocks that show
        nothing.
        """
        blocks: list[Block] = []
        for block in self.blocks:
            if isinstance(block, Figure) and block.by:
                groups = grouped(block.rows, block.by)
                blocks += [block.one_of(value, rows) for value, rows in groups.items()]
            else:
                blocks.append(block)
        return replace(self, blocks=[block for block in blocks if not is_empty(block)])

    @property
    def has_figures(self) -> bool:
        """Whether the section has a figure or a table."""
        return any(isinstance(block, Table | Figure) for block in self.blocks)


@dataclass(frozen=True)
class Finding:
    """A claim of a paper held against a figure: `expected` is the sign of a figure that supports
    it.
    """

    id: str
    paper: str
    claim: str  # a sentence that is true if the figure has the expected sign
    measured: str  # what the figure is, with its unit
    on: str  # the question set, corpus or benchmark
    method: str  # or the retriever, with the language model's name if that is not the main one
    said: str  # the figure as text
    beside: str  # further figures as text
    figure: Interval
    expected: int
    lacking: str = ""  # why the figure can show no effect
    remains: bool = False  # whether its effect is clear even after Holm's correction

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        if self.lacking:
            return NOT_TESTABLE
        if self.figure.sign == 0:
            return UNCLEAR
        return SHOWN if self.figure.sign == self.expected else OPPOSITE

    @property
    def is_lost_to_holm(self) -> bool:
        """Whether its effect is clear, but not after Holm's correction."""
        return self.verdict in (SHOWN, OPPOSITE) and not self.remains

    @property
    def p(self) -> float:
        """The two-sided p-value of no effect, as if errors were normal.

        The bound of the interval toward zero lies 1.96 standard errors from the figure.
        """
        figure = self.figure
        bound = figure.low if figure.value > 0 else figure.high
        if figure.value == bound:
            return 0.0
        z = NORMAL * figure.value / (figure.value - bound)
        return math.erfc(z / math.sqrt(2))

    def as_json(self) -> dict[str, Any]:
        """A row of findings.json; `shown` is true if the figure's whole interval has the expected
        sign.
        """
        return {
            "id": self.id,
            "paper": self.paper,
            "claim": self.claim,
            "measured": self.measured,
            "on": self.on,
            "method": self.method,
            "said": self.said,
            "beside": self.beside,
            "lacking": self.lacking,
            "expected_sign": self.expected,
            **self.figure.as_json(),
            "p": None if self.lacking else self.p,
            "remains_after_holm": self.remains,
            "verdict": self.verdict,
            "shown": self.verdict == SHOWN,
        }


def grouped(rows: Sequence[Row], group: str) -> dict[Any, list[Row]]:
    """The rows by their value of a column; values stand in the order of their first row."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[group], []).append(row)
    return groups


def as_interval(value: Any) -> Interval:
    """A value of a row as a figure; a number has no width, and None is no figure."""
    if isinstance(value, Interval):
        return value
    if value is None:
        return NOTHING
    number = float(value)
    return Interval(number, number, number)


def values_and_bounds(points: Points) -> list[float]:
    """The figures and the bounds of their intervals."""
    values = []
    for marks in points.values():
        for _, value in marks:
            values += [value.value, value.low, value.high]
    return values


def is_empty(block: Block) -> bool:
    """Whether a block shows nothing: no text, no row, no mark."""
    if isinstance(block, Table):
        return not block.rows
    if isinstance(block, Figure):
        return not block.points
    return isinstance(block, str) and not block
