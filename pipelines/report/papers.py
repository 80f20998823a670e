"""The papers' published figures, as papers.yaml has them.

The file has a group for each table or passage. What a group says holds for all its figures, and its
columns and rows add to that. A row's `values` has a figure for each column, null where the paper
has none, and two where an exact repetition would not get what is printed: as printed, and what it
would get.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines import yaml_files

FILE = Path(__file__).with_name("papers.yaml")


@dataclass(frozen=True)
class Published:
    """One published figure, and the name of ours."""

    paper: str
    place: str  # table or section
    what: str  # of the table or passage
    profile: str  # of conf/profile, which has the paper's set-up
    row: str
    column: str
    value: float  # as printed
    tolerance: float  # half a unit of the last printed digit, or what a "roughly" allows
    unit: str = ""
    bound: str = ""  # "at most": the paper states a bound
    also: float | None = None  # what an exact repetition would get, as other printed figures tell
    lm: list[str] = field(default_factory=list)  # names of the language model; empty: of none
    setup: list[str] = field(default_factory=list)  # of `Papers.setups`: what a run must have
    # `table` and `metric` of a run, `times` a factor, and the columns that pick the row, of a list
    # one; empty where `missing` says what no table has
    ours: dict[str, Any] = field(default_factory=dict)
    missing: str = ""

    @property
    def name(self) -> str:
        """The figure's row and column."""
        return f"{self.row}: {self.column}" if self.column else self.row

    @property
    def name_of_ours(self) -> str:
        """Where a run has ours, in words."""
        words = [f"{key} {value}" for key, value in self.ours.items() if key != "times"]
        return ", ".join(words)

    @property
    def digits(self) -> int:
        """Decimal places that the paper prints."""
        return max(0, math.ceil(-math.log10(2 * self.tolerance) - 0.5))


@dataclass(frozen=True)
class Papers:
    """All published figures."""

    gone: dict[str, list[str]]  # why they can't be had -> language models
    setups: dict[str, dict[str, Any]]  # name -> param -> what it must be, of a list one
    figures: list[Published]

    def reach(self, figure: Published) -> str:
        """Whether a run can still have the figure: "yes", or why not."""
        gone = {lm for lms in self.gone.values() for lm in lms}
        if figure.lm and gone.issuperset(figure.lm):
            return "no: its language model can't be had"
        if self.demands(figure).get("lsr.lm") in gone:
            return "no: LSR's teacher can't be had"
        return "no: no table has it" if figure.missing else "yes"

    def demands(self, figure: Published) -> dict[str, Any]:
        """Param -> what it must be, of a list one value."""
        demands: dict[str, Any] = {}
        for name in figure.setup:
            demands |= self.setups[name]
        return demands


def read_papers() -> Papers:
    """The content of papers.yaml."""
    content = yaml_files.read(FILE)
    figures: list[Published] = []
    for group in content["groups"]:
        figures += _figures(**group)
    return Papers(content["gone"], content["setups"], figures)


def _figures(columns: list[dict], rows: list[dict], **group: Any) -> Iterator[Published]:
    """The figures of a table or passage, row by row."""
    for row in rows:
        for column, value in zip(columns, row["values"], strict=True):
            fields = group | column | row | {"row": row["name"], "column": column["name"]}
            del fields["name"], fields["values"]
            fields["setup"] = []
            fields["ours"] = {}
            for level in (group, column, row):
                fields["setup"] += level.get("setup", [])
                fields["ours"] |= level.get("ours", {})
            if isinstance(value, list):
                value, fields["also"] = value
            if value is not None:
                yield Published(**fields, value=value)
