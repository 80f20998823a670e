"""Figures say their numbers, keep their colours, draw only what is known, and are the same
bytes every time.
"""

import math
import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
import report_tables
import small_results
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.intervals import NOTHING, Interval
from pipelines.pages import drawing, figures, rendering, values
from pipelines.pages.section import Axis, Figure
from pipelines.report import popularity_section

SVG = "{http://www.w3.org/2000/svg}"
SCALES = st.sampled_from(["linear", "tight", "zero"])
ROOMS = st.sampled_from([200, 700])


METHODS = ("without retrieval", "BM25", "dense", "LSR", "BM25 + dense", "GenRead", "REPLUG")
METHODS += ("REPLUG LSR", "random documents")
POLICIES = ("never", "always", "adaptive", "oracle")
POLICY_LABELS = [values.label(name) for name in POLICIES]
SIGHTS = {  # what an eye sees of linear RGB (Machado et al. 2009, whole lack of a cone)
    "normal": np.eye(3),
    "protan": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deutan": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritan": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


def page_colours() -> list[dict[str, str]]:
    """Name -> colour on a light and on a dark page."""
    pairs = re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", rendering.inline("report.css"))
    return [{name: sides[i] for name, *sides in pairs} for i in (0, 1)]


def rgb(colour: str) -> np.ndarray:
    """Linear RGB."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def oklab(linear: np.ndarray) -> np.ndarray:
    cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    opponents = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.array(opponents) @ np.cbrt(np.array(cones) @ linear.clip(0, 1))


def interval(value: float, width: float = 5.0) -> Interval:
    return Interval(value, value - width, value + width)


def figure_of(kind: str, points: dict, x: str = "", y: str = "", **more) -> Figure:
    """A figure of a kind, with these marks by series."""
    rows = []
    for series, marks in points.items():
        rows += [{"series": series, "place": place, "figure": figure} for place, figure in marks]
    axes = {"x_axis": Axis(x), "y_axis": Axis(y), "caption": ""} | more
    return Figure(name=kind, kind=kind, rows=rows, x="place", y="figure", **axes)


def drawn(figure: Figure) -> tuple[str, str]:
    """The figure alone on a page, wide and for a phone."""
    return drawn_beside(figure)


def drawn_beside(figure: Figure, *charts) -> tuple[str, str]:
    """The figure on a page that has other charts as well."""
    series = figures.styled_labels(figure)
    return figures.draw(figure, rendering.styles_of_charts([*charts, series]))


def titles(svg: str) -> list[list[str]]:
    return [mark.find(f"{SVG}title").text.split("\n") for mark in marks(svg)]


def marks(svg: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f".//{SVG}path[@class='mark']")


def test_every_known_figure_is_a_mark():
    series = {"dense": [(10, interval(10.0)), (100, NOTHING), (1000, interval(30.0))]}
    figure = figure_of("lines", series, y="<accuracy> & more", x_axis=Axis("page views", log=True))
    for svg in drawn(figure):
        assert titles(svg) == [
            ["dense", "10", "10.0 [5.0, 15.0]"],
            ["dense", "1,000", "30.0 [25.0, 35.0]"],
        ]
        said = ElementTree.fromstring(svg).get("aria-label")
        assert (
            said == "Line chart of <accuracy> & more by page views. dense: 10 at 10 to 30 at 1,000."
        )
    styles = rendering.styles_of_charts([figures.styled_labels(figure)])
    alone = rendering.standalone(figure, styles)
    ElementTree.fromstring(alone)
    assert "var(" not in alone, "a figure as a file needs no page"
    assert "#1b4aa6" in alone


def test_bars_have_a_mark_each_for_what_is_known():
    groups = [f"a relation with a long name {i}" for i in range(8)]
    values = {
        "dense": [interval(10.0)] * len(groups),
        "lsr": [NOTHING, *[interval(-20.0)] * (len(groups) - 1)],
    }
    series = {name: [*zip(groups, of, strict=True)] for name, of in values.items()}
    figure = figure_of("bars", series, y="points")
    assert len(titles(drawn(figure)[0])) == 2 * len(groups) - 1
    sizes = [
        re.search(r"h(-?[\d.]+)v(-?[\d.]+)h", mark.get("d")).groups()
        for mark in marks(drawn(figure)[0])
    ]
    widths, heights = np.array(sizes, float).T
    assert np.ptp(heights) == 0 < np.ptp(widths)
    assert f"; LSR: {groups[0]} \N{EN DASH}, {groups[1]} \N{MINUS SIGN}20" in figures.alt(figure)


def test_never_and_always_lie_on_the_two_edges():
    cuts = {
        "least": (0.0, 0.0, 50.0),
        "most": (math.inf, 50.0, math.inf),
        "some": (100.0, 50.0, 200.0),
    }
    points = {"dense": [(name, Interval(*cut)) for name, cut in cuts.items()]}
    figure = figure_of("ranges", points, y_axis=Axis("", log=True))
    never, always, some = (
        float(re.match(r"M([\d.]+)", mark.get("d"))[1]) for mark in marks(drawn(figure)[0])
    )
    assert never < some < always
    assert some == pytest.approx((never + always) / 2, abs=0.2)  # in the middle on a log scale
    assert titles(drawn(figure)[0])[1] == ["dense", "most", "∞ [50, ∞]"]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5), SCALES, ROOMS)
@example([999997279.0, 999999501.0], "", 300)
@example([999999729.0, 999999951.0], "", 300)
def test_a_linear_scale_holds_all_values_and_has_few_round_ticks(values, kind, room):
    values = [round(value, 3) for value in values]
    scale = drawing.linear(values, 0, room, zero=kind == "zero", tight=kind == "tight")
    assert all(-1e-6 <= scale(value) <= room + 1e-6 for value in values)
    assert 1 <= len(scale.ticks) <= room / 10
    assert kind != "zero" or 0 <= scale(0) <= room
    texts = [text for _, text in scale.ticks]
    assert len(set(texts)) == len(texts)
    # 1.0000000B, where so many digits tell ticks apart; values that are closer need more of them
    are_close = max(values) - min(values) < 1e-6 * max(map(abs, values))
    assert are_close or max(map(len, texts)) <= 10


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=5), ROOMS)
def test_a_log_scale_holds_all_values_and_its_ticks_do_not_touch(values, room):
    scale = drawing.logarithmic(values, 0, room)
    assert all(0 <= scale(value) <= room for value in values)
    at = [scale(tick) for tick, _ in scale.ticks]
    assert at
    assert all(right - left > 25 for left, right in pairwise(at))


def test_ticks_have_the_digits_that_tell_them_apart():
    texts = {
        (0.25, 0.05): "0.25",
        (1000, 500): "1,000",
        (2.5e6, 5e5): "2.5M",
        (3e9, 1e9): "3B",
        (0, 0.5): "0.0",
    }
    texts |= {(-20, 10): "\N{MINUS SIGN}20"}
    assert {number: drawing.number(*number) for number in texts} == texts


def test_a_files_colour_is_the_pages():
    """It stands out on light and on dark."""

    def luminance(colour: str) -> float:
        return float(rgb(colour) @ [0.2126, 0.7152, 0.0722])

    def contrast(*colours: str) -> float:
        """As WCAG counts it."""
        dark, light = sorted(map(luminance, colours))
        return (light + 0.05) / (dark + 0.05)

    for side, own in enumerate(page_colours()):
        for name in ("ink", "soft", "link", "good", "none", "bad"):
            assert (
                min(contrast(own[name], own[ground]) for ground in ("paper", "panel", "stripe"))
                >= 4.5
            ), name
        for style in (*drawing.STYLES, *drawing.GREYS):
            name, on_light = re.fullmatch(r"var\(--(\w+),(#\w+)\)", style.colour).groups()
            assert contrast(own[name], own["paper"]) >= 3, name
            assert side or own[name] == on_light


@pytest.mark.parametrize("sight", SIGHTS)
def test_no_two_methods_look_alike_to_any_eye(sight):
    """Distances in Oklab; 0.02 is just noticed."""
    for own in page_colours():
        seen = [oklab(SIGHTS[sight] @ rgb(own[f"c{i}"])) for i in range(len(drawing.STYLES))]
        assert min(math.dist(*two) for two in combinations(seen, 2)) > 0.07
    assert len({style.marker for style in drawing.STYLES}) == len(drawing.STYLES)


def test_a_method_has_its_colour_on_every_page():
    """Of a further retriever, or another language model, it has another mark.

    Other policies than no retrieval are grey, whatever the page.
    """
    # the sixth style is no method's
    of_methods = dict(zip(METHODS, drawing.STYLES[:5] + drawing.STYLES[6:], strict=True))
    charts = [
        ["tiny", "small", "large"],
        ["PopQA"],
        [*METHODS, "dense (bert)", "without retrieval, gpt-4"],
        POLICY_LABELS,
    ]
    for beside in ([], charts):
        for method, style in of_methods.items():
            assert rendering.styles_of_charts([*beside, [method]])[method] == style
    styles = rendering.styles_of_charts(charts)
    assert styles["without retrieval, gpt-4"].colour == of_methods["without retrieval"].colour
    assert styles["dense (bert)"].colour == of_methods["dense"].colour
    assert len(
        {(style.colour, style.marker) for name, style in styles.items() if name in charts[2]}
    ) == len(charts[2])
    greys = {style.colour for style in drawing.GREYS}
    grey = ("tiny", "small", "large", "PopQA", *POLICY_LABELS[1:])
    assert {styles[name].colour for name in grey} <= greys
    assert len({styles[name].marker for name in POLICY_LABELS}) == len(POLICIES)
    of_file = "always retrieving (file)"
    assert rendering.styles_of_charts([[of_file]])[of_file].colour in greys
    few = rendering.styles_of_charts([["tiny", "small"], METHODS[1:]])
    assert {few["tiny"].colour, few["small"].colour} <= greys, (
        "without retrieval has its colour on other pages"
    )
    systems = ["contriever", "search-r1", "closed", "dense"]
    in_orders = []
    for names in (systems, systems[::-1], systems[1:]):
        styles = rendering.styles_of_charts([names, POLICY_LABELS])
        assert styles["closed"] == of_methods["without retrieval"]
        assert len({styles[name].colour for name in names} - greys) == len(names)
        in_orders.append(styles["search-r1"])
    assert len({*in_orders}) == 1, "a system has the same of the colours that methods leave"


def test_three_lines_show_their_bands():
    """Each line is named at its end."""
    heights = {"closed_book": 5.0, "dense": 50.0, "lsr": 48.0, "bm25": 51.0, "genread": 49.0}
    series = {
        name: [(place, interval(height)) for place in (1, 2, 3)] for name, height in heights.items()
    }
    for less, shown in (
        (False, {"without retrieval", "BM25", "dense"}),
        (True, {"without retrieval", "GenRead", "LSR"}),
    ):
        figure = figure_of("lines", series, "x", "y", caption="Lines.", low_is_good=less)
        said = figures.caption(figure).removeprefix("Lines. Bands shown: ").split("; ")[0]
        assert {*said.split(", ")} == shown
        for svg in drawn(figure):
            groups = ElementTree.fromstring(svg).findall(f"{SVG}g[@class='series']")
            texts = {group.find(f"{SVG}text").text: group.find(f"{SVG}text") for group in groups}
            assert [*texts] == [values.label(name) for name in heights]
            bands = [group.find(f"{SVG}path[@class='band']").get("visibility") for group in groups]
            assert {
                name for name, hidden in zip(texts, bands, strict=True) if hidden is None
            } == shown
            at = sorted(float(text.get("y")) for text in texts.values())
            assert all(below - above >= 14 for above, below in pairwise(at)), (
                "names lie on each other"
            )
    two = {name: series[name] for name in ("lsr", "bm25")}
    few = figure_of("lines", two, "x", "y", caption="Lines.")
    assert figures.caption(few) == "Lines."
    assert "visibility" not in drawn(few)[0]


def test_lines_without_intervals_have_no_bands():
    """The caption names none, however many lines there are."""
    series = {
        name: [(place, Interval(height, height, height)) for place in (1, 2)]
        for height, name in enumerate(METHODS[:5])
    }
    figure = figure_of("lines", series, "x", "y", caption="Lines.")
    assert figures.caption(figure) == "Lines."
    assert "band" not in drawn(figure)[0]
    series[METHODS[0]] = [(place, interval(9.0)) for place in (1, 2)]
    figure = figure_of("lines", series, "x", "y", caption="Lines.")
    assert figures.caption(figure) == "Lines."
    assert drawn(figure)[0].count('class="band"') == 1


def test_no_rule_touches_a_name_above_its_row():
    """What covers the rules is as long and as high as the letters."""
    name = "a name that takes more than its part of a narrow drawing"
    figure = figure_of("bars", {"series": [(name, interval(1.0))]}, "x", "y")
    root = ElementTree.fromstring(drawn(figure)[1])
    size = float(root.get("font-size"))
    (text,) = [one for one in root.findall(f"{SVG}text") if one.text.startswith(name[:12])]
    (cover,) = [one for one in root.findall(f"{SVG}path") if "paper" in one.get("stroke", "")][:1]
    x, y, end, _ = map(float, re.findall(r"[\d.]+", cover.get("d")))
    half = float(cover.get("stroke-width")) / 2
    baseline = float(text.get("y"))
    assert y - half <= baseline - size, "capitals are about three quarters of the size high"
    assert baseline + 0.25 * size <= y + half, "letters such as g go below the line"
    assert x <= float(text.get("x"))
    assert end >= drawing.Canvas(drawing.NARROW).length(text.text)


def test_long_names_of_lines_are_a_legend():
    name = "a name that takes more than its part of a narrow drawing"
    figure = figure_of("lines", {name: [(1, interval(1.0)), (2, interval(2.0))]}, "x", "y")
    sides = [ElementTree.fromstring(svg).findall(f"{SVG}g/{SVG}text") for svg in drawn(figure)]
    assert sides == [[], []]
    assert all(name[:30] in svg for svg in drawn(figure))


@given(st.lists(st.floats(0, 200), min_size=1, max_size=8))
def test_names_beside_each_other_keep_their_order_and_lie_apart(wanted):
    found = drawing.apart(wanted, 15, 0, 200)
    ordered = sorted(zip(wanted, found, strict=True))
    assert all(
        below[1] - above[1] >= 15 - 1e-6
        for above, below in pairwise(ordered)
        if below[0] > above[0]
    )
    assert all(abs(a - b) >= 15 - 1e-6 for a, b in combinations(found, 2))
    assert -1e-6 <= min(found) <= max(found) <= 200 + 1e-6
    if all(below[0] - above[0] >= 15 for above, below in pairwise(ordered)):
        assert found == pytest.approx(wanted)


def test_a_dumbbell_goes_from_the_first_to_the_second():
    values = {
        "never": (30.0, 30.0),
        "always": (70.0, 20.0),
        "adaptive": (72.0, NOTHING.value),
        "oracle": (80.0, 40.0),
    }
    places = ("BM25", "GenRead")
    points = {key: [*zip(places, map(interval, of), strict=True)] for key, of in values.items()}
    figure = figure_of("dumbbell", points, y="accuracy")
    assert figures.alt(figure) == (
        "Dot plot of accuracy. BM25: without retrieval 30, always retrieving 70, adaptive retrieval "
        "72, oracle 80; GenRead: without retrieval 30, always retrieving 20, adaptive retrieval \N{EN DASH}, oracle 40."
    )
    for svg in drawn(figure):
        assert [title[:2] for title in titles(svg)] == [
            [policy, place]
            for place in places
            for policy in POLICY_LABELS
            if (policy, place) != ("adaptive retrieval", "GenRead")
        ]
        found = {tuple(mark.find(f"{SVG}title").text.split("\n")[:2]): mark for mark in marks(svg)}
        paths = ElementTree.fromstring(svg).findall(f"{SVG}path")
        for place, method in zip(places, (drawing.STYLES[1], drawing.STYLES[6]), strict=True):
            at = [
                re.match(r"M([\d.]+) ([\d.]+)", found[policy, place].get("d")).groups()
                for policy in POLICY_LABELS[:2]
            ]
            (line,) = [path for path in paths if path.get("stroke") == method.colour]
            assert line.get("d") == f"M{' '.join(at[0])}L{' '.join(at[1])}"


def test_bars_of_one_model_have_their_methods_colours():
    bars = {lm: [("BM25", interval(1.0)), ("dense", interval(2.0))] for lm in ("tiny", "large")}
    one = figure_of("bars", {"tiny": bars["tiny"]}, y="accuracy")
    assert [mark.get("fill") for mark in marks(drawn(one)[0])] == [
        drawing.STYLES[1].colour,
        drawing.STYLES[2].colour,
    ]
    two = figure_of("bars", bars, y="accuracy")
    beside_methods = drawn_beside(two, METHODS)[0]
    assert {mark.get("fill") for mark in marks(beside_methods)} <= {
        style.colour for style in drawing.GREYS
    }


def test_bars_of_one_colour_beside_each_other_are_told_apart():
    methods = ("dense", "dense (mpnet)", "bm25", *(f"model {i}" for i in range(4)))
    figure = figure_of("bars", {one: [("PopQA", interval(10.0))] for one in methods})
    beside_methods = drawn_beside(figure, METHODS)[0]
    looks = [(mark.get("fill"), mark.get("fill-opacity")) for mark in marks(beside_methods)]
    assert len({*looks}) == len(methods)
    assert (looks[0][1], looks[1]) == (None, (looks[0][0], ".3"))


def test_popularity_adds_up_to_the_questions_of_a_set(tmp_path):
    bins = {"popqa": [(1.0, 10.0, 1), (10.0, 100.0, 2), (1e4, 1e5, 1)], "nq": [(10.0, 100.0, 3)]}
    rows = [
        {"dataset": name, "least": least, "below": below, "questions": n}
        for name, of in bins.items()
        for least, below, n in of
    ]
    tables = report_tables.tables_of(tmp_path, small_results.settings([]), popularity=rows)
    known = [{"dataset": "popqa", "known": 4}, {"dataset": "nq", "known": 3}]
    curves = popularity_section.curves(tables, known)
    points = {
        name: [(r["below"], r["share"]) for r in curves if r["dataset"] == name] for name in bins
    }
    assert points["popqa"] == [(1.0, 0.0), (10.0, 0.25), (100.0, 0.75), (1e4, 0.75), (1e5, 1.0)]
    assert points["nq"] == [(10.0, 0.0), (100.0, 1.0), (1e5, 1.0)]
