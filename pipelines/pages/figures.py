"""How figures are drawn, for a wide and for a narrow screen: lines, bars, ranges and dumbbells."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from pipelines.intervals import Interval
from pipelines.pages import drawing
from pipelines.pages.drawing import (
    GREYS,
    GROUND,
    INK,
    NARROW,
    WIDE,
    Canvas,
    Scale,
    Style,
    linear,
    logarithmic,
)
from pipelines.pages.section import Figure, Points
from pipelines.pages.values import label, show

EDGE = 16  # pixels beside a plot for half of a tick's text
BANDS_SHOWN = 3  # lines whose intervals are drawn; the others' show when they are pointed at
NAMES_AT_ENDS = 0.4  # of a drawing's width at most; longer names of lines are a legend
BAR_HEIGHT = 9  # pixels
LANE_HEIGHT = 12  # of a bar or a range, with room below
DOT_ROW_HEIGHT = 18  # of a dumbbell
KEYS = {"bars": "box", "dumbbell": "mark"}  # kind of figure -> what stands in its legend
FIXED = {label(name): style for name, style in drawing.METHOD_STYLES.items()}


def fixed(name: str) -> Style | None:
    """The style of a method or policy by its name on a page; a retriever or model may follow it."""
    matching = []
    for method in FIXED:
        if name == method or name.startswith((f"{method} (", f"{method}, ")):
            matching.append(method)
    return FIXED[max(matching, key=len)] if matching else None


def draw(figure: Figure, styles: Mapping[str, Style]) -> tuple[str, str]:
    """The figure as SVG, wide and narrow; `styles` has one for each label of `styled_labels`."""
    styles_of_series = {name: styles[label(name)] for name in _styled_names(figure)}
    x_name = figure.x_axis.name if figure.kind == "lines" else ""
    drawings = []
    for width in (WIDE, NARROW):
        canvas = Canvas(width, styles_of_series)
        if figure.kind == "lines":
            height = _draw_lines(canvas, figure)
        else:
            height = _draw_rows(canvas, figure)

        drawings.append(canvas.svg(height, alt(figure), x_name))

    wide, narrow = drawings
    return wide, narrow


def styled_labels(figure: Figure) -> list[str]:
    """The labels of all that has a style in the figure: its series, and places that are methods."""
    return [label(name) for name in _styled_names(figure)]


def _styled_names(figure: Figure) -> list[str]:
    names = list(figure.points)
    if figure.kind == "lines":
        return names

    on_one_line = figure.kind == "dumbbell"
    for place in _by_place(figure.points):
        if fixed(place) or (on_one_line and " below " not in place):
            names.append(place)
    return names


def caption(figure: Figure) -> str:
    """The caption, with the lines that show their intervals where not all do."""
    if figure.kind != "lines":
        return figure.caption
    lines = _known_lines(figure.points)
    with_bands = _with_bands(lines, figure.low_is_good)
    if len(with_bands) == len(lines):
        return figure.caption
    names = ", ".join(map(label, with_bands))
    return (
        f"{figure.caption} The bands are those of {names}; pointing at another line shows its own."
    )


def alt(figure: Figure) -> str:
    """What a figure shows, in words: of lines the first, middle and last value, of others all."""
    name = figure.y_axis.name
    points = figure.points
    if figure.kind == "lines":
        return f"Line chart of {name} by {figure.x_axis.name}. {_words_of_lines(points)}."
    if figure.kind == "bars":
        return f"Bar chart of {name}. {_words_of(points)}."
    if figure.kind == "dumbbell":
        return f"Dot plot of {name}. {_words_of(_by_place(points))}."
    words = "The table has the numbers" if figure.y_axis.log else _words_of(points)
    return f"Dot plot of {name}. {words}."


def _words_of(points: Points) -> str:
    series = []
    for name, marks in points.items():
        values = [f"{label(place)} {show(float(value.value))}" for place, value in marks]
        series.append(f"{label(name)}: {', '.join(values)}")
    return "; ".join(series)


def _words_of_lines(points: Points) -> str:
    series = []
    for name, marks in _known_lines(points).items():
        values = []
        for i in sorted({0, len(marks) // 2, len(marks) - 1}):
            place, value = marks[i]
            values.append(f"{show(float(value.value))} at {show(place)}")
        series.append(f"{label(name)}: {' to '.join(values)}")
    return "; ".join(series)


def _all_values(points: Points) -> list[float]:
    """The figures and the bounds of their intervals."""
    values = []
    for marks in points.values():
        for _, value in marks:
            values += [value.value, value.low, value.high]
    return values


# lines


def _known_lines(points: Points) -> Points:
    """The points whose figures are finite; series without any are left out."""
    lines = {}
    for name, marks in points.items():
        finite = [(place, value) for place, value in marks if math.isfinite(value.value)]
        if finite:
            lines[name] = finite
    return lines


def _with_bands(lines: Points, low_is_good: bool) -> list[str]:
    """The lines whose intervals are drawn: without retrieval, and the best on average."""
    means = {name: fmean(value.value for _, value in marks) for name, marks in lines.items()}
    best = sorted(lines, key=means.__getitem__, reverse=not low_is_good)
    plain = [name for name in best if name in ("closed_book", "none")]
    first = list(dict.fromkeys([*plain[:1], *best]))[:BANDS_SHOWN]
    return [name for name in lines if name in first]


def _draw_lines(canvas: Canvas, figure: Figure) -> float:
    """Each series a line with its name at its end, or with a legend; returns the height."""
    lines = _known_lines(figure.points)
    top = 0.0
    beside = 30 + max((canvas.length(label(name)) for name in lines), default=0.0)
    has_legend = beside > NAMES_AT_ENDS * canvas.width
    if has_legend:
        top = canvas.legend([(label(name), canvas.styles[name]) for name in lines], 0)
        beside = 6

    values = _all_values(lines)
    if figure.y_axis.zero:
        values.append(0.0)
    left, top, bottom, up = canvas.y_axis(top, values, figure.y_axis.name)
    right = canvas.width - 4 - beside
    across = _scale_of_places(lines, figure.x_axis.log, left + 8, right)
    canvas.grid(across, up, left, figure.y_axis.zero)

    ends = [up(marks[-1][1].value) for marks in lines.values()]
    labels = drawing.apart(ends, 1.2 * canvas.size, top, bottom)
    with_bands = _with_bands(lines, figure.low_is_good)
    for (name, marks), y in zip(lines.items(), labels, strict=True):
        with canvas.group("series"):
            _draw_line(canvas, name, marks, across, up, name in with_bands)
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
    shows_band: bool,
) -> None:
    """The line of a series with its band and its marks; a single mark has a bar for its
    interval.
    """
    style = canvas.styles[name]
    if len(marks) > 1:
        band = [(across(place), up(value.low)) for place, value in marks]
        band += [(across(place), up(value.high)) for place, value in reversed(marks)]
        canvas.band(band, style.colour, shows_band)
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


# bars, ranges and dumbbells, which lie in rows


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


def _by_place(points: Points) -> Points:
    """Place -> (series, figure) of each mark there."""
    by_place: Points = {}
    for name, marks in points.items():
        for place, value in marks:
            by_place.setdefault(place, []).append((name, value))
    return by_place


def _draw_rows(canvas: Canvas, figure: Figure) -> float:
    """Places below each other, with a mark for each series; returns the height.

    A place that is a method has its colour, if the series have none: where all lie on one line, or
    there is only one.
    """
    points = figure.points
    by_place = _by_place(points)
    styles = _told_apart(canvas.styles, points if len(points) > 1 else by_place)
    key = KEYS.get(figure.kind, "line") if len(points) > 1 else ""
    top = canvas.legend([(label(name), styles[name]) for name in points], 0, key)

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
    # the axis and the grid do not cross the name
    canvas.line(0, y - 7, canvas.length(place) + 4, y - 7, GROUND, canvas.size)
    canvas.text(2, y - 4, place)


def _scale_of_values(figure: Figure, start: float, end: float) -> Scale:
    values = _all_values(figure.points)
    if figure.kind == "bars":
        return linear([*values, 0.0], start, end, zero=True)
    if figure.y_axis.log:
        return logarithmic(_log_bounds(figure), start, end)
    return linear(values, start, end)


def _log_bounds(figure: Figure) -> tuple[float, float]:
    """The edges of a log axis, on which 0 and infinity lie."""
    finite = [value for value in _all_values(figure.points) if 0 < value < math.inf] or [1.0]
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
