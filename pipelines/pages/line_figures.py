"""Figures of lines: each series is a line with its band of intervals and its name at the end."""

import math
from collections.abc import Sequence
from statistics import fmean

from pipelines.intervals import Interval
from pipelines.pages import drawing
from pipelines.pages.drawing import Canvas, Scale, linear, logarithmic
from pipelines.pages.section import Figure, Points, values_and_bounds
from pipelines.pages.values import label, show

BANDS_SHOWN = 3  # lines whose intervals are drawn; the others' show when they are pointed at
NAMES_AT_ENDS = 0.4  # of a drawing's width at most; longer names of lines are a legend


def known_lines(points: Points) -> Points:
    """The points whose figures are finite; series without any are left out."""
    lines = {}
    for name, marks in points.items():
        finite = [(place, value) for place, value in marks if math.isfinite(value.value)]
        if finite:
            lines[name] = finite
    return lines


def bands(lines: Points, low_is_good: bool) -> dict[str, bool]:
    """The lines that have a band, and whether it is shown: of the one without retrieval, and of the
    best on average.

    A band takes more than one mark, and an interval.
    """
    means = {}
    for name, marks in lines.items():
        if len(marks) > 1 and any(value.low < value.high for _, value in marks):
            means[name] = fmean(value.value for _, value in marks)
    best = sorted(means, key=means.__getitem__, reverse=not low_is_good)
    plain = [name for name in best if name in ("closed_book", "none")]
    first = list(dict.fromkeys([*plain[:1], *best]))[:BANDS_SHOWN]
    return {name: name in first for name in means}


def draw_lines(canvas: Canvas, figure: Figure) -> float:
    """Each series a line with its name at its end, or with a legend; returns the height."""
    lines = known_lines(figure.points)
    top = 0.0
    beside = 30 + max((canvas.length(label(name)) for name in lines), default=0.0)
    has_legend = beside > NAMES_AT_ENDS * canvas.width
    if has_legend:
        top = canvas.legend([(label(name), canvas.styles[name]) for name in lines])
        beside = 6

    values = values_and_bounds(lines)
    if figure.y_axis.zero:
        values.append(0.0)
    left, top, bottom, up = canvas.y_axis(top, values, figure.y_axis.name)
    right = canvas.width - 4 - beside
    across = _scale_of_places(lines, figure.x_axis.log, left + 8, right)
    canvas.grid(across, up, left, figure.y_axis.zero)

    ends = [up(marks[-1][1].value) for marks in lines.values()]
    labels = drawing.apart(ends, 1.2 * canvas.size, top, bottom)
    bands_shown = bands(lines, figure.low_is_good)
    for (name, marks), y in zip(lines.items(), labels, strict=True):
        with canvas.group("series"):
            if name in bands_shown:
                band = [(across(place), up(value.low)) for place, value in marks]
                band += [(across(place), up(value.high)) for place, value in reversed(marks)]
                canvas.band(band, canvas.styles[name].colour, bands_shown[name])
            _draw_line(canvas, name, marks, across, up)
            if not has_legend:
                _name_line(canvas, name, (across(marks[-1][0]), up(marks[-1][1].value)), right, y)

    return canvas.x_name(figure.x_axis.name, bottom, left, right)


def _scale_of_places(lines: Points, log: bool, start: float, end: float) -> Scale:
    places = []
    for marks in lines.values():
        places += [place for place, _ in marks]
    if log:
        return logarithmic(places, start, end)
    return linear(places, start, end, tight=True)


def _draw_line(
    canvas: Canvas,
    name: str,
    marks: Sequence[tuple[float, Interval]],
    across: Scale,
    up: Scale,
) -> None:
    """The line of a series with its marks; a single mark has a bar for its interval."""
    style = canvas.styles[name]
    if len(marks) > 1:
        line = [(across(place), up(value.value)) for place, value in marks]
        canvas.path(line, style.colour, style.dash)

    for place, value in marks:
        x = across(place)
        if len(marks) == 1:
            canvas.line(x, up(value.low), x, up(value.high), style.colour, 1.5)
        canvas.marker(x, up(value.value), style, (label(name), show(place), show(value)))


def _name_line(canvas: Canvas, name: str, end: tuple[float, float], right: float, y: float) -> None:
    """The name of a line to the right of the plot, joined to the line's end."""
    style = canvas.styles[name]
    canvas.line(end[0] + 4, end[1], right + 12, y, style.colour, 0.75)
    canvas.marker(right + 16, y, style)
    canvas.text(right + 24, y + 0.35 * canvas.size, label(name))
