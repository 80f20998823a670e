"""Figures over months: panels with a line for each series, and a ring where a figure left its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipelines.intervals import NOTHING, Interval, difference
from pipelines.report.drawing import DASHES, INK, NARROW, PALETTE, WIDE, Canvas, Scale, grid, y_axis
from pipelines.report.figures import draw_figure
from pipelines.report.page import Figure, label, show

Points = Mapping[str, Interval]  # month, as 2026-10 -> figure; bounds are NaN where it has none
RING = " A ring: it changed beyond its interval since the month before."
ASIDE = 14  # pixels between the marks of two series, where there is one month alone
EVERY = (1, 2, 3, 6, 12, 24, 60, 120)  # months between ticks


@dataclass(frozen=True)
class Panel:
    """Lines with a common y axis; `log` is for popularities, of which 0 and infinity lie on the edges."""

    y: str
    series: Mapping[str, Points]
    log: bool = False


def changes(points: Points) -> dict[str, tuple[str, Interval]]:
    """Month -> (the month before it that has the figure, change from there); where the change has an interval."""
    steps = {now: (before, difference(points[now], points[before])) for before, now in pairwise(sorted(points))}
    return {month: step for month, step in steps.items() if not math.isnan(step[1].low)}


def said(figure: Interval) -> str:
    """The figure with its interval, if it has one."""
    value, low, high = (float(number) for number in (figure.value, figure.low, figure.high))
    if math.isnan(low):
        return show(value)
    return show(figure) if math.isfinite(value + low + high) else f"{show(value)} [{show(low)}, {show(high)}]"


def timeline(name: str, panels: Sequence[Panel], caption: str, *, rings: bool = True) -> Figure:
    """Panels, two beside each other if there is room; the text for who can't see it has each line's two ends.

    With `rings`, a figure has a ring where the interval of its change from the month before does not touch zero; the
    caption then says so.
    """
    keys = list(dict.fromkeys(key for panel in panels for key in panel.series))
    places = [_place(month) for panel in panels for points in panel.series.values() for month in points]

    def draw(canvas: Canvas) -> float:
        columns = 1 if canvas.width == NARROW or len(panels) == 1 else 2
        bottom = 0.0
        for start in range(0, len(panels), columns):
            ends = []
            for column, panel in enumerate(panels[start : start + columns]):
                part = Canvas(canvas.width if columns == 1 else NARROW, canvas.slots)
                part.size = canvas.size
                ends.append(_panel(part, panel, places, rings))
                shift = f'<g transform="translate({column * (WIDE - NARROW)} {bottom:.0f})">'
                canvas.parts += [shift, *part.parts, "</g>"]
            bottom += max(ends) + 14
        return bottom

    ends = "; ".join(
        f"{label(key)}, {panel.y}: " + " to ".join(f"{said(points[month])} in {month}" for month in _ends(points))
        for panel in panels
        for key, points in panel.series.items()
    )
    lines = [points for panel in panels for points in panel.series.values()]
    ringed = rings and any(change.sign for points in lines for _, change in changes(points).values())
    return draw_figure(name, keys, draw, "", caption + RING * ringed, f"Line chart by month. {ends}.")


def _panel(canvas: Canvas, panel: Panel, places: Sequence[int], rings: bool) -> float:
    """Draw a panel; returns where it ends."""
    top = 0.0
    if len(panel.series) > 1:
        top = canvas.legend([(label(key), canvas.slots[key]) for key in panel.series], 0)
    every = [f for points in panel.series.values() for f in points.values()]
    values = [value for f in every for value in (f.value, f.low, f.high) if math.isfinite(value)]
    left, top, bottom, up = y_axis(canvas, top, values, panel.y, log=panel.log)
    across = _months(canvas, places, left + 12, canvas.width - 14)
    grid(canvas, across, up, left)

    def at(value: float) -> float:
        return up(min(max(value, up.low), up.high))

    aside = {
        key: ASIDE * (number - (len(panel.series) - 1) / 2) * (len({*places}) == 1)
        for number, key in enumerate(panel.series)
    }
    for key, points in panel.series.items():
        slot = canvas.slots[key]
        known = [(across(_place(month)) + aside[key], points[month]) for month in sorted(points)]
        bounded = [(x, f) for x, f in known if not math.isnan(f.low)]
        if len(bounded) > 1:
            low, high = ([(x, at(getattr(f, end))) for x, f in bounded] for end in ("low", "high"))
            canvas.area([*low, *reversed(high)], PALETTE[slot], 0.1)
        for x, f in bounded if len(known) == 1 else ():
            canvas.line(x, at(f.low), x, at(f.high), PALETTE[slot], 1.5)
        if len(known) > 1:
            canvas.path([(x, at(f.value)) for x, f in known], PALETTE[slot], DASHES[slot])
    for key, points in panel.series.items():
        slot, moved = canvas.slots[key], changes(points) if rings else {}
        for month, f in sorted(points.items()):
            x, y = across(_place(month)) + aside[key], at(f.value)
            before, change = moved.get(month, ("", NOTHING))
            if change.sign:
                canvas.ring(x, y, INK)
            more = f", changed by {show(change, signed=True)} since {before}" * (change.sign != 0)
            canvas.marker(x, y, slot, (label(key), month, said(f) + more))
    return bottom + 2 * canvas.size


def _place(month: str) -> int:
    year, number = month.split("-")
    return 12 * int(year) + int(number) - 1


def _months(canvas: Canvas, places: Sequence[int], start: float, end: float) -> Scale:
    """A scale over all months, with ticks at so many of them as there is room for."""
    first, last = min(places), max(places)
    room = max(1, int((end - start) / (canvas.length("2026-10") + 12)))
    step = next((n for n in EVERY if (last - first) // n < room), EVERY[-1])
    marked = [place for place in range(first, last + 1) if place % step == 0] or [first]
    ticks = [(place, f"{place // 12}-{place % 12 + 1:02}") for place in marked]
    margin = 0.5 if first == last else 0
    return Scale(first - margin, last + margin, start, end, ticks)


def _ends(points: Points) -> list[str]:
    return list(dict.fromkeys((min(points), max(points))))
