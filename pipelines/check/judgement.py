"""Which expectations a run does not meet, and by how much."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines import intervals
from pipelines.check import history
from pipelines.check.expectations import Bounds, Expectation, NotWorse
from pipelines.intervals import Interval, plainly

ROUNDING = 1e-9  # a share that differs from its bound by less is at the bound


@dataclass(frozen=True)
class Unmet:
    """A value that is not as expected."""

    expectation: str
    problem: str  # what was measured where, and by how much it is beyond its bound

    def __str__(self) -> str:
        return f"{self.expectation}: {self.problem}"


def judge(expectations: Mapping[str, Expectation], runs: str, measures: pa.Table) -> list[Unmet]:
    """The values of a run (MEASURES) that are not as expected, by themselves or beside the
    `runs` that landed (history.name_history), in the order of the expectations.
    """
    unmet = []
    for row in measures.to_pylist():
        if not row["holds"]:
            unmet.append(Unmet(row["expectation"], _out_of_bounds(row)))
    for change in history.read_changes(runs, measures):
        name = change["expectation"]
        for problem in _problems(expectations[name], change):
            unmet.append(Unmet(name, problem))

    places = {name: place for place, name in enumerate(expectations)}
    return sorted(unmet, key=lambda failure: places[failure.expectation])


def _out_of_bounds(row: Mapping[str, Any]) -> str:
    """Say why a value does not hold in its month."""
    if row["detail"]:
        return f"{row['file']}: {row['detail']}"
    bounds = []
    if row["least"] is not None:
        bounds.append(f"at least {plainly(row['least'], 4)}")
    if row["most"] is not None:
        bounds.append(f"at most {plainly(row['most'], 4)}")
    value = plainly(row["value"], 4)
    return f"{row['measure']} of {row['file']}: {value}, expected {' and '.join(bounds)}"


def _problems(expectation: Expectation, change: Mapping[str, Any]) -> Iterator[str]:
    """Say how a value got worse since an earlier run, if it did so by more than is expected."""
    settings = expectation.expect.settings
    if isinstance(settings, NotWorse):
        yield from _worse_figure(settings, change)
    else:
        yield from _moved_value(expectation.expect.bounds, change)


def _moved_value(bounds: Bounds, change: Mapping[str, Any]) -> Iterator[str]:
    old = change["old_value"]
    if not old:
        return
    share = (change["value"] - old) / old
    limit = None
    if bounds.fall is not None and share < -bounds.fall - ROUNDING:
        limit = f"{bounds.fall:.3g} less"
    if bounds.rise is not None and share > bounds.rise + ROUNDING:
        limit = f"{bounds.rise:.3g} more"
    if limit:
        where = f"{change['measure']} of {change['file']}"
        values = f"{plainly(old, 4)} in {change['run']}, now {plainly(change['value'], 4)}"
        yield f"{where}: {values} ({share:+.1%}), expected at most the share {limit}"


def _worse_figure(settings: NotWorse, change: Mapping[str, Any]) -> Iterator[str]:
    now = _interval(change, "")
    before = _interval(change, "old_")
    difference = intervals.difference(now, before)
    if settings.better == "less":
        difference = difference.times(-1)
    allowed = settings.fall * abs(before.value)
    if difference.sign < 0 and -difference.value > allowed:
        where = f"{change['measure']} in {change['file']}"
        values = f"{_shown(before)} in {change['run']}, now {_shown(now)}"
        yield f"{where}: {values}, clearly worse by {plainly(-difference.value, 3)}"


def _interval(change: Mapping[str, Any], prefix: str) -> Interval:
    """A figure of a change; what has no interval is never clearly worse."""
    numbers = []
    for name in ("value", "low", "high"):
        number = change[f"{prefix}{name}"]
        numbers.append(math.nan if number is None else number)
    return Interval(*numbers)


def _shown(figure: Interval) -> str:
    return f"{plainly(figure.value, 3)} [{plainly(figure.low, 3)}, {plainly(figure.high, 3)}]"
