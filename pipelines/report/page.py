"""What the report's page is made of: sections of text, tables and figures, and how they become HTML and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from pipelines import catalogue, methods, neutral, words
from pipelines.adaptive.pairs import BELOW
from pipelines.intervals import Interval, fixed, plainly
from pipelines.relations import RELATIONS

NONE = "\N{EN DASH}"
TEMPLATES = Path(__file__).parent / "templates"
FORMULA = tuple("=+-@\t\r")  # what a formula begins with
CELL = 2000  # characters that the page shows of a text in a table; its CSV file has all
LABELS = {
    "closed_book": "closed-book",
    "bm25": "BM25",
    "dense": "dense",
    "lsr": "LSR",
    "hybrid": "BM25 + dense",
    "reranked": "dense, reranked",
    "none": "no document",
    "random": "random documents",
    "genread": "GenRead",
    "replug": "REPLUG",
    "replug_lsr": "REPLUG LSR",
    "replug_random": "REPLUG, random documents",
    "replug_bm25": "REPLUG, BM25's documents",
}


@dataclass(frozen=True)
class Percent:
    """An Interval of shares, shown in per cent; `signed` for differences, shown in points."""

    interval: Interval
    signed: bool = False


class Share(float):
    """A share without an interval, shown in per cent; as a Percent, it is a share in CSV files."""


@dataclass(frozen=True)
class Marked:
    """A text in parts: every second part is marked, as an answer in a passage is."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(self.parts)

    @property
    def shown(self) -> list[str]:
        """The parts of the first CELL characters."""
        ends = np.cumsum([len(part) for part in self.parts])
        parts = [part[: max(0, CELL - end + len(part))] for part, end in zip(self.parts, ends.tolist(), strict=True)]
        return [*parts, "", "…"] if ends[-1] > CELL else parts


@dataclass(frozen=True)
class Table:
    """`rows` hold text (some Marked), numbers, Shares, Intervals and Percents; `name` is the CSV file's."""

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, which are aligned to the right."""
        columns = ([cell for cell in column if cell is not None] for column in zip(*self.rows, strict=True))
        return [bool(cells) and all(map(numeric, cells)) for cells in columns] or [False] * len(self.head)

    @property
    def digits(self) -> list[int]:
        """The digits after the point of the Intervals in each column, the same for all of a column."""
        columns = ([cell for cell in column if isinstance(cell, Interval)] for column in zip(*self.rows, strict=True))
        return [_digits(cells) for cells in columns] or [0] * len(self.head)


@dataclass(frozen=True)
class Figure:
    """An SVG drawing; `alt` says in words what it shows, `narrow` is the same drawing for a phone.

    The reader can choose one of `choices` instead, the same figure of a part; `by` names the parts, such as "relation".
    `drawn` makes both drawings again, with the place of each of its `series` in the palette.
    """

    name: str
    svg: str
    caption: str
    alt: str
    narrow: str = ""
    by: str = ""
    choices: dict[str, Figure] = field(default_factory=dict)
    series: tuple[str, ...] = ()
    drawn: Callable[[Mapping[str, int]], tuple[str, str]] | None = None


@dataclass(frozen=True)
class Link:
    """A paragraph that leads to a file beside the page."""

    text: str
    href: str


Block = str | Link | Table | Figure


@dataclass(frozen=True)
class Finding:
    """A claim of the papers held against the numbers: `expected` is the sign of a figure that supports it."""

    id: str
    claim: str  # a sentence that is true if the figure has the expected sign
    measured: str  # the figure in a sentence
    figure: Interval
    expected: int

    @property
    def verdict(self) -> str:
        if not math.isfinite(self.figure.value):
            return "not measured"
        if self.figure.sign == 0:
            return "no clear effect"
        return "shown" if self.figure.sign == self.expected else "the opposite"

    @property
    def remark(self) -> str:
        """What a reader must be told if the claim does not hold."""
        return {
            "no clear effect": "The interval touches zero, so this run does not support the claim.",
            "the opposite": "This run shows the opposite of the claim.",
        }.get(self.verdict, "")


@dataclass(frozen=True)
class Section:
    """Blocks are paragraphs (str, Link), Tables and Figures; a section without blocks is not shown.

    `missing` says what else there is no data for, if anything.
    """

    id: str
    title: str
    blocks: list[Block] = field(default_factory=list)
    missing: str = ""


def label(name: str) -> str:
    """The name of a method, a retriever, a data set or two answers (adaptive/pairs.py:Choice) in the report.

    A further retriever's name follows its method, as LSR (bert).
    """
    if BELOW in name:
        tail, popular = (" of ".join(label(part) for part in reversed(side.split("/"))) for side in name.split(BELOW))
        return f"{tail} below {popular}"
    kind, retriever = methods.split(name)
    return f"{LABELS[kind]} ({retriever})" if retriever else LABELS.get(name) or catalogue.label(name)


def named(relation: str) -> str:
    """A relation as a reader knows it, such as "place of birth (P19)"; one that has no name here is its id."""
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
        figure, low, high = (fixed(number, digits, signed) for number in (value.value, value.low, value.high))
        return _minus(f"{figure} [{low}, {high}]")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if math.isnan(value):
            return NONE
        return "∞" if math.isinf(value) else _minus(plainly(value, 3))
    text = "" if value is None else str(value)
    return (text if len(text) <= CELL else f"{text[:CELL]}…") or NONE


def marked(text: str, name: str) -> Marked:
    """The text with a name marked wherever it stands whole, whatever its case."""
    return Marked(tuple(words.split(text, [name])))


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def numeric(value: Any) -> bool:
    return isinstance(value, (Interval, Percent, int, float)) and not isinstance(value, bool)


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


def standalone(figure: Figure) -> str:
    """The figure as a file of its own, in fixed colours on a light ground."""
    style = '<svg style="background: #fcfcfa; font-family: system-ui, sans-serif" '
    return re.sub(r"var\(--\w+,(#\w+)\)", r"\1", figure.svg).replace("<svg ", style, 1) + "\n"


def as_json(finding: Finding) -> dict[str, Any]:
    """A row of findings.json; `shown` is true if the figure's whole interval has the expected sign."""
    row = {"id": finding.id, "claim": finding.claim, "measured": finding.measured, "expected_sign": finding.expected}
    return row | finding.figure.as_json() | {"verdict": finding.verdict, "shown": finding.verdict == "shown"}


def environment() -> jinja2.Environment:
    """The templates, with the tests and filters that all pages use. What they show is neutral, and escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else neutral.values(value),
    )  # fmt: skip
    made.policies["json.dumps_function"] = lambda value, **options: json.dumps(neutral.values(value), **options)
    made.tests |= {
        kind.__name__.lower(): lambda x, kind=kind: isinstance(x, kind) for kind in (Table, Figure, Link, Marked)
    }
    made.filters["show"] = show
    return made


def inline(name: str) -> str:
    """A stylesheet or a script, as text to put into the page, so that the page needs no other file."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def render(title: str, intro: str, findings: Sequence[Finding], sections: Sequence[Section], footer: str) -> str:
    """The whole page, self-contained; without findings it has no section of them."""
    template, verdicts = environment().get_template("report.html.j2"), Counter(finding.verdict for finding in findings)
    return template.render(
        title=title,
        intro=intro,
        findings=findings,
        verdicts=verdicts,
        sections=sections,
        footer=footer,
        css=inline("report.css"),
        script=inline("page.js"),
    )


def _digits(intervals: Sequence[Interval]) -> int:
    """How many digits after the point to show: fewer for larger numbers."""
    numbers = [abs(value) for i in intervals for value in (i.value, i.low, i.high) if math.isfinite(value)]
    most = max(numbers, default=0.0)
    return 3 if most < 2 else 2 if most < 10 else 1 if most < 1000 else 0


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def _three(value: Any) -> tuple[str, str, str]:
    interval = value.interval if isinstance(value, Percent) else value
    if not isinstance(interval, Interval):
        return _plain(value), "", ""
    return _plain(interval.value), _plain(interval.low), _plain(interval.high)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:z.0f}" if 1e10 <= abs(value) < 1e16 else f"{value:z.10g}"
    return "" if value is None else str(value)
