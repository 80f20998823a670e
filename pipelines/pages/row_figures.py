"""Figures whose places lie in rows below each other: bars, ranges and dumbbells."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipelines.intervals import Interval
from pipelines.pages.drawing import (
    GREYS,
    GROUND,
    INK,
    Canvas,
    Scale,
    Style,
    linear,
    logarithmic,
)
from pipelines.pages.section import Figure, Points, values_and_bounds
from pipelines.pages.values import label, show

EDGE = 16  # pixels beside a plot for half of a tick's text
BAR_HEIGHT = 9  # pixels
LANE_HEIGHT = 12  # of a bar or a range, with room below
DOT_ROW_HEIGHT = 18  # of a dumbbell
KEYS = {"bars": "box", "dumbbell": "mark"}  # kind of figure -> what stands in its legend


@dataclass(frozen=True)
class RowLayout:
    """Where the rows of a figure lie: names beside or above them, marks in lanes or on one line."""

    left: float  # of the plot, pixels
    head: float  # above the marks of a row
    height: float  # of a lane
    lanes: int
    names_beside: bool

    @property
    def step(self) -> float:
        return self.head + self.height * self.lanes + 6


@dataclass(frozen=True)
class Mark:
    """What a mark shows, how it looks, and the lines that the page says when it is pointed at."""

    value: Interval
    style: Style
    tip: Sequence[str]


def marks_by_place(points: Points) -> Points:
    """Place -> (series, figure) of each mark there."""
    by_place: Points = {}
    for name, marks in points.items():
        for place, value in marks:
            by_place.setdefault(place, []).append((name, value))
    return by_place


def draw_rows(canvas: Canvas, figure: Figure) -> float:
    """Places below each other, with a mark for each series; returns the height.

    A place that is a method has its colour, if the series have none: where all lie on one line, or
    there is only one.
    """
    points = figure.points
    by_place = marks_by_place(points)
    styles = _told_apart(canvas.styles, points if len(points) > 1 else by_place)
    key = KEYS.get(figure.kind, "line") if len(points) > 1 else ""
    top = canvas.legend([(label(name), styles[name]) for name in points], key)

    rows = _place_rows(canvas, figure.kind == "dumbbell", by_place, len(points))
    across = _scale_of_values(figure, rows.left + 8, canvas.width - 12)
    bottom = top + 8 + rows.step * len(by_place)
    canvas.x_grid(across, top + 6, bottom)
    for i, (place, marks) in enumerate(by_place.items()):
        row_y = top + 8 + i * rows.step + rows.head
        values = {name: value for name, value in marks if not math.isnan(value.value)}
        _name_row(canvas, rows, place, row_y)
        if figure.kind == "dumbbell":
            style = styles.get(place, GREYS[2])
            _join_first_two(canvas, across, style, values, list(points), row_y)

        for number, name in enumerate(points):
            if name not in values:
                continue
            style = styles[name]
            if len(points) == 1:
                style = styles.get(place, style)
            mark = Mark(values[name], style, (label(name), place, show(values[name])))
            lane = number % rows.lanes
            _draw_mark(canvas, figure, across, row_y + lane * rows.height, mark)

    return canvas.x_name(figure.y_axis.name, bottom, rows.left, canvas.width - 4)


def _draw_mark(canvas: Canvas, figure: Figure, across: Scale, y: float, mark: Mark) -> None:
    """A mark in the lane that begins at y."""
    if figure.kind == "dumbbell":
        _draw_dot(canvas, across, y + DOT_ROW_HEIGHT / 2, mark)
    elif figure.kind == "bars":
        _draw_bar(canvas, across, y, mark)
    else:
        _draw_range(canvas, across, y, mark, figure)


def _told_apart(styles: Mapping[str, Style], names: Sequence[str] | Points) -> dict[str, Style]:
    """The styles, where a name's bars are pale if an earlier name has the same colour."""
    told_apart = dict(styles)
    colours = set()
    for name in names:
        if name in told_apart:
            style = told_apart[name]
            told_apart[name] = replace(style, pale=style.colour in colours)
            colours.add(style.colour)
    return told_apart


def _place_rows(canvas: Canvas, on_one_line: bool, by_place: Points, series: int) -> RowLayout:
    longest = max(canvas.length(place) for place in by_place)
    names_beside = longest < 0.38 * canvas.width
    return RowLayout(
        left=longest + 8 if names_beside else EDGE,
        head=3 if names_beside else 1.5 * canvas.size,
        height=DOT_ROW_HEIGHT if on_one_line else LANE_HEIGHT,
        lanes=1 if on_one_line else series,
        names_beside=names_beside,
    )


def _name_row(canvas: Canvas, rows: RowLayout, place: str, y: float) -> None:
    if rows.names_beside:
        canvas.text(rows.left - 8, y + rows.height * rows.lanes / 2 + 4, place, "end")
        return
    # the axis and the grid do not touch the name
    canvas.line(0, y - 8, canvas.length(place) + 4, y - 8, GROUND, 1.5 * canvas.size)
    canvas.text(2, y - 4, place)


def _scale_of_values(figure: Figure, start: float, end: float) -> Scale:
    values = values_and_bounds(figure.points)
    if figure.kind == "bars":
        return linear([*values, 0.0], start, end, zero=True)
    if figure.y_axis.log:
        return logarithmic(_log_bounds(figure), start, end)
    return linear(values, start, end)


def _log_bounds(figure: Figure) -> tuple[float, float]:
    """The edges of a log axis, on which 0 and infinity lie."""
    finite = [value for value in values_and_bounds(figure.points) if 0 < value < math.inf] or [1.0]
    return min(finite) / 2, max(finite) * 2


def _draw_bar(canvas: Canvas, across: Scale, y: float, mark: Mark) -> None:
    """A lying bar from zero, with its interval as a line that is seen on bars of any colour."""
    value = mark.value
    length = across(value.value) - across(0)
    canvas.box(across(0), y, length, BAR_HEIGHT, mark.style, mark.tip)
    middle = y + BAR_HEIGHT / 2
    canvas.line(across(value.low), middle, across(value.high), middle, GROUND, 3.5)
    canvas.line(across(value.low), middle, across(value.high), middle, INK, 1.2)


def _draw_dot(canvas: Canvas, across: Scale, y: float, mark: Mark) -> None:
    """A mark; only one in ink has its interval, as a thin line. The page says all intervals."""
    value = mark.value
    if mark.style.colour == INK:
        canvas.line(across(value.low), y, across(value.high), y, INK, 1.2)
    canvas.marker(across(value.value), y, mark.style, mark.tip)


def _draw_range(canvas: Canvas, across: Scale, y: float, mark: Mark, figure: Figure) -> None:
    """A point and its range; on a log axis 0 and infinity lie on the two edges."""
    low = -math.inf
    high = math.inf
    if figure.y_axis.log:
        low, high = _log_bounds(figure)

    value = mark.value
    value_at = across(min(max(value.value, low), high))
    low_at = across(min(max(value.low, low), high))
    high_at = across(min(max(value.high, low), high))
    middle = y + BAR_HEIGHT / 2
    canvas.line(low_at, middle, high_at, middle, mark.style.colour, 2)
    words = f"{show(value.value)} [{show(value.low)}, {show(value.high)}]"
    canvas.marker(value_at, middle, mark.style, (*mark.tip[:2], words))


def _join_first_two(
    canvas: Canvas,
    across: Scale,
    style: Style,
    values: Mapping[str, Interval],
    series: Sequence[str],
    y: float,
) -> None:
    """The line of a dumbbell, from the first series to the second, where both are known."""
    ends = [across(values[name].value) for name in series[:2] if name in values]
    if len(ends) == 2:
        middle = y + DOT_ROW_HEIGHT / 2
        canvas.line(ends[0], middle, ends[1], middle, style.colour, 4)
