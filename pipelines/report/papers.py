"""The papers' published numbers, as papers.yaml has them.

The file has a group for each table or passage. What a group says holds for all its numbers; its
`columns` and `rows` add to that. A row's `values` has a number for each column, null where the
paper has none, and two numbers where an exact repetition would not get what is printed: as printed,
and what it would get.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("papers.yaml")
OF_GROUP = ("paper", "place", "what", "profile", "notes")  # what of an entry is not of its numbers
NOT_INHERITED = {"name", "values", "rounding", "needs", "find"}


@dataclass(frozen=True)
class Number:
    """One published result, and what gives it here."""

    row: str
    column: str
    value: float  # as printed
    unit: str
    tolerance: float  # half a unit of the last printed digit, or what a "roughly" allows
    bound: str = ""  # "at most": the paper states a bound
    also: float | None = None  # what an exact repetition would get, as other printed numbers tell
    lm: list[str] = field(default_factory=list)  # names of the language model; empty: any
    setups: list[str] = field(default_factory=list)  # in `Papers.setups`: what a run must have
    find: dict[str, Any] = field(default_factory=dict)  # where ours is, as Run.measure takes it
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

    models: dict[str, list[str]]  # "open", or why they can't be had -> language models
    setups: dict[str, dict[str, Any]]  # name -> key of Run.setting -> what it must be
    groups: list[Group]
    drawn: list[dict[str, str]]  # a figure without printed numbers -> the `table` that has ours


def read_papers(path: Path = FILE) -> Papers:
    """The content of papers.yaml."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    groups = [_group(entry) for entry in content["groups"]]
    return Papers(content["models"], content["setups"], groups, content["drawn"])


def _group(entry: Mapping[str, Any]) -> Group:
    described = {key: entry.get(key, []) for key in OF_GROUP}
    shared = {key: entry[key] for key in entry.keys() - {*OF_GROUP, "columns", "rows"}}
    numbers = []
    for row in entry["rows"]:
        for column, value in zip(entry["columns"], row["values"], strict=True):
            if value is not None:
                numbers.append(_number(value, shared, column, row))
    return Group(**described, numbers=numbers)


def _number(
    value: float | list[float],
    group: Mapping[str, Any],
    column: Mapping[str, Any],
    row: Mapping[str, Any],
) -> Number:
    """A number of what its group, its column and its row say, of which a later one counts more."""
    fields: dict[str, Any] = {"column": column["name"], "row": row["name"], "value": value}
    if isinstance(value, list):
        fields["value"], fields["also"] = value

    setups: list[str] = []
    find: dict[str, Any] = {}
    for level in (group, column, row):
        for key in level.keys() - NOT_INHERITED:
            fields[key] = level[key]
        setups += level.get("needs", [])
        find |= level.get("find", {})
        if "rounding" in level:
            fields["tolerance"] = level["rounding"] / 2
    if fields.get("missing"):
        return Number(**fields)
    return Number(**fields, setups=setups, find=find)
