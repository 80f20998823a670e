"""The results that the papers' texts state as numbers, read from papers.yaml: a record for each number.

papers.yaml has a group for each table or passage. What a group says holds for all its numbers; its `columns` and `rows`
add to that. A row's `values` has a number for each column, null where the paper has none, and two numbers where an
exact repetition would not get what is printed: as printed, and what it would get.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("papers.yaml")


@dataclass(frozen=True)
class Number:
    """One published result, and what gives it here."""

    row: str
    column: str
    value: float  # as printed
    unit: str
    tolerance: float  # half a unit of the last printed digit (half of `rounding`), or what a "roughly" allows
    bound: str = ""  # "at most": the paper states a bound
    also: float | None = None  # what an exact repetition would get instead, as far as other printed numbers tell
    lm: list[str] = field(default_factory=list)  # names of the language model, of which one is enough; empty: any
    setups: list[str] = field(default_factory=list)  # names in `Papers.setups` of what a run must have
    find: dict[str, Any] = field(default_factory=dict)  # where ours is, as comparison.Run.measure takes it
    missing: str = ""  # what Longtail does not measure, where that is why there is no `find`

    @property
    def digits(self) -> int:
        """Decimal places that the paper prints."""
        return max(0, math.ceil(-math.log10(2 * self.tolerance) - 0.5))


@dataclass(frozen=True)
class Group:
    """A table, or a passage on a figure."""

    paper: str
    place: str
    what: str
    profile: str  # of conf/profile, on which a run is built that has what the numbers need
    notes: list[str]  # where the papers disagree, and what was decided
    numbers: list[Number]


@dataclass(frozen=True)
class Papers:
    """All published numbers."""

    models: dict[str, list[str]]  # "open", or why they can't be had -> language models that numbers name
    setups: dict[str, dict[str, Any]]  # name -> key of comparison.Run.setting -> what it must be
    groups: list[Group]
    drawn: list[dict[str, str]]  # a figure whose numbers no text states -> the `table` of data/analyses that has ours


def read_papers(path: Path = FILE) -> Papers:
    content, groups = yaml.safe_load(path.read_text(encoding="utf-8")), []
    for entry in content["groups"]:
        columns, rows = entry.pop("columns"), entry.pop("rows")
        described = {key: entry.pop(key, []) for key in ("paper", "place", "what", "profile", "notes")}
        numbers = [
            _number({"column": column["name"], "row": row["name"], "value": value}, entry, column, row)
            for row in rows
            for column, value in zip(columns, row["values"], strict=True)
            if value is not None
        ]
        groups.append(Group(**described, numbers=numbers))
    return Papers(content["models"], content["setups"], groups, content["drawn"])


def _number(number: dict, *levels: dict) -> Number:
    """A record of what the group, the column and the row say, of which a later one counts more."""
    if isinstance(number["value"], list):
        number["value"], number["also"] = number["value"]
    for level in levels:
        number |= {key: level[key] for key in level.keys() - {"name", "values", "rounding", "needs", "find"}}
        number["setups"] = [*number.get("setups", []), *level.get("needs", [])]
        number["find"] = number.get("find", {}) | level.get("find", {})
        if "rounding" in level:
            number["tolerance"] = level["rounding"] / 2
    if number.get("missing"):
        number |= {"find": {}, "setups": []}
    return Number(**number)
