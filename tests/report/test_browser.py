"""The pages in a real browser, headless Chromium: nothing but the page is asked for, it fits
every screen, it works.
"""

import csv
import re
import struct
from itertools import combinations
from xml.etree import ElementTree

import hostile
import pytest
import systems
from chromium import COVERED, NAMELESS
from report_files import unclear_parts

from pipelines.pages import figures

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
PAGES = ("report", "details", "thresholds", "comparison")
ACCURACY = "#figure-accuracy-by-popularity-popqa"
FIGURES = """() => [...document.querySelectorAll("figure svg")].filter((svg) => svg.checkVisibility()).map((svg) => {
    const box = svg.getBoundingClientRect(), figure = svg.closest("figure").id;
    const cut = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect())
        .filter((own) => own.width && (own.left < box.left - 1 || own.right > box.right + 1)).length;
    return [figure, box.left, box.right, box.height, box.width / svg.viewBox.baseVal.width, cut];
})"""
TABLES_FIT = """() => [...document.querySelectorAll(".scroll")]
    .every((scroll) => scroll.scrollWidth <= scroll.clientWidth + 1)"""
WIDTH = "document.documentElement.scrollWidth"
GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture
def opened(opened):
    """Opens a page with everything unfolded, on a desk if nothing else is said."""

    def open_page(url, viewport=DESK, unfolded=True, **more):
        page = opened(url if isinstance(url, str) else url.as_uri(), viewport=viewport, **more)
        if unfolded:
            page.evaluate(
                "for (const one of document.querySelectorAll('.numbers')) one.open = true"
            )
        return page

    return open_page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_screen(opened, files, name):
    """That colours stand out on both grounds is in test_figures.py."""
    page = opened(files[name], PHONE, color_scheme="dark")
    ids = page.locator("figure").evaluate_all("all => all.map((one) => one.id)")
    for width in (390, 1100, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(TABLES_FIT)
        assert page.evaluate(WIDTH) == width
        shown = page.evaluate(FIGURES)
        assert [figure for figure, *_ in shown] == ids
        for figure, left, right, height, scale, cut in shown:
            assert 0 <= left < right <= width, figure
            assert height > 60, figure
            assert scale == pytest.approx(1, abs=0.03), (
                f"{figure}: its letters are not of the size they were made for"
            )
            assert cut == 0, f"{figure}: texts stand out of it"
    assert page.evaluate(NAMELESS) == []
    names = page.locator("[id]").evaluate_all("all => all.map((one) => one.id)")
    assert len({*names}) == len(names)
    assert page.evaluate(GROUND) == "rgb(20, 24, 30)"
    page.locator(".theme").click()
    assert page.evaluate(GROUND) == "rgb(252, 252, 250)"


@pytest.mark.parametrize("name", PAGES)
def test_a_name_has_one_colour_in_all_figures(files, name):
    """A method has its colour whichever language model answered; its marks differ then."""
    colours = {}
    drawings = re.findall(r"<svg .*?</svg>", files[name].read_text(encoding="utf-8"), re.DOTALL)
    for drawing in drawings:
        marks = re.findall(
            r'class="mark" d="[^"]*" fill="(var\(--c[^"]*)"><title>([^\n]*)\n', drawing
        )
        # of the graph of stages
        of_drawing = {series: colour for colour, series in marks if series != "after"}
        for one, other in combinations(of_drawing, 2):
            own = figures.fixed(one)
            assert of_drawing[one] != of_drawing[other] or (own and own == figures.fixed(other)), (
                one,
                other,
            )
        for series, colour in of_drawing.items():
            assert colours.setdefault(series, colour) == colour, series
            assert not (own := figures.fixed(series)) or own.colour == colour, series
    assert len(colours) >= 5
    assert len(drawings) >= 2


@pytest.mark.parametrize("name", ["thresholds", "comparison"])
def test_sections_lead_and_captions_are_short(files, name):
    assert unclear_parts(files[name].parent) == []


def test_the_page_counts_where_two_files_disagree(files):
    made = systems.make()
    with (files["comparison"].parent / "pairs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    for row in rows:
        names = row["system"], row["less"]
        first, second = (made.closed if name == "closed" else made.augmented for name in names)
        counts = int(row["only this"]), int(row["only that"])
        assert counts == ((first > second).sum(), (first < second).sum()), names


@pytest.mark.slow
def test_a_mark_says_its_value_and_interval(opened, files):
    page = opened(files["report"], PHONE)
    plot = page.locator(f"{ACCURACY} .plot:visible")
    name, place, value = plot.locator("svg:visible .mark title").nth(1).text_content().split("\n")
    plot.scroll_into_view_if_needed()
    box = plot.locator("svg:visible .mark").nth(1).bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    tip = plot.locator(".tip")
    assert tip.locator(".here").inner_text().split("\t") == [name, value]
    assert tip.locator("b").inner_text() == place
    assert tip.locator("tr").count() == 7, "the other methods at the same place"
    page.mouse.move(0, 0)
    bands = plot.locator("svg:visible .band:visible")
    assert bands.count() == 3
    hidden = plot.locator("svg:visible .series", has=page.locator(".band[visibility=hidden]")).first
    box = hidden.locator(".mark").first.bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    assert bands.count() == 4, "the band of the line that is pointed at"
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    assert bands.count() == 3
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert tip.locator(".here").inner_text().split("\t") == [name, value]
    box = tip.bounding_box()
    assert 0 <= box["x"] <= box["x"] + box["width"] <= PHONE["width"]
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_the_first_screen_of_a_phone_has_the_main_result(opened, files):
    """It says that the sample is fictional. Print has the papers."""
    page = opened(files["report"], PHONE, unfolded=False)
    for part in (".headline:visible", ".main dl", ".main .plot:visible", ".real p >> nth=0"):
        box = page.locator(part).bounding_box()
        assert 0 < box["y"] < box["y"] + box["height"] <= PHONE["height"], part
    page.emulate_media(media="print")
    assert page.locator("header a:visible").count() == 3
    assert page.locator("header > a:visible, .numbers:visible, nav:visible").count() == 0


def test_tables_sort_filter_and_unfold(opened, files):
    frame = opened(files["report"], PHONE).locator("#table-comparisons")
    rows = frame.locator("tbody tr:visible")
    column = frame.locator("tbody tr:visible td:nth-child(9)")
    total = frame.locator("tbody tr").count()
    assert rows.count() == 12 < total
    frame.locator(".tools button").click()
    assert rows.count() == total
    head = frame.locator("thead th").nth(8)
    for order, expected in (("ascending", False), ("descending", True)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        only_this = [int(text.replace(",", "")) for text in column.all_inner_texts()]
        assert only_this == sorted(only_this, reverse=expected)
    frame.locator("input").fill("BM25")
    found = rows.all_inner_texts()
    assert 0 < len(found) < total
    assert all("bm25" in text.lower() for text in found)


def test_without_scripts_everything_can_be_read(opened, files):
    page = opened(files["report"], PHONE, java_script_enabled=False, unfolded=False)
    assert page.locator(".drawn:visible").count() > 2
    assert page.locator("button:visible, select:visible, input:visible").count() == 0
    for fold in page.locator(".numbers > summary").all():
        fold.click()
    rows = page.locator("tbody tr")
    assert page.locator("tbody tr:visible").count() == rows.count() > 100


@pytest.mark.slow
def test_figures_and_tables_are_saved_from_the_page(opened, files):
    """The SVG is the file beside the page, the PNG has its size and colours, and the CSV its
    numbers.
    """
    page = opened(files["report"], PHONE, accept_downloads=True)
    beside = files["report"].parent

    def saved(button, name) -> bytes:
        with page.expect_download() as download:
            button.click()
        assert download.value.suggested_filename == name
        return download.value.path().read_bytes()

    drawing = page.locator(f"{ACCURACY} .drawn:visible .save button")
    name = "accuracy-by-popularity-popqa"
    svg, png = (
        saved(drawing.filter(has_text=kind.upper()), f"{name}.{kind}") for kind in ("svg", "png")
    )
    mine = ElementTree.fromstring(svg)
    theirs = ElementTree.parse(beside / f"figures/{name}.svg").getroot()
    assert [mark.attrib for mark in mine.iter()][1:] == [mark.attrib for mark in theirs.iter()][1:]
    assert b"var(" not in svg
    assert png.startswith(b"\x89PNG")
    box = [int(length) for length in theirs.get("viewBox").split()]
    assert struct.unpack(">II", png[16:24]) == (3 * box[2], 3 * box[3])
    assert len(png) > 20_000, "it is empty"
    table = saved(page.locator("#table-accuracy a", has_text="Save as CSV"), "accuracy.csv")
    assert table.decode() == (beside / "tables/accuracy.csv").read_text()


def test_tables_as_files_have_all_that_a_page_cuts(spoilt_files):
    folder = spoilt_files["report"].parent
    rejected = (folder / "tables/rejects.csv").read_text(encoding="utf-8")
    assert all(
        label[:20] in rejected.replace('""', '"') for label in hostile.LABELS if "\r" not in label
    )
    assert "x" * 10_000 in rejected
    assert "x" * 2_001 not in spoilt_files["report"].read_text(encoding="utf-8")
    for svg in folder.glob("figures/*.svg"):
        ElementTree.parse(svg)


@pytest.mark.parametrize("name", PAGES)
def test_hostile_labels_run_nothing(opened, spoilt_files, name):
    """Nothing is asked for, and nothing is covered."""
    text = spoilt_files[name].read_text(encoding="utf-8")
    assert not re.search(hostile.STEERING, text)
    assert len(list(ElementTree.fromstring(text).iter("script"))) == 1
    page = opened(spoilt_files[name], PHONE)
    for button in page.locator(".tools button:visible").all()[:6]:
        button.click()
    assert page.locator("img, iframe, base, object, embed, meta[http-equiv]").count() == 0
    for viewport in (PHONE, DESK):
        page.set_viewport_size(viewport)
        assert page.evaluate(WIDTH) == viewport["width"]
        assert page.evaluate(COVERED) == []
