"""What figures are made of: scales with round ticks, a canvas that becomes SVG, and axes.

A plotting library is not used, so that each mark tells its number to a pointer, a keyboard and a
screen reader, colours follow the page's theme, and a figure takes a few kilobytes for wide and
narrow screens together.
"""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from types import MappingProxyType

from pipelines import safe_text

WIDE = 760  # pixels; the page shows the wide or the narrow drawing, each at its own size
NARROW = 350
LETTER_SIZE = {WIDE: 13.0, NARROW: 12.0}  # pixels
PLOT_HEIGHT = {WIDE: 280, NARROW: 220}  # pixels, without legend and axes
INK = "var(--ink,#1d2430)"
SOFT = "var(--soft,#566070)"
FAINT = "var(--faint,#8a929e)"
GRID = "var(--line,#dcdfe4)"
GROUND = "var(--paper,#fcfcfa)"
# distinct for the colour-blind, at least 3:1 against a light ground; the page has others for dark
PALETTE = (
    "var(--c0,#7d2c63)",
    "var(--c1,#c77a06)",
    "var(--c2,#1b4aa6)",
    "var(--c3,#04806f)",
    "var(--c4,#4a4a05)",
    "var(--c5,#0697c8)",
    "var(--c6,#a6502f)",
    "var(--c7,#8258cc)",
    "var(--c8,#829070)",
    "var(--c9,#43045c)",
)
NARROW_LETTERS = set("fijlrt.,:;'|!()[] -")
WIDE_LETTERS = set("mwMW%@")
DASHES = ("", "7 3", "8 3 2 3", "", "10 3 2 3 2 3", "12 3", "5 2", "3 2", "4 2 1 2", "2 3")
MARKERS = (  # paths around 0, 0; the first is a ring
    "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0m2 0a3 3 0 1 1 6 0a3 3 0 1 1-6 0",
    "m-3.5-3.5h7v7h-7z",
    "m0-4.6l4.4 8h-8.8z",
    "m0-5l4.5 5-4.5 5-4.5-5z",
    "m-4.5-2.6l4.5-2.6 4.5 2.6v5.2l-4.5 2.6-4.5-2.6z",
    "m-3-4.5h6v9h-6z",
    "m-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "m-4.5-3h9v6h-9z",
    "m-4.6 0l8-4.4v8.8z",
    "m0 4.6l4.4-8h-8.8z",
)
DISC = "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0"
TICK = "m-1.5-7h3v14h-3z"


@dataclass(frozen=True)
class Style:
    """How a series looks: its colour, its line's dashes, the path of its marks, if bars
    are pale.
    """

    colour: str
    dash: str
    marker: str
    pale: bool = False


STYLES = [Style(*parts) for parts in zip(PALETTE, DASHES, MARKERS, strict=True)]
GREYS = [replace(style, colour=(INK, SOFT, FAINT)[i % 3]) for i, style in enumerate(STYLES)]
METHOD_STYLES = {  # a method's style is the same on every page
    "closed_book": STYLES[0],
    "closed": STYLES[0],  # a file of answers without retrieval
    "bm25": STYLES[1],
    "dense": STYLES[2],
    "lsr": STYLES[3],
    "hybrid": STYLES[4],
    "genread": STYLES[6],
    "replug": STYLES[7],
    "replug_lsr": STYLES[8],
    "random": STYLES[9],
    "none": STYLES[0],
    "never": STYLES[0],
    "always": Style(SOFT, "", DISC),
    "adaptive": Style(INK, "", MARKERS[3]),
    "oracle": Style(SOFT, "", TICK),
}


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` onto pixels from `start` to `end`.

    On a log scale no value lies before the start.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: list[tuple[float, str]]  # value, text
    log: bool = False

    def __call__(self, value: float) -> float:
        low = self.low
        high = self.high
        if self.log:
            value = math.log(max(value, low))
            low = math.log(low)
            high = math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def linear(
    values: Sequence[float], start: float, end: float, *, zero: bool = False, tight: bool = False
) -> Scale:
    """A scale over all finite values, with 0 if they are near it or if `zero`.

    It goes from round bound to round bound unless `tight`.
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low = min(finite)
    high = max(finite)
    if zero or 0 < low <= 0.4 * high:
        low = min(low, 0.0)
    if zero or 0.4 * low <= high < 0:
        high = max(high, 0.0)
    if high == low:
        margin = abs(low or 1) / 2
        low -= margin
        high += margin

    step = _round_step((high - low) / max(3, abs(end - start) / 45))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    if tight:
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
    ticks = [(n * step, number(n * step, step)) for n in range(first, last + 1)]
    if tight:
        return Scale(low, high, start, end, ticks)
    return Scale(first * step, last * step, start, end, ticks)


def _round_step(least: float) -> float:
    """The smallest step of 1, 2 or 5 times a power of ten that is at least so large."""
    power = 10.0 ** math.floor(math.log10(least))
    for factor in (1, 2, 5):
        if power * factor >= least * (1 - 1e-9):
            return power * factor
    return power * 10


def logarithmic(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale over all positive values, with ticks at powers of ten.

    A short scale has ticks at 2 and 5 times these as well.
    """
    positive = [value for value in values if 0 < value < math.inf] or [1.0]
    low = min(positive) / 1.15
    high = max(positive) * 1.15
    if high < 4 * low:
        low /= 1.6
        high *= 1.6

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks_that_fit = abs(end - start) / 55
    is_short = 3 * len(decades) <= ticks_that_fit + 3 or math.log10(high / low) < 2
    ticks = []
    for power in decades:
        for factor in (1, 2, 5) if is_short else (1,):
            tick = 10.0**power * factor
            if low <= tick <= high:
                ticks.append((tick, number(tick, tick)))

    every = max(1, math.ceil(len(ticks) / max(2, ticks_that_fit)))
    return Scale(low, high, start, end, ticks[::every], log=True)


def number(value: float, step: float) -> str:
    """A tick's text, with as many digits as the step between ticks needs; millions as 1M."""
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= unit:
            return number(value / unit, step / unit) + letter
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near those wanted, in their order, at least `gap` apart, from `low` to `high`."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    places = [0.0] * len(wanted)
    least = low
    for rank, i in enumerate(order):
        places_after = len(order) - 1 - rank
        places[i] = max(least, min(wanted[i], high - places_after * gap))
        least = places[i] + gap
    return places


class Canvas:
    """A drawing `width` pixels wide, whose parts become SVG; `styles` has that of each series."""

    def __init__(self, width: int, styles: Mapping[str, Style] = MappingProxyType({})) -> None:
        self.width = width
        self.size = LETTER_SIZE[width]
        self.styles = styles
        self.parts: list[str] = []

    def length(self, text: str) -> float:
        """About how many pixels wide a text is; fonts differ, so this is an upper estimate."""
        widths = []
        for letter in text:
            if letter in NARROW_LETTERS:
                widths.append(0.38)
            else:
                widths.append(0.98 if letter in WIDE_LETTERS else 0.66)
        return self.size * sum(widths)

    def fitted(self, text: str, room: float) -> str:
        """The text in one line, cut where it would take much more than `room` pixels."""
        line = safe_text.line(text)
        most = max(12, int(room / (0.56 * self.size)))
        if len(line) <= most or self.length(line) <= room:
            return line
        return f"{line[: most - 1]}…"

    def lines(self, text: str, width: float) -> list[str]:
        """The text in lines that are about as wide as `width` pixels."""
        return textwrap.wrap(text, max(12, int(width / (0.54 * self.size)))) or [""]

    def text(self, x: float, y: float, text: str, anchor: str = "start", fill: str = INK) -> None:
        """A text that starts, ends or has its middle at x, as `anchor` says."""
        room = {"start": self.width - x, "end": x}.get(anchor, self.width)
        line = escape(self.fitted(text, room))
        self.parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" fill="{fill}">{line}</text>'
        )

    def tick(self, x: float, y: float, text: str) -> None:
        """The text of a tick below a plot, moved inwards if it would leave the drawing."""
        half = self.length(text) / 2
        inside = min(max(x, half), self.width - half)
        self.text(inside, y, text, "middle", SOFT)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = GRID, width: float = 1
    ) -> None:
        """A straight line between two points."""
        d = f"M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}"
        self.parts.append(f'<path d="{d}" stroke="{stroke}" stroke-width="{width:g}" fill="none"/>')

    def path(self, points: Sequence[tuple[float, float]], colour: str, dash: str = "") -> None:
        """A line through all points."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<path d="{_d(points)}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'
        )

    def band(self, points: Sequence[tuple[float, float]], colour: str, shown: bool) -> None:
        """The intervals along a line; the page shows a hidden one when its line is pointed at."""
        hidden = "" if shown else ' visibility="hidden"'
        self.parts.append(
            f'<path class="band" d="{_d(points)}z" fill="{colour}" fill-opacity="0.13"{hidden}/>'
        )

    def marker(self, x: float, y: float, style: Style, tip: Sequence[str] = ()) -> None:
        """A style's mark; `tip` are lines that the page shows on hover: series, place and value."""
        self._mark(f"M{_n(x)} {_n(y)}{style.marker}", style.colour, tip)

    def box(
        self, x: float, y: float, width: float, height: float, style: Style, tip: Sequence[str] = ()
    ) -> None:
        """A box from x to the right, or to the left where `width` is negative."""
        if width < 0:
            x += width
            width = -width
        pale = f' fill-opacity=".3" stroke="{style.colour}"' if style.pale else ""
        d = f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"
        self._mark(d, style.colour, tip, pale)

    @contextmanager
    def group(self, css_class: str) -> Iterator[None]:
        """What is drawn meanwhile is one group of this class."""
        self.parts.append(f'<g class="{css_class}">')
        yield
        self.parts.append("</g>")

    def _mark(self, d: str, fill: str, tip: Sequence[str], attributes: str = "") -> None:
        if not tip:
            self.parts.append(f'<path d="{d}" fill="{fill}"{attributes}/>')
            return
        title = escape("\n".join(self.fitted(words, 2 * WIDE) for words in tip))
        self.parts.append(
            f'<path class="mark" d="{d}" fill="{fill}"{attributes}><title>{title}</title></path>'
        )

    def legend(self, names: Sequence[tuple[str, Style]], key: str = "line") -> float:
        """(label, style) of each series in rows at the top; returns where they end.

        `key` is what stands before a label: a line, a mark, a box or nothing.
        """
        x = 2.0
        y = self.size
        key_width = {"line": 28, "mark": 14, "box": 26}.get(key, 0)
        for name, style in names:
            needed = key_width + self.length(name)
            if x > 2 and x + needed > self.width:
                x = 2.0
                y += 1.6 * self.size
            if key == "box":
                self.box(x, y - 10, 18, 11, style)
            elif key == "line":
                self.path([(x, y - 4), (x + 22, y - 4)], style.colour, style.dash)

            if key in ("line", "mark"):
                self.marker(x + key_width / 2 - 3, y - 4, style)
            self.text(x + key_width, y, name)
            x += needed + 14

        return y + 0.6 * self.size

    def svg(self, height: float, alt: str, x: str) -> str:
        """The whole drawing; `x` says what the places of its marks are."""
        css_class = "wide" if self.width == WIDE else "narrow"
        high = math.ceil(height)
        attributes = (
            'xmlns="http://www.w3.org/2000/svg"',
            f'class="{css_class}"',
            f'viewBox="0 0 {self.width} {high}" width="{self.width}" height="{high}"',
            f'font-size="{self.size:g}" role="img"',
            f'aria-label="{escape(safe_text.text(alt))}" data-x="{escape(x)}"',
        )
        return f"<svg {' '.join(attributes)}>{''.join(self.parts)}</svg>"

    def y_axis(
        self, top: float, values: Sequence[float], name: str
    ) -> tuple[float, float, float, Scale]:
        """The y axis with its name above: left, top and bottom of the plot, and the scale."""
        for words in self.lines(name, self.width):
            top += 1.35 * self.size
            self.text(2, top, words, fill=SOFT)
        top += 0.9 * self.size
        bottom = top + PLOT_HEIGHT[self.width]
        scale = linear(values, bottom, top)
        left = max(self.length(text) for _, text in scale.ticks) + 11
        return left, top, bottom, scale

    def grid(self, across: Scale, up: Scale, left: float, zero: bool = False) -> None:
        """Horizontal rules, and the ticks of both axes; `zero` draws the line of 0."""
        right = across.end + 6
        for value, text in up.ticks:
            self.line(left, up(value), right, up(value))
            self.text(left - 6, up(value) + 0.35 * self.size, text, "end", SOFT)
        for value, text in across.ticks:
            self.line(across(value), up.start, across(value), up.start + 4, SOFT)
            self.tick(across(value), up.start + 1.4 * self.size, text)
        if zero and up.low <= 0 <= up.high:
            self.line(left, up(0), right, up(0), INK)

    def x_grid(self, across: Scale, top: float, bottom: float) -> None:
        """The grid of a figure that lies down: vertical rules, with their numbers below."""
        for value, text in across.ticks:
            stroke = INK if value == 0 else GRID
            self.line(across(value), top, across(value), bottom, stroke)
            self.tick(across(value), bottom + 1.25 * self.size, text)

    def x_name(self, name: str, bottom: float, left: float, right: float) -> float:
        """The x axis's name below its ticks; returns where it ends."""
        y = bottom + 1.5 * self.size
        for words in self.lines(name, right - left):
            y += 1.35 * self.size
            self.text((left + right) / 2, y, words, "middle", SOFT)
        return y + 6


def _n(value: float) -> str:
    """A length in pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 0.05 else "0"


def _d(points: Sequence[tuple[float, float]]) -> str:
    """The path through points."""
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
