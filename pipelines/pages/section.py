"""What a page is made of: sections of text, links, tables and figures; and the findings on a paper's claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.intervals import NORMAL, Interval
from pipelines.pages.values import digits_of, is_number

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
        return [bool(cells) and all(map(is_number, cells)) for cells in self.columns]

    @property
    def digits(self) -> list[int]:
        """The digits after the point of the Intervals in each column, the same for all of a column."""
        return [
            digits_of([cell for cell in cells if isinstance(cell, Interval)])
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
        z = NORMAL * self.figure.value / ((self.figure.value - near) or math.nan)
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
