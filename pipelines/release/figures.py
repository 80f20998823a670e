"""The report's figures as SVG, the same bytes every time, legible on light and on dark."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot as plt

from pipelines.evaluation.intervals import Interval
from pipelines.release.page import Figure, label

INK = "#0a0b0c"  # stands for the page's text colour: no other part of a figure has it
GREY = "#8a929e"
STYLES = {  # colours apart for the colour-blind, mid-tones for both backgrounds; markers apart without colour
    "closed_book": ("#8a929e", "o", "-"),
    "never": ("#8a929e", "o", "-"),
    "none": ("#8a929e", "o", "-"),
    "bm25": ("#d98c1a", "s", "--"),
    "always": ("#d98c1a", "s", "--"),
    "dense": ("#3f8fd2", "^", "-."),
    "lsr": ("#2a9d7f", "D", "-"),
    "adaptive": ("#2a9d7f", "D", "-"),
    "random": ("#b676a8", "v", ":"),
    "oracle": ("#b676a8", "v", ":"),
}
RC = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
}
WIDTH, HEIGHT = 8.0, 4.2  # inches


def lines(
    name: str,
    series: dict[str, tuple[Sequence[float], Sequence[Interval]]],
    *,
    x: str,
    y: str,
    caption: str,
    alt: str,
    log_x: bool = False,
    zero: bool = False,
) -> Figure:
    """Each series a line with its intervals as a band; `zero` draws the line of no difference."""

    def draw(axes) -> None:
        for key, (places, figures) in series.items():
            known = [
                (place, figure) for place, figure in zip(places, figures, strict=True) if np.isfinite(figure.value)
            ]
            if not known:
                continue
            colour, marker, style = STYLES.get(key, ("#3f8fd2", "o", "-"))
            at = [place for place, _ in known]
            axes.fill_between(at, [f.low for _, f in known], [f.high for _, f in known], color=colour, alpha=0.16, lw=0)
            axes.plot(at, [f.value for _, f in known], color=colour, marker=marker, ls=style, ms=5, label=label(key))
        if zero:
            axes.axhline(0, color=INK, lw=0.8)
        if log_x:
            axes.set_xscale("log")
        axes.set(xlabel=x, ylabel=y)
        axes.legend()

    return _figure(name, draw, caption, alt)


def bars(
    name: str,
    groups: Sequence[str],
    series: dict[str, Sequence[Interval]],
    *,
    y: str,
    caption: str,
    alt: str,
) -> Figure:
    """Groups of bars with error bars, one bar a series."""

    def draw(axes) -> None:
        width = 0.8 / len(series)
        for number, (key, figures) in enumerate(series.items()):
            colour = STYLES.get(key, ("#3f8fd2",))[0]
            at = np.arange(len(groups)) + (number - (len(series) - 1) / 2) * width
            values = np.array([figure.value for figure in figures])
            errors = np.abs(np.array([[f.low for f in figures], [f.high for f in figures]]) - values)
            axes.bar(at, values, width * 0.92, color=colour, label=label(key))
            axes.errorbar(at, values, errors, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)
        axes.set_xticks(np.arange(len(groups)), groups)
        axes.axhline(0, color=INK, lw=0.8)
        axes.set(ylabel=y)
        axes.legend(ncols=min(4, len(series)), loc="upper center", bbox_to_anchor=(0.5, -0.1))

    return _figure(name, draw, caption, alt)


def ranges(
    name: str,
    rows: Sequence[str],
    series: dict[str, Sequence[tuple[float, float, float]]],
    limits: tuple[float, float],
    *,
    x: str,
    caption: str,
    alt: str,
) -> Figure:
    """Thresholds: a point and a range per row and series on a log axis; 0 and infinity lie on its two edges."""

    def draw(axes) -> None:
        low, high = limits[0] / 2, limits[1] * 2
        for number, (key, points) in enumerate(series.items()):
            colour, marker, _ = STYLES.get(key, ("#3f8fd2", "o", "-"))
            at = np.arange(len(rows)) + (number - (len(series) - 1) / 2) * 0.24
            clipped = np.clip(np.array(points, dtype=float), low, high)
            axes.hlines(at, clipped[:, 1], clipped[:, 2], color=colour, lw=2, alpha=0.5)
            axes.plot(clipped[:, 0], at, marker, color=colour, ms=5, label=label(key))
        axes.set_xscale("log")
        axes.set_xlim(low / 1.3, high * 1.3)
        axes.set_yticks(np.arange(len(rows)), rows)
        axes.invert_yaxis()
        axes.set(xlabel=x)
        axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))

    return _figure(name, draw, caption, alt, height=1.3 + 0.34 * max(4, len(rows)))


def histogram(name: str, values: dict[str, np.ndarray], *, x: str, caption: str, alt: str) -> Figure:
    """Up to three histograms over each other: shares over common log-spaced bins, so that unlike sizes compare."""

    def draw(axes) -> None:
        everything = np.maximum(np.concatenate(list(values.values())), 1)
        top = max(everything.max(), everything.min() * 10)
        edges = np.geomspace(everything.min(), top * 1.0001, 31)
        styles = zip(("#3f8fd2", "#d98c1a", "#2a9d7f"), ("-", "--", "-."), strict=True)
        for (key, own), (colour, style) in zip(values.items(), styles, strict=False):
            shares = np.histogram(np.maximum(own, 1), edges)[0] / len(own)
            axes.stairs(shares, edges, color=colour, alpha=0.14, fill=True)
            axes.stairs(shares, edges, color=colour, ls=style, lw=1.6, label=label(key))
        axes.set_xscale("log")
        axes.set(xlabel=x, ylabel="share of the questions")
        axes.legend()

    return _figure(name, draw, caption, alt, height=3.2)


def curves(
    name: str,
    panels: Sequence[tuple[str, Sequence[float], dict[str, Sequence[float]]]],
    *,
    x: str,
    caption: str,
    alt: str,
) -> Figure:
    """Small panels side by side, each (title, x values, named series)."""
    with plt.rc_context(RC | {"svg.hashsalt": name}):
        figure, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 2.9), squeeze=False, layout="constrained")
        for axis, (title, places, series) in zip(axes[0], panels, strict=True):
            for (key, values), colour in zip(series.items(), ("#3f8fd2", "#d98c1a", "#2a9d7f"), strict=False):
                axis.plot(places, values, color=colour, marker="o" if len(values) < 12 else None, ms=3.5, label=key)
            axis.set(title=title, xlabel=x)
            if len(series) > 1:
                axis.legend()
        return _saved(name, figure, caption, alt)


def _figure(name: str, draw, caption: str, alt: str, height: float = HEIGHT) -> Figure:
    with plt.rc_context(RC | {"svg.hashsalt": name}):
        figure, axes = plt.subplots(figsize=(WIDTH, height), layout="constrained")
        draw(axes)
        return _saved(name, figure, caption, alt)


def _saved(name: str, figure, caption: str, alt: str) -> Figure:
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    # ids must be unique over the figures of one page; the ink follows the page's text colour
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace(INK, "currentColor")
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alt, quote=True)}" ', 1)
    return Figure(name, svg, caption, alt)
