"""Figures as SVG, for a wide and for a narrow screen, and what they show in words."""

from collections.abc import Mapping

from pipelines.pages import drawing
from pipelines.pages.drawing import NARROW, WIDE, Canvas, Style
from pipelines.pages.line_figures import bands, draw_lines, known_lines
from pipelines.pages.row_figures import draw_rows, marks_by_place
from pipelines.pages.section import Figure, Points
from pipelines.pages.values import label, show

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
            height = draw_lines(canvas, figure)
        else:
            height = draw_rows(canvas, figure)

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
    for place in marks_by_place(figure.points):
        if fixed(place) or (on_one_line and " below " not in place):
            names.append(place)
    return names


def caption(figure: Figure) -> str:
    """The caption, with the lines that show their bands where others hide theirs."""
    if figure.kind != "lines":
        return figure.caption
    bands_shown = bands(known_lines(figure.points), figure.low_is_good)
    if all(bands_shown.values()):
        return figure.caption
    names = ", ".join(label(name) for name, is_shown in bands_shown.items() if is_shown)
    return f"{figure.caption} Bands shown: {names}; others when pointed at."


def alt(figure: Figure) -> str:
    """What a figure shows, in words: of lines the first, middle and last value, of others all."""
    name = figure.y_axis.name
    points = figure.points
    if figure.kind == "lines":
        return f"Line chart of {name} by {figure.x_axis.name}. {_words_of_lines(points)}."
    if figure.kind == "bars":
        return f"Bar chart of {name}. {_words_of(points)}."
    if figure.kind == "dumbbell":
        return f"Dot plot of {name}. {_words_of(marks_by_place(points))}."
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
    for name, marks in known_lines(points).items():
        values = []
        for i in sorted({0, len(marks) // 2, len(marks) - 1}):
            place, value = marks[i]
            values.append(f"{show(float(value.value))} at {show(place)}")
        series.append(f"{label(name)}: {' to '.join(values)}")
    return "; ".join(series)
