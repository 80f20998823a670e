"""What the marks of a figure say, read back from its file, so that a later run's figure can be drawn over it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from pipelines.intervals import Interval

Before = Mapping[str, Mapping[str, Interval]]  # series -> place, as it is shown -> figure of an earlier run
NUMBER = r"\N{MINUS SIGN}?[\d,]+(?:\.\d+)?"
SAID = re.compile(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]")


def read(svg: str) -> Before:
    """The values of a figure, rounded as they are shown; nothing where marks have none with an interval."""
    found: dict[str, dict[str, Interval]] = {}
    for title in ElementTree.fromstring(svg).iterfind(".//{*}path[@class='mark']/{*}title"):
        match (title.text or "").split("\n"):
            case [series, place, said] if numbers := SAID.fullmatch(said):
                found.setdefault(series, {})[place] = Interval(*map(_number, numbers.groups()))
    return found


def placed(points: Mapping[str, Interval]) -> list[tuple[float, Interval]]:
    """The points whose place is a number, as those of lines are."""
    return [(_number(place), figure) for place, figure in points.items() if re.fullmatch(NUMBER, place)]


def values(before: Before) -> list[float]:
    return [figure.value for of_series in before.values() for figure in of_series.values()]


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))
