"""Check that no figure of a run is worse than in the last run that landed.

A figure is a number in a stage's metrics file. The figures of the last landed run of each profile
are kept in one file, LANDED. A run of a part of the pipeline replaces the figures of that part
only.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.intervals import Interval
from pipelines.storage.atomic import SCRATCH, write_json

LANDED = SCRATCH / "landed.json"  # profile -> metrics file -> figure -> value
MORE_IS_BETTER = re.compile(  # figures by their last key: quality, and how much was built
    r"accuracy|exact_match|adaptive|recall.*|.*matched_share|with_entity_share"
    r"|entities|triples|questions|documents|mentions|titles_with_views"
)
LESS_IS_BETTER = re.compile(r"(word_)?perplexity(?!_random).*|bpb(?!_random).*|loss|kl.*|rejected")


@dataclass(frozen=True)
class Regression:
    file: str  # a metrics file
    figure: str  # the keys of the figure in that file, with / between them
    before: float
    now: float

    @property
    def change(self) -> float:
        """How much the figure changed, as a share of what it was."""
        if not self.before:
            return math.inf
        return (self.now - self.before) / abs(self.before)

    def __str__(self) -> str:
        values = f"from {self.before:.4g} to {self.now:.4g} ({self.change:+.1%})"
        return f"{self.figure} of {self.file} {values}"


def find_regressions(
    profile: str, files: Iterable[Path], tolerance: float
) -> list[Regression] | None:
    """The figures of metrics `files` that are worse than in the profile's last landed run, the
    worst first.

    A figure is worse if it lost more than `tolerance` of what it was, and its interval does not
    hold the old value. Returns None if no run of the profile with one of these files has landed.
    """
    landed = _read_landed().get(profile, {})
    compared = [file for file in files if file.as_posix() in landed]
    if not compared:
        return None

    regressions = []
    for file in compared:
        before = landed[file.as_posix()]
        for name, now in _read_figures(file).items():
            if name in before and _is_worse(name, before[name], now, tolerance):
                regression = Regression(file.as_posix(), name, before[name], now.value)
                regressions.append(regression)

    return sorted(regressions, key=_order)


def _order(regression: Regression) -> tuple[float, str, str]:
    return -abs(regression.change), regression.file, regression.figure


def read_landed_figures(profile: str, file: Path) -> dict[str, float]:
    """The figures of a metrics file in the profile's last landed run; none if none has landed."""
    return _read_landed().get(profile, {}).get(file.as_posix(), {})


def keep_figures(profile: str, files: Iterable[Path]) -> None:
    """Keep the figures of a run that lands, for the next run to be compared with."""
    landed = _read_landed()
    figures_by_file = landed.setdefault(profile, {})
    for file in files:
        figures = {name: figure.value for name, figure in _read_figures(file).items()}
        figures_by_file[file.as_posix()] = figures
    write_json(LANDED, landed)


def _is_worse(name: str, before: float, now: Interval, tolerance: float) -> bool:
    key = name.rpartition("/")[2]
    if MORE_IS_BETTER.fullmatch(key):
        loss = before - now.value
    elif LESS_IS_BETTER.fullmatch(key):
        loss = now.value - before
    else:
        return False
    may_be_as_before = now.low <= before <= now.high
    return loss > tolerance * abs(before) and not may_be_as_before


def _read_landed() -> dict[str, dict[str, dict[str, float]]]:
    if not LANDED.is_file():
        return {}
    return json.loads(LANDED.read_text(encoding="utf-8"))


def _read_figures(file: Path) -> dict[str, Interval]:
    """The figures of a metrics file by their keys, with / between them; none if there is no
    file."""
    if not file.is_file():
        return {}
    return dict(_figures_below("", json.loads(file.read_text(encoding="utf-8"))))


def _figures_below(name: str, values: Any) -> Iterator[tuple[str, Interval]]:
    """Yield the figures below the keys `name`. Curves, which are lists, are left out.

    A figure without an interval has one of NaN, in which no value lies.
    """
    if isinstance(values, dict) and "value" in values:
        if values["value"] is not None:  # null where nothing could be measured
            low = values.get("low", math.nan)
            high = values.get("high", math.nan)
            yield name, Interval(values["value"], low, high)
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from _figures_below(f"{name}/{key}" if name else key, value)
    elif isinstance(values, int | float):
        yield name, Interval(values, math.nan, math.nan)
