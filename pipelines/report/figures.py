"""The report's figures: lines, bars and ranges, each drawn for a wide and for a narrow screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipelines.intervals import Interval
from pipelines.report.drawing import DASHES, INK, NARROW, PALETTE, WIDE, Canvas, Scale, linear, logarithmic
from pipelines.report.page import Figure, label, show

EDGE = 16  # pixels beside a plot for half of a tick's text
Points = Mapping[str, Sequence[tuple[Any, Interval]]]  # series -> (place, figure)


def lines(
    name: str, points: Points, *, x: str, y: str, caption: str, log_x: bool = False, zero: bool = False
) -> Figure:
    """Each series a line with its intervals as a band; `zero` draws the line of no difference.

    Places are numbers, or texts that stand side by side in their order, such as months. The text for who can't see it
    (`alt`) has the first and the last value of each line.
    """
    known = {key: [(place, f) for place, f in of if math.isfinite(f.value)] for key, of in points.items()}
    names = sorted({place for of in known.values() for place, _ in of if isinstance(place, str)})
    known = {key: [(names.index(place) if names else place, f) for place, f in of] for key, of in known.items()}

    def said(place: float) -> str:
        return names[int(place)] if names else show(place)

    ends = "; ".join(
        f"{label(key)}: {show(float(of[0][1].value))} at {said(of[0][0])} to "
        f"{show(float(of[-1][1].value))} at {said(of[-1][0])}"
        for key, of in known.items()
        if of
    )
    everywhere, values = [place for of in known.values() for place, _ in of], _values(known)

    def draw(canvas: Canvas) -> float:
        top = canvas.legend([(label(key), canvas.slots[key]) for key in points], 0)
        left, top, bottom, up = canvas.y_axis(top, [*values, *([0.0] if zero else [])], y)
        ends = left + 8, canvas.width - 10
        across = logarithmic(everywhere, *ends) if log_x else linear(everywhere, *ends, tight=True)
        if names:
            every = math.ceil(len(names) * (canvas.length(names[0]) + 12) / (ends[1] - ends[0]))
            across = replace(across, ticks=[(i, name) for i, name in enumerate(names) if i % every == 0])
        canvas.grid(across, up, left, zero)
        for key, of in known.items():
            band = [(across(place), up(f.low)) for place, f in of]
            band += [(across(place), up(f.high)) for place, f in reversed(of)]
            if len(of) > 1:
                canvas.area(band, PALETTE[canvas.slots[key]], 0.13)
        for key, of in known.items():
            slot = canvas.slots[key]
            if len(of) > 1:
                canvas.path([(across(place), up(f.value)) for place, f in of], PALETTE[slot], DASHES[slot])
            for place, f in of:
                if len(of) == 1:
                    canvas.line(across(place), up(f.low), across(place), up(f.high), PALETTE[slot], 1.5)
                canvas.marker(across(place), up(f.value), slot, (label(key), said(place), show(f)))
        return canvas.x_name(x, bottom, left)

    return _figure(name, points, draw, x, caption, f"Line chart of {y} by {x}. {ends}.")


def bars(name: str, points: Points, *, y: str, caption: str) -> Figure:
    """Groups of lying bars with error bars, one bar a series; places are names. `alt` has the value of each bar."""
    values = [*_values(points), 0.0]

    def mark(canvas: Canvas, across: Scale, at: float, slot: int, f: Interval, tip: Sequence[str]) -> None:
        canvas.box(across(0), at, across(f.value) - across(0), 9, PALETTE[slot], tip)
        canvas.line(across(f.low), at + 4.5, across(f.high), at + 4.5, INK, 1.2)

    def scale(start: float, end: float) -> Scale:
        return linear(values, start, end, zero=True)

    return _rows(name, points, mark, scale, y, caption, f"Bar chart of {y}. {_said(points)}.", swatch=True)


def ranges(name: str, points: Points, *, x: str, caption: str, log_x: bool = False) -> Figure:
    """A point and its range for each place, a name, and series; 0 and infinity lie on the two edges of a log axis."""
    finite = [value for value in _values(points) if 0 < value < math.inf] or [1.0]
    low, high = (min(finite) / 2, max(finite) * 2) if log_x else (-math.inf, math.inf)

    def mark(canvas: Canvas, across: Scale, at: float, slot: int, f: Interval, tip: Sequence[str]) -> None:
        value, *ends = (across(min(max(point, low), high)) for point in (f.value, f.low, f.high))
        canvas.line(ends[0], at + 4.5, ends[1], at + 4.5, PALETTE[slot], 2)
        canvas.marker(value, at + 4.5, slot, (*tip[:2], f"{show(f.value)} [{show(f.low)}, {show(f.high)}]"))

    def scale(start: float, end: float) -> Scale:
        return logarithmic((low, high), start, end) if log_x else linear(_values(points), start, end)

    said = "The table has the numbers" if log_x else _said(points)
    return _rows(name, points, mark, scale, x, caption, f"Dot plot of {x}. {said}.")


def _rows(
    name: str, points: Points, mark: Callable, scale: Callable, x: str, caption: str, alt: str, swatch: bool = False
) -> Figure:
    """Places below each other, with a mark for each series."""
    places = [*dict.fromkeys(place for of in points.values() for place, _ in of)]
    known = {key: dict(of) for key, of in points.items()}

    def draw(canvas: Canvas) -> float:
        top = canvas.legend([(label(key), canvas.slots[key]) for key in points], 0, swatch)
        longest = max(canvas.length(place) for place in places)
        beside = longest < 0.38 * canvas.width
        left, height, head = (longest + 8 if beside else EDGE), 12, 3 if beside else 1.5 * canvas.size
        step = head + height * len(points) + 6
        across, bottom = scale(left + 8, canvas.width - 12), top + 8 + step * len(places)
        canvas.x_grid(across, top + 6, bottom)
        for i, place in enumerate(places):
            start = top + 8 + i * step + head
            middle = (left - 8, start + height * len(points) / 2 + 4, place, "end")
            canvas.text(*(middle if beside else (2, start - 3, place)))
            for number, (key, of) in enumerate(known.items()):
                if place in of and not math.isnan(of[place].value):
                    tip = (label(key), place, show(of[place]))
                    mark(canvas, across, start + number * height, canvas.slots[key], of[place], tip)
        return canvas.x_name(x, bottom, left)

    return _figure(name, points, draw, "", caption, alt)


def _values(points: Points) -> list[float]:
    return [value for of in points.values() for _, f in of for value in (f.value, f.low, f.high)]


def _said(points: Points) -> str:
    return "; ".join(
        f"{label(key)}: {', '.join(f'{place} {show(float(f.value))}' for place, f in of)}" for key, of in points.items()
    )


def _figure(name: str, keys: Iterable[str], draw: Callable[[Canvas], float], x: str, caption: str, alt: str) -> Figure:
    """The figure that `draw` makes on a wide and on a narrow canvas; `keys` name its series."""
    names = {key: label(key) for key in keys}

    def drawn(chosen: Mapping[str, int]) -> tuple[str, str]:
        of_series = {key: chosen[shown] for key, shown in names.items()}
        wide, narrow = (Canvas(width, of_series) for width in (WIDE, NARROW))
        return wide.svg(draw(wide), alt, x), narrow.svg(draw(narrow), alt, x)

    return Figure(name, caption, alt, (*names.values(),), drawn)
