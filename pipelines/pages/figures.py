"""The report's figures: lines, bars, ranges and dumbbells, each drawn for a wide and for a narrow screen."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from pipelines.intervals import Interval
from pipelines.pages import drawing
from pipelines.pages.drawing import GREYS, GROUND, INK, Canvas, Scale, Style, linear, logarithmic
from pipelines.pages.section import Figure
from pipelines.pages.values import label, show

EDGE = 16  # pixels beside a plot for half of a tick's text
BANDS = 3  # lines whose intervals are drawn; those of the others show when they are pointed at
AT_END = 0.4  # of a drawing's width is the most that the names at the ends of lines take; else they are a legend
FIXED = {label(name): style for name, style in drawing.STYLED.items()}
Points = Mapping[str, Sequence[tuple[Any, Interval]]]  # series -> (place, figure)


def fixed(name: str) -> Style | None:
    """The style of a method or policy by its name in the report, which its retriever and language model may follow."""
    known = [one for one in FIXED if name == one or name.startswith((f"{one} (", f"{one}, "))]
    return FIXED[max(known, key=len)] if known else None


def lines(
    name: str, points: Points, *, x: str, y: str, caption: str, log_x: bool = False, zero: bool = False,
    less: bool = False,
) -> Figure:  # fmt: skip
    """Each series a line with its name at its end; three have their intervals as a band, the others when pointed at.

    Places are numbers, or texts that stand side by side in their order, such as months. `zero` draws the line of no
    difference; `less` says that low values are the good ones. `alt` has the first, middle and last value of each line.
    """
    known = {
        key: [(place, f) for place, f in of if math.isfinite(f.value)] for key, of in points.items()
    }
    known = {key: of for key, of in known.items() if of}
    names = sorted({place for of in known.values() for place, _ in of if isinstance(place, str)})
    known = {
        key: [(names.index(place) if names else place, f) for place, f in of]
        for key, of in known.items()
    }

    def said(place: float) -> str:
        return names[int(place)] if names else show(place)

    told = {
        key: [of[i] for i in sorted({0, len(of) // 2, len(of) - 1})] for key, of in known.items()
    }
    alt = "; ".join(
        f"{label(key)}: {' to '.join(f'{show(float(f.value))} at {said(place)}' for place, f in of)}"
        for key, of in told.items()
    )
    everywhere, values = [place for of in known.values() for place, _ in of], _values(known)
    banded = _banded(known, less)
    if len(banded) < len(known):
        caption += f" The bands are those of {', '.join(map(label, banded))}; pointing at another line shows its own."

    def draw(canvas: Canvas) -> float:
        beside = 30 + max(map(canvas.length, map(label, known)), default=0.0)
        if beside > AT_END * canvas.width:
            top, beside = canvas.legend([(label(key), canvas.styles[key]) for key in known], 0), 6
        else:
            top = 0.0
        left, top, bottom, up = canvas.y_axis(top, [*values, *([0.0] if zero else [])], y)
        ends = left + 8, canvas.width - 4 - beside
        across = logarithmic(everywhere, *ends) if log_x else linear(everywhere, *ends, tight=True)
        if names:
            every = math.ceil(len(names) * (canvas.length(names[0]) + 12) / (ends[1] - ends[0]))
            across = replace(
                across, ticks=[(i, name) for i, name in enumerate(names) if i % every == 0]
            )
        canvas.grid(across, up, left, zero)
        labels = drawing.apart(
            [up(of[-1][1].value) for of in known.values()], 1.2 * canvas.size, top, bottom
        )
        for (key, of), at in zip(known.items(), labels, strict=True):
            style, line = canvas.styles[key], [(across(place), up(f.value)) for place, f in of]
            with canvas.group("series"):
                if len(of) > 1:
                    band = [(across(place), up(f.low)) for place, f in of]
                    band += [(across(place), up(f.high)) for place, f in reversed(of)]
                    canvas.band(band, style.colour, key in banded)
                    canvas.path(line, style.colour, style.dash)
                for (place, f), point in zip(of, line, strict=True):
                    if len(of) == 1:
                        canvas.line(point[0], up(f.low), point[0], up(f.high), style.colour, 1.5)
                    canvas.marker(*point, style, (label(key), said(place), show(f)))
                if beside > 6:
                    canvas.line(line[-1][0] + 4, line[-1][1], ends[1] + 12, at, style.colour, 0.75)
                    canvas.marker(ends[1] + 16, at, style)
                    canvas.text(ends[1] + 24, at + 0.35 * canvas.size, label(key))
        return canvas.x_name(x, bottom, left, ends[1])

    return _figure(name, points, draw, x, caption, f"Line chart of {y} by {x}. {alt}.")


def _banded(points: Points, less: bool) -> list[str]:
    """The lines whose intervals are drawn: without retrieval, and the best on average."""
    means = {key: fmean(f.value for _, f in of) for key, of in points.items()}
    best = sorted(points, key=lambda key: means[key] if less else -means[key])
    plain = [key for key in best if key in ("closed_book", "none")]
    chosen = [*dict.fromkeys([*plain[:1], *best])][:BANDS]
    return [key for key in points if key in chosen]


def bars(name: str, points: Points, *, y: str, caption: str) -> Figure:
    """Groups of lying bars with error bars, one bar a series; places are names. `alt` has the value of each bar."""
    values = [*_values(points), 0.0]

    def mark(
        canvas: Canvas, across: Scale, at: float, style: Style, f: Interval, tip: Sequence[str]
    ) -> None:
        canvas.box(across(0), at, across(f.value) - across(0), 9, style, tip)
        for stroke, width in ((GROUND, 3.5), (INK, 1.2)):  # seen on bars of any colour
            canvas.line(across(f.low), at + 4.5, across(f.high), at + 4.5, stroke, width)

    def scale(start: float, end: float) -> Scale:
        return linear(values, start, end, zero=True)

    return _rows(
        name, points, mark, scale, y, caption, f"Bar chart of {y}. {_said(points)}.", key="box"
    )


def ranges(name: str, points: Points, *, x: str, caption: str, log_x: bool = False) -> Figure:
    """A point and its range for each place, a name, and series; 0 and infinity lie on the two edges of a log axis."""
    finite = [value for value in _values(points) if 0 < value < math.inf] or [1.0]
    low, high = (min(finite) / 2, max(finite) * 2) if log_x else (-math.inf, math.inf)

    def mark(
        canvas: Canvas, across: Scale, at: float, style: Style, f: Interval, tip: Sequence[str]
    ) -> None:
        value, *ends = (across(min(max(point, low), high)) for point in (f.value, f.low, f.high))
        canvas.line(ends[0], at + 4.5, ends[1], at + 4.5, style.colour, 2)
        canvas.marker(
            value, at + 4.5, style, (*tip[:2], f"{show(f.value)} [{show(f.low)}, {show(f.high)}]")
        )

    def scale(start: float, end: float) -> Scale:
        return (
            logarithmic((low, high), start, end) if log_x else linear(_values(points), start, end)
        )

    said = "The table has the numbers" if log_x else _said(points)
    return _rows(name, points, mark, scale, x, caption, f"Dot plot of {x}. {said}.")


def dumbbell(name: str, points: Points, *, x: str, caption: str) -> Figure:
    """A line for each place, a name, from the first series to the second; all series are marks on it.

    Only marks in ink have their intervals, as thin lines; the page says all. `alt` has the value of each mark.
    """

    def mark(
        canvas: Canvas, across: Scale, at: float, style: Style, f: Interval, tip: Sequence[str]
    ) -> None:
        if style.colour == INK:
            canvas.line(across(f.low), at + 4.5, across(f.high), at + 4.5, INK, 1.2)
        canvas.marker(across(f.value), at + 4.5, style, tip)

    def scale(start: float, end: float) -> Scale:
        return linear(_values(points), start, end)

    alt = f"Dot plot of {x}. {_said(_turned(points))}."
    return _rows(name, points, mark, scale, x, caption, alt, key="mark", on_line=True)


def _rows(
    name: str, points: Points, mark: Callable, scale: Callable, x: str, caption: str, alt: str, *,
    key: str = "line", on_line: bool = False,
) -> Figure:  # fmt: skip
    """Places below each other, with a mark for each series, below each other or on one line.

    A place that is a method has its colour, if the series have none: where all lie on one line, or there is only one.
    """
    by_place = _turned(points)
    height, lanes = (18, 1) if on_line else (12, len(points))

    def draw(canvas: Canvas) -> float:
        styles, seen = dict(canvas.styles), set()
        for one in (one for one in (points if len(points) > 1 else by_place) if one in styles):
            styles[one] = styles[one]._replace(pale=styles[one].colour in seen)
            seen.add(styles[one].colour)
        top = canvas.legend(
            [(label(one), styles[one]) for one in points], 0, key if len(points) > 1 else ""
        )
        longest = max(canvas.length(place) for place in by_place)
        beside = longest < 0.38 * canvas.width
        left, head = (longest + 8 if beside else EDGE), 3 if beside else 1.5 * canvas.size
        step = head + height * lanes + 6
        across, bottom = scale(left + 8, canvas.width - 12), top + 8 + step * len(by_place)
        canvas.x_grid(across, top + 6, bottom)
        for i, (place, of) in enumerate(by_place.items()):
            start, known = (
                top + 8 + i * step + head,
                {one: f for one, f in of if not math.isnan(f.value)},
            )
            middle = (left - 8, start + height * lanes / 2 + 4, place, "end")
            if not beside:  # the axis and the grid do not cross the name
                canvas.line(0, start - 7, canvas.length(place) + 4, start - 7, GROUND, canvas.size)
            canvas.text(*(middle if beside else (2, start - 4, place)))
            line = [across(known[one].value) for one in [*points][:2] if on_line and one in known]
            if len(line) == 2:
                canvas.line(
                    line[0], start + 9, line[1], start + 9, styles.get(place, GREYS[2]).colour, 4
                )
            for number, one in enumerate(points):
                if one in known:
                    style = styles.get(place, styles[one]) if len(points) == 1 else styles[one]
                    at = start + (4.5 if on_line else number * height)
                    mark(
                        canvas, across, at, style, known[one], (label(one), place, show(known[one]))
                    )
        return canvas.x_name(x, bottom, left, canvas.width - 4)

    coloured = [place for place in by_place if fixed(place) or (on_line and " below " not in place)]
    return _figure(name, [*points, *coloured], draw, "", caption, alt)


def _turned(points: Points) -> Points:
    turned: dict[str, list] = {}
    for key, of in points.items():
        for place, f in of:
            turned.setdefault(place, []).append((key, f))
    return turned


def _values(points: Points) -> list[float]:
    return [value for of in points.values() for _, f in of for value in (f.value, f.low, f.high)]


def _said(points: Points) -> str:
    return "; ".join(
        f"{label(key)}: {', '.join(f'{label(place)} {show(float(f.value))}' for place, f in of)}"
        for key, of in points.items()
    )


def _figure(
    name: str, keys: Iterable[str], draw: Callable[[Canvas], float], x: str, caption: str, alt: str
) -> Figure:
    """The figure that `draw` makes on a wide and on a narrow canvas; `keys` name its series."""
    names = {key: label(key) for key in keys}

    def drawn(chosen: Mapping[str, Style]) -> tuple[str, str]:
        of_series = {key: chosen[shown] for key, shown in names.items()}
        wide, narrow = (Canvas(width, of_series) for width in (drawing.WIDE, drawing.NARROW))
        return wide.svg(draw(wide), alt, x), narrow.svg(draw(narrow), alt, x)

    return Figure(name, caption, alt, (*names.values(),), drawn)
