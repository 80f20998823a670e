"""Which expectations a run does not meet, and by how much."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines import intervals
from pipelines.check import baseline
from pipelines.check.baseline import Earlier, Key
from pipelines.check.expectations import Bounds, Expectation
from pipelines.intervals import Interval, plainly

LAST = "the last landed run"
REFERENCE = "the reference"
ROUNDING = 1e-9  # a share that differs from its bound by less is at the bound


@dataclass(frozen=True)
class Unmet:
    """A value that is not as expected."""

    key: Key
    value: float
    bound: float  # that the value is below, or above
    problem: str  # what was measured where, and by how much it is beyond its bound

    def __str__(self) -> str:
        return f"{self.key.expectation}: {self.problem}"


def judge(
    expectations: Mapping[str, Expectation], earlier: Mapping[Key, Earlier], measures: pa.Table
) -> list[Unmet]:
    """The values of a run (MEASURES) that are not as expected, by themselves or beside those of
    `earlier` runs, in the order of the expectations.
    """
    unmet = []
    for row in measures.to_pylist():
        if not row["holds"]:
            unmet.append(_out_of_bounds(row))
    for key, value in baseline.values(measures):
        if key in earlier:
            unmet += _moved_too_far(expectations[key.expectation], key, value, earlier[key])

    places = {name: place for place, name in enumerate(expectations)}
    return sorted(unmet, key=lambda failure: places[failure.key.expectation])


def _out_of_bounds(row: Mapping[str, Any]) -> Unmet:
    """A value that does not hold in its month, and why."""
    key = Key(row["expectation"], row["file"], row["measure"])
    value = row["value"]
    problem = f"{key.measure} of {key.file}: {plainly(value, 4)}"
    if row["detail"]:
        return Unmet(key, value, 0.0, f"{problem}, such as {row['detail']}")

    least = row["least"]
    most = row["most"]
    bound = most
    if least is not None and value < least:
        bound = least
    bounds = []
    if least is not None:
        bounds.append(f"at least {plainly(least, 4)}")
    if most is not None:
        bounds.append(f"at most {plainly(most, 4)}")
    return Unmet(key, value, bound, f"{problem}, expected {' and '.join(bounds)}")


def _moved_too_far(
    expectation: Expectation, key: Key, now: Interval, earlier: Earlier
) -> Iterator[Unmet]:
    """The value, where it clearly moved by more than is expected since the last run or the
    reference. It is said once if these two are the same.
    """
    bounds = expectation.expect.bounds
    runs = {LAST: earlier.last}
    if earlier.reference != earlier.last:
        runs[REFERENCE] = earlier.reference
    for run, old in runs.items():
        share = _clear_change(now, old)
        limit = _limit(bounds, share)
        if limit is None:
            continue
        amount = f"{abs(limit):.3g} {'less' if limit < 0 else 'more'}"
        values = f"{_shown(old)} in {run}, now {_shown(now)}"
        problem = f"{key.measure} of {key.file}: {values} ({share:+.1%})"
        bound = old.value + limit * abs(old.value)
        yield Unmet(key, now.value, bound, f"{problem}, expected at most the share {amount}")


def _clear_change(now: Interval, old: Interval) -> float:
    """By what share of the old value a value moved; 0 where the change may be chance."""
    moved = intervals.difference(now, old)
    if not old.value or not moved.sign:
        return 0.0
    return moved.value / abs(old.value)


def _limit(bounds: Bounds, share: float) -> float | None:
    """The share by which a value might have changed, if `share` is beyond that; else None."""
    if bounds.fall is not None and share < -bounds.fall - ROUNDING:
        return -bounds.fall
    if bounds.rise is not None and share > bounds.rise + ROUNDING:
        return bounds.rise
    return None


def _shown(figure: Interval) -> str:
    text = plainly(figure.value, 4)
    if figure.low < figure.high:
        text += f" [{plainly(figure.low, 4)}, {plainly(figure.high, 4)}]"
    return text
