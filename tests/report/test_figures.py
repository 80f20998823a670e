"""Figures say their numbers, keep their colours, draw only what is known, and are the same bytes every time."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.intervals import NOTHING, Interval
from pipelines.report import drawing, figures, page, rendering

SVG = "{http://www.w3.org/2000/svg}"
SCALES = st.sampled_from(["linear", "tight", "zero"])
ROOMS = st.sampled_from([200, 700])


def interval(value: float, width: float = 5.0) -> Interval:
    return Interval(value, value - width, value + width)


def drawn(figure: page.Figure) -> tuple[str, str]:
    """The figure alone on a page, wide and for a phone."""
    return figure.drawn(rendering.slots([figure.series]))


def titles(svg: str) -> list[list[str]]:
    return [mark.find(f"{SVG}title").text.split("\n") for mark in marks(svg)]


def marks(svg: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f".//{SVG}path[@class='mark']")


def test_every_known_figure_is_a_mark_that_says_series_place_value_and_interval():
    series = {"dense": [(10, interval(10.0)), (100, NOTHING), (1000, interval(30.0))]}
    figure = figures.lines("figure", series, x="page views", y="<accuracy> & more", caption="A caption.", log_x=True)
    for svg in drawn(figure):
        assert titles(svg) == [["dense", "10", "10.0 [5.0, 15.0]"], ["dense", "1,000", "30.0 [25.0, 35.0]"]]
        said = ElementTree.fromstring(svg).get("aria-label")
        assert said == "Line chart of <accuracy> & more by page views. dense: 10 at 10 to 30 at 1,000."
    alone = rendering.standalone(figure, rendering.slots([figure.series]))
    ElementTree.fromstring(alone)
    assert "var(" not in alone, "a figure as a file needs no page"
    assert "#2475b8" in alone


def test_bars_have_a_mark_each_for_what_is_known():
    groups = [f"a relation with a long name {i}" for i in range(8)]
    values = {"dense": [interval(10.0)] * len(groups), "lsr": [NOTHING, *[interval(-20.0)] * (len(groups) - 1)]}
    series = {name: [*zip(groups, of, strict=True)] for name, of in values.items()}
    figure = figures.bars("bars", series, y="points", caption="")
    assert len(titles(drawn(figure)[0])) == 2 * len(groups) - 1
    sizes = [re.search(r"h(-?[\d.]+)v(-?[\d.]+)h", mark.get("d")).groups() for mark in marks(drawn(figure)[0])]
    widths, heights = np.array(sizes, float).T
    assert np.ptp(heights) == 0 < np.ptp(widths)
    assert f"; LSR: {groups[0]} \N{EN DASH}, {groups[1]} \N{MINUS SIGN}20" in figure.alt


def test_a_threshold_of_never_and_one_of_always_lie_on_the_two_edges():
    cuts = {"never": (0.0, 0.0, 50.0), "always": (math.inf, 50.0, math.inf), "some": (100.0, 50.0, 200.0)}
    points = {"dense": [(name, Interval(*cut)) for name, cut in cuts.items()]}
    figure = figures.ranges("ranges", points, log_x=True, x="", caption="")
    never, always, some = (float(re.match(r"M([\d.]+)", mark.get("d"))[1]) for mark in marks(drawn(figure)[0]))
    assert never < some < always
    assert some == pytest.approx((never + always) / 2, abs=0.2)  # in the middle on a log scale
    assert titles(drawn(figure)[0])[1] == ["dense", "always", "∞ [50, ∞]"]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5), SCALES, ROOMS)
def test_a_linear_scale_holds_all_values_and_has_few_round_ticks(values, kind, room):
    values = [round(value, 3) for value in values]
    scale = drawing.linear(values, 0, room, zero=kind == "zero", tight=kind == "tight")
    assert all(-1e-6 <= scale(value) <= room + 1e-6 for value in values)
    assert 1 <= len(scale.ticks) <= room / 10
    assert kind != "zero" or 0 <= scale(0) <= room
    texts = [text for _, text in scale.ticks]
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) <= 9


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=5), ROOMS)
def test_a_log_scale_holds_all_values_and_its_ticks_do_not_touch(values, room):
    scale = drawing.logarithmic(values, 0, room)
    assert all(0 <= scale(value) <= room for value in values)
    at = [scale(tick) for tick, _ in scale.ticks]
    assert at
    assert all(right - left > 25 for left, right in pairwise(at))


def test_ticks_have_the_digits_that_tell_them_apart():
    texts = {(0.25, 0.05): "0.25", (1000, 500): "1,000", (2.5e6, 5e5): "2.5M", (3e9, 1e9): "3B", (0, 0.5): "0.0"}
    texts |= {(-20, 10): "\N{MINUS SIGN}20"}
    assert {number: drawing.number(*number) for number in texts} == texts


def test_a_files_colour_is_the_pages_and_stands_out_on_light_and_on_dark():
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    def contrast(*colours: str) -> float:
        """As WCAG counts it."""
        dark, light = sorted(map(luminance, colours))
        return (light + 0.05) / (dark + 0.05)

    pairs = dict(re.findall(r"--(\w+): light-dark\((#\w+, #\w+)\)", rendering.inline("report.css")))
    for side in (0, 1):
        own = {name: pair.split(", ")[side] for name, pair in pairs.items()}
        for name in ("ink", "soft", "link", "good", "none", "bad"):
            assert min(contrast(own[name], own[ground]) for ground in ("paper", "panel", "stripe")) >= 4.5, name
        for slot in range(len(drawing.PALETTE)):
            assert contrast(own[f"c{slot}"], own["paper"]) >= 3, slot
            assert side or own[f"c{slot}"] in drawing.PALETTE[slot]
