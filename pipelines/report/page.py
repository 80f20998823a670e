"""What a page is made of: sections of text, tables and figures; and how values are shown, in CSV and on a terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

from pipelines import catalogue, methods
from pipelines.adaptive.pairs import BELOW
from pipelines.intervals import LEVEL, Interval, fixed, plainly
from pipelines.language import words
from pipelines.language.relations import RELATIONS

NONE = "\N{EN DASH}"
FORMULA = tuple("=+-@\t\r")  # what a spreadsheet's formula begins with
CELL = 2000  # characters that the page shows of a text in a table; its CSV file has all
RULES = {  # of being right, the first is the default -> what they ask of an answer
    "substring": "An answer is right if it contains a gold answer (substring, the published rule).",
    "word": "An answer is right if it holds a gold answer as whole words (word).",
}
AGREE = "Both rules of being right, substring and word, give the same here."
VERDICTS = (
    "shown",
    "the opposite",
    "no clear effect",
    "not testable",
)  # of findings, in the order of the page
LABELS = {
    "closed_book": "closed-book", "bm25": "BM25", "dense": "dense", "lsr": "LSR", "hybrid": "BM25 + dense",
    "reranked": "dense, reranked", "none": "no document", "random": "random documents", "genread": "GenRead",
    "replug": "REPLUG", "replug_lsr": "REPLUG LSR",
    "given": "given passages", "replug_given": "REPLUG, given passages",
}  # fmt: skip


@dataclass(frozen=True)
class Percent:
    """An Interval of shares, shown in per cent; `signed` for differences, shown in points."""

    interval: Interval
    signed: bool = False


class Share(float):
    """A share without an interval, shown in per cent; as a Percent, it is a share in CSV files."""


@dataclass(frozen=True)
class Table:
    """`rows` hold text, numbers, Shares, Intervals and Percents; `name` is the CSV file's.

    Of the columns in `rules`, head -> rule, the page shows those of one of RULES at a time; the CSV file has all.
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    rules: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[list[Any]]:
        """The cells of each column that hold something."""
        return [[row[i] for row in self.rows if row[i] is not None] for i in range(len(self.head))]

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, which are aligned to the right."""
        return [bool(cells) and all(map(numeric, cells)) for cells in self.columns]

    @property
    def digits(self) -> list[int]:
        """The digits after the point of the Intervals in each column, the same for all of a column."""
        return [
            _digits([cell for cell in cells if isinstance(cell, Interval)])
            for cells in self.columns
        ]


@dataclass(frozen=True)
class Figure:
    """An SVG drawing; `alt` says in words what it shows, and `rules` has the same figure by the other RULES.

    `drawn` makes it, wide and for a phone, with the style of each of its `series` (drawing.py:Style).
    """

    name: str
    caption: str
    alt: str
    series: tuple[str, ...]
    drawn: Callable[[Mapping[str, Any]], tuple[str, str]]
    rules: dict[str, Figure] = field(default_factory=dict)

    @property
    def by_rule(self) -> dict[str, Figure]:
        """Rule -> the figure by it; "" -> the figure, if it is of no rule."""
        return {next(iter(RULES)): self, **self.rules} if self.rules else {"": self}


@dataclass(frozen=True)
class Link:
    """A paragraph that leads to a file beside the page."""

    text: str
    href: str


Block = str | Link | Table | Figure


@dataclass(frozen=True)
class Finding:
    """A claim of a paper held against a figure: `expected` is the sign of a figure that supports it."""

    id: str
    paper: str
    claim: str  # a sentence that is true if the figure has the expected sign
    measured: str  # what the figure is, with its unit
    on: str  # the question set, corpus or benchmark
    method: str  # or the retriever, with the language model's name if that is not the main one
    said: str  # the figure
    beside: str  # further figures
    figure: Interval
    expected: int
    lacking: str = ""  # why the figure can show no effect
    remains: bool = (
        False  # whether its effect is clear even after Holm's correction for all findings
    )
    unit: str = ""  # of `said`: points, for which `figure` has shares; %; or none
    n: int = 0  # questions or texts that it is of

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        shown, opposite, unclear, not_testable = VERDICTS
        if self.lacking:
            return not_testable
        return {0: unclear, self.expected: shown}.get(self.figure.sign, opposite)

    @property
    def p(self) -> float:
        """The two-sided p-value of no effect, if errors are normal: the interval's side toward zero is 1.96 of them."""
        near = self.figure.low if self.figure.value > 0 else self.figure.high
        z = (
            NormalDist().inv_cdf(0.5 + LEVEL / 2)
            * self.figure.value
            / ((self.figure.value - near) or math.nan)
        )
        return math.erfc(z / math.sqrt(2)) if z >= 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """A row of findings.json; `shown` is true if the figure's whole interval has the expected sign."""
        names = ("id", "paper", "claim", "measured", "on", "method", "said", "beside", "lacking")
        row = {name: getattr(self, name) for name in names} | {"expected_sign": self.expected}
        tested = {"p": None if self.lacking else self.p, "remains_after_holm": self.remains}
        return (
            row
            | self.figure.as_json()
            | tested
            | {"verdict": self.verdict, "shown": self.verdict == "shown"}
        )


@dataclass(frozen=True)
class Section:
    """`missing` says what else there is no data for, if anything.

    `says` is what the section shows, in a sentence for each of RULES, or in one for "", for all; a section that has it
    leads with its first figure, and all else is folded.
    """

    id: str
    title: str
    blocks: list[Block] = field(default_factory=list)
    missing: str = ""
    says: Mapping[str, str] = field(default_factory=dict)


def by_rule(draw: Callable[[str], Figure]) -> Figure:
    """The figure that `draw` makes of the first of RULES, with those of the others."""
    drawn = {rule: draw(rule) for rule in RULES}
    drawn = {
        rule: replace(one, caption=f"{one.caption} {RULES[rule]}") for rule, one in drawn.items()
    }
    first, *others = drawn
    return replace(
        drawn[first],
        rules={rule: replace(drawn[rule], name=f"{drawn[rule].name}-{rule}") for rule in others},
    )


def label(name: str) -> str:
    """The name of a method, a retriever, a data set or two answers (adaptive/pairs.py:Choice) in the report.

    A further retriever's name follows its method, as LSR (bert).
    """
    if BELOW in name:
        tail, popular = (
            " of ".join(label(part) for part in reversed(side.split("/")))
            for side in name.split(BELOW)
        )
        return f"{tail} below {popular}"
    kind, retriever = methods.split(name)
    return (
        f"{LABELS[kind]} ({retriever})" if retriever else LABELS.get(name) or catalogue.label(name)
    )


def named(relation: str) -> str:
    """A relation as a reader knows it, such as "place of birth (P19)"."""
    return f"{RELATIONS[relation].name} ({relation})" if relation in RELATIONS else relation


def show(value: Any, signed: bool = False, digits: int | None = None) -> str:
    """A table cell as text: intervals as `value [low, high]`, unknown figures as a dash."""
    if isinstance(value, Percent):
        return show(value.interval.times(100), value.signed, 1)
    if isinstance(value, Share):
        return show(100 * float(value))
    if isinstance(value, Interval):
        if not math.isfinite(value.value):
            return NONE
        if digits is None:
            digits = _digits([value])
        figure, low, high = (
            fixed(number, digits, signed) for number in (value.value, value.low, value.high)
        )
        return _minus(f"{figure} [{low}, {high}]")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if math.isnan(value):
            return NONE
        return "∞" if math.isinf(value) else _minus(plainly(value, 3))
    return words.beginning("" if value is None else str(value), CELL) or NONE


def alone(value: Interval | Percent, digits: int | None = None) -> str:
    """A figure in a sentence, as `show` has it, without its interval."""
    return show(value, digits=digits).partition(" [")[0]


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def points(change: Interval) -> str:
    return (
        f"{show(Percent(change, signed=True))} points"
        if math.isfinite(change.value)
        else "an unknown amount"
    )


def numeric(value: Any) -> bool:
    return isinstance(value, (Interval, Percent, int, float)) and not isinstance(value, bool)


def to_csv(table: Table) -> str:
    """The table with plain numbers, shares as shares; an Interval takes three columns, name, name_low and name_high.

    A text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    wide = [any(isinstance(cell, Interval | Percent) for cell in cells) for cells in table.columns]
    ends = (("", "_low", "_high") if three else ("",) for three in wide)
    heads = [
        _plain(f"{head}{end}") for head, of in zip(table.head, ends, strict=True) for end in of
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    for row in table.rows:
        writer.writerow(
            [cell for value, three in zip(row, wide, strict=True) for cell in _cells(value, three)]
        )
    return out.getvalue()


def to_lines(table: Table) -> Iterator[str]:
    """The table for a terminal: its head and a line for each row, with numbers to the right."""
    digits, numeric = table.digits, table.numeric
    rows = [
        [show(cell, digits=n) for cell, n in zip(row, digits, strict=True)] for row in table.rows
    ]
    widths = [max(map(len, column)) for column in zip(table.head, *rows, strict=True)]
    for row in (table.head, *rows):
        cells = (
            f"{cell:{'>' if right else '<'}{n}}"
            for cell, right, n in zip(row, numeric, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _cells(value: Any, three: bool) -> list[str]:
    one = value.interval if isinstance(value, Percent) else value
    if isinstance(one, Interval):
        return [*map(_plain, (one.value, one.low, one.high))]
    return [_plain(value), "", ""] if three else [_plain(value)]


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return (
            ""
            if math.isnan(value)
            else f"{value:z.0f}"
            if 1e10 <= abs(value) < 1e16
            else f"{value:z.10g}"
        )
    text = "" if value is None else str(value).replace("\r", " ")  # csv does not quote it
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA) else text


def _digits(intervals: Sequence[Interval]) -> int:
    """How many digits after the point to show: fewer for larger numbers."""
    numbers = [
        abs(value) for i in intervals for value in (i.value, i.low, i.high) if math.isfinite(value)
    ]
    most = max(numbers, default=0.0)
    return 3 if most < 2 else 2 if most < 10 else 1 if most < 1000 else 0


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")
