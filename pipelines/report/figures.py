"""The report's figures: lines, bars and ranges, each drawn for a wide and for a narrow screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pipelines.intervals import Interval
from pipelines.report.drawing import (
    DASHES,
    NARROW,
    PALETTE,
    WIDE,
    Canvas,
    Scale,
    error_bar,
    grid,
    linear,
    logarithmic,
    x_grid,
    x_name,
    y_axis,
)
from pipelines.report.page import Figure, label, show

EDGE = 16  # pixels beside a plot for half of a tick's text
LEAST = 7  # pixels of an upright bar; thinner bars lie down


def lines(
    name: str,
    series: dict[str, tuple[Sequence[float], Sequence[Interval]]],
    *,
    x: str,
    y: str,
    caption: str,
    log_x: bool = False,
    zero: bool = False,
    places: Sequence[str] = (),
) -> Figure:
    """Each series a line with its intervals as a band; `zero` draws the line of no difference.

    Where `places` have names, such as months, an x value is the number of one. The text for who can't see it (`alt`)
    has the first and the last value of each line.
    """

    def said(place: float) -> str:
        return places[int(place)] if places else show(place)

    known = {
        key: [(place, f) for place, f in zip(places, figures, strict=True) if math.isfinite(f.value)]
        for key, (places, figures) in series.items()
    }
    ends = "; ".join(
        f"{label(key)}: {show(float(points[0][1].value))} at {said(points[0][0])} to "
        f"{show(float(points[-1][1].value))} at {said(points[-1][0])}"
        for key, points in known.items()
        if points
    )
    everywhere = [place for points in known.values() for place, _ in points]
    values = [value for points in known.values() for _, f in points for value in (f.value, f.low, f.high)]

    def draw(canvas: Canvas) -> float:
        top = canvas.legend([(label(key), canvas.slots[key]) for key in series], 0)
        left, top, bottom, up = y_axis(canvas, top, [*values, *([0.0] if zero else [])], y)
        ends = left + 8, canvas.width - 10
        across = logarithmic(everywhere, *ends) if log_x else linear(everywhere, *ends, tight=True)
        if places:
            every = math.ceil(len(places) * (canvas.length(places[0]) + 12) / (ends[1] - ends[0]))
            across = replace(across, ticks=[(i, name) for i, name in enumerate(places) if i % every == 0])
        grid(canvas, across, up, left, zero)
        for key, points in known.items():
            band = [(across(place), up(f.low)) for place, f in points]
            band += [(across(place), up(f.high)) for place, f in reversed(points)]
            if len(points) > 1:
                canvas.area(band, PALETTE[canvas.slots[key]], 0.13)
        for key, points in known.items():
            if len(points) > 1:
                path = [(across(place), up(f.value)) for place, f in points]
                canvas.path(path, PALETTE[canvas.slots[key]], DASHES[canvas.slots[key]])
            for place, f in points:
                if len(points) == 1:
                    canvas.line(across(place), up(f.low), across(place), up(f.high), PALETTE[canvas.slots[key]], 1.5)
                canvas.marker(across(place), up(f.value), canvas.slots[key], (label(key), said(place), show(f)))
        return x_name(canvas, x, bottom, left)

    return draw_figure(name, series, draw, x, caption, f"Line chart of {y} by {x}. {ends}.")


def bars(
    name: str,
    groups: Sequence[str],
    series: dict[str, Sequence[Interval]],
    *,
    y: str,
    caption: str,
) -> Figure:
    """Groups of bars with error bars, one bar a series; they lie down if bars or group names don't fit upright.

    The text for who can't see it (`alt`) has the value of each bar.
    """
    numbers = "; ".join(
        f"{label(key)}: " + ", ".join(f"{group} {show(float(f.value))}" for group, f in zip(groups, row, strict=True))
        for key, row in series.items()
    )
    values = [value for figures in series.values() for f in figures for value in (f.value, f.low, f.high)]

    def draw(canvas: Canvas) -> float:
        room = (canvas.width - 50) / len(groups)
        fits = 0.84 * room / len(series) >= LEAST and all(canvas.length(group) <= room - 6 for group in groups)
        top = canvas.legend([(label(key), canvas.slots[key]) for key in series], 0, swatch=True)
        return (upright if fits else lying)(canvas, top)

    def upright(canvas: Canvas, top: float) -> float:
        left, top, bottom, up = y_axis(canvas, top, [*values, 0.0], y)
        across = Scale(0, len(groups), left, canvas.width - 4, [(i + 0.5, group) for i, group in enumerate(groups)])
        grid(canvas, across, up, left, True, rules=False)
        width = min(46, 0.84 * (across(1) - across(0)) / len(series))
        for number, (key, figures) in enumerate(series.items()):
            for i, f in enumerate(figures):
                at = across(i + 0.5) + (number - len(series) / 2) * width
                if math.isfinite(f.value):
                    tip = (label(key), groups[i], show(f))
                    canvas.box(at + 1, up(0), width - 2, up(f.value) - up(0), PALETTE[canvas.slots[key]], tip)
                    error_bar(canvas, (at + width / 2, up(f.low)), (at + width / 2, up(f.high)))
        return bottom + 2 * canvas.size

    def lying(canvas: Canvas, top: float) -> float:
        longest = max(canvas.length(group) for group in groups)
        beside = longest < 0.3 * canvas.width
        left, height = (longest + 8 if beside else EDGE), 11
        across = linear([*values, 0.0], left, canvas.width - 12, zero=True)
        head = 4 if beside else 1.6 * canvas.size
        bottom = top + 8 + len(groups) * (head + height * len(series) + 6)
        x_grid(canvas, across, top + 6, bottom)
        for i, group in enumerate(groups):
            start = top + 8 + i * (head + height * len(series) + 6) + head
            canvas.text(
                *((left - 8, start + height * len(series) / 2 + 4, group, "end") if beside else (2, start - 4, group))
            )
            for number, (key, figures) in enumerate(series.items()):
                at = start + number * height
                if math.isfinite((f := figures[i]).value):
                    tip = (label(key), group, show(f))
                    canvas.box(across(0), at, across(f.value) - across(0), height - 2, PALETTE[canvas.slots[key]], tip)
                    error_bar(canvas, (across(f.low), at + 4.5), (across(f.high), at + 4.5))
        return x_name(canvas, y, bottom, left)

    return draw_figure(name, series, draw, "", caption, f"Bar chart of {y}. {numbers}.")


def ranges(
    name: str,
    rows: Sequence[str],
    series: dict[str, Sequence[tuple[float, float, float]]],
    limits: tuple[float, float] | None,
    *,
    x: str,
    caption: str,
    alt: str,
) -> Figure:
    """A point and its range for each row and series, on a log axis; 0 and infinity lie on its two edges.

    The axis is linear where `limits` is None.
    """

    def draw(canvas: Canvas) -> float:
        top = canvas.legend([(label(key), canvas.slots[key]) for key in series], 0)
        longest = max(canvas.length(row) for row in rows)
        beside = longest < 0.38 * canvas.width
        left, height, head = (longest + 8 if beside else EDGE), 13, (2 if beside else 1.5 * canvas.size)
        step = head + height * len(series) + 6
        ends, edges = (left + 8, canvas.width - 12), (-math.inf, math.inf)
        if limits:
            edges = limits[0] / 2, limits[1] * 2
            across = logarithmic(edges, *ends)
        else:
            across = linear([point for points in series.values() for of_row in points for point in of_row], *ends)
        bottom = top + 8 + step * len(rows)
        x_grid(canvas, across, top + 6, bottom)
        for i, row in enumerate(rows):
            start = top + 8 + i * step + head
            canvas.text(
                *((left - 8, start + height * len(series) / 2 + 4, row, "end") if beside else (2, start - 1, row))
            )
            for number, (key, points) in enumerate(series.items()):
                at, (value, low, high) = start + (number + 0.5) * height, points[i]
                if any(point is None or math.isnan(point) for point in points[i]):
                    continue
                value_x, low_x, high_x = (across(min(max(point, edges[0]), edges[1])) for point in points[i])
                canvas.line(low_x, at, high_x, at, PALETTE[canvas.slots[key]], 2)
                tip = (label(key), row, f"{show(value)} [{show(low)}, {show(high)}]")
                canvas.marker(value_x, at, canvas.slots[key], tip)
        return x_name(canvas, x, bottom, left)

    return draw_figure(name, series, draw, "", caption, alt)


def draw_figure(
    name: str, keys: Iterable[str], draw: Callable[[Canvas], float], x: str, caption: str, alt: str
) -> Figure:
    """The figure that `draw` makes on a wide and on a narrow canvas; `keys` name its series."""
    names = {key: label(key) for key in keys}

    def drawn(chosen: Mapping[str, int]) -> tuple[str, str]:
        of_series = {key: chosen[shown] for key, shown in names.items()}
        wide, narrow = (Canvas(width, of_series) for width in (WIDE, NARROW))
        return wide.svg(draw(wide), alt, x), narrow.svg(draw(narrow), alt, x)

    return Figure(name, caption, alt, (*names.values(),), drawn)
