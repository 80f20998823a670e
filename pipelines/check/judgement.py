"""Which expectations a run does not meet, and by how much."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines import intervals
from pipelines.check import history
from pipelines.check.expectations import Bounds, Expectation
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
        problem = _moved_too_far(expectations[name].expect.bounds, change)
        if problem:
            unmet.append(Unmet(name, problem))

    places = {name: place for place, name in enumerate(expectations)}
    return sorted(unmet, key=lambda failure: places[failure.expectation])


def _out_of_bounds(row: Mapping[str, Any]) -> str:
    """Say why a value does not hold in its month."""
    what = f"{row['measure']} of {row['file']}"
    value = plainly(row["value"], 4)
    if row["detail"]:
        return f"{what}: {value}, such as {row['detail']}"
    bounds = []
    if row["least"] is not None:
        bounds.append(f"at least {plainly(row['least'], 4)}")
    if row["most"] is not None:
        bounds.append(f"at most {plainly(row['most'], 4)}")
    return f"{what}: {value}, expected {' and '.join(bounds)}"


def _moved_too_far(bounds: Bounds, change: Mapping[str, Any]) -> str | None:
    """Say how a value moved since an earlier run, if it clearly did so by more than is expected."""
    old = Interval(change["old_value"], change["old_low"], change["old_high"])
    now = Interval(change["value"], change["low"], change["high"])
    moved = intervals.difference(now, old)
    if not old.value or not moved.sign:
        return None
    share = moved.value / abs(old.value)
    if bounds.fall is not None and share < -bounds.fall - ROUNDING:
        limit = f"{bounds.fall:.3g} less"
    elif bounds.rise is not None and share > bounds.rise + ROUNDING:
        limit = f"{bounds.rise:.3g} more"
    else:
        return None
    what = f"{change['measure']} of {change['file']}"
    values = f"{_shown(old)} in {change['run']}, now {_shown(now)}"
    return f"{what}: {values} ({share:+.1%}), expected at most the share {limit}"


def _shown(figure: Interval) -> str:
    text = plainly(figure.value, 4)
    if figure.low < figure.high:
        text += f" [{plainly(figure.low, 4)}, {plainly(figure.high, 4)}]"
    return text
