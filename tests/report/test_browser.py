"""The pages in a real browser, headless Chromium: nothing but the page is asked for, it fits every screen, it works."""

import csv
import re
import struct
from xml.etree import ElementTree

import pytest
import systems
from waiting import PATIENCE

PHONE, MIDDLE, DESK = ({"width": width, "height": height} for width, height in ((390, 844), (1100, 900), (1440, 900)))
ACCURACY, GAIN = "#figure-accuracy-by-popularity-popqa", "#figure-gain-by-popularity-popqa"
CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const luminance = ([r, g, b]) => [r, g, b].map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const colour = rgba(getComputedStyle(one).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        return [255, 255, 255];
    };
    const low = [];
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !element.checkVisibility() || ["SCRIPT", "title"].includes(element.tagName)) continue;
        const style = getComputedStyle(element), svg = element instanceof SVGElement;
        const [a, b] = [luminance(rgba(svg ? style.fill : style.color)), luminance(ground(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) low.push(`${element.tagName} ${element.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
    return low;
}"""


@pytest.fixture
def opened(browser, files):
    """Opens a page with everything unfolded: what it said and asked for is in `noise`, which must stay empty."""
    contexts, noise = [], []

    def open_page(name="report", viewport=DESK, unfolded=True, **more):
        contexts.append(browser.new_context(viewport=viewport, **more))
        page = contexts[-1].new_page()
        page.set_default_timeout(1000 * PATIENCE)
        url = files[name].as_uri()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: _of_the_page(request.url, url) or noise.append(request.url))
        page.goto(url)
        if unfolded:
            page.evaluate("for (const one of document.querySelectorAll('.numbers')) one.open = true")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert noise == []


def _of_the_page(asked, url):
    return asked.split("#")[0] == url or asked.startswith(("data:image/", "data:text/csv"))


@pytest.mark.parametrize("viewport", [PHONE, MIDDLE, DESK], ids=["phone", "middle", "desk"])
@pytest.mark.parametrize(
    "name", ["report", "moved", "history", "attribution", "difference", "thresholds", "comparison"]
)
def test_a_page_fits_the_screen_and_its_figures_are_seen_at_their_size(opened, name, viewport):
    page = opened(name, viewport)
    assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    shown = page.evaluate("""[...document.querySelectorAll("figure svg")].filter((svg) => svg.checkVisibility())
        .filter((svg) => !svg.closest("details:not([open])"))
        .map((svg) => [svg.closest("figure").id, svg.getBoundingClientRect(), svg.viewBox.baseVal.width])
        .map(([id, box, width]) => [id, box.left, box.right, box.height, box.width / width])""")
    figures = page.locator("figure").count()
    assert [row[0] for row in shown] == page.locator("figure").evaluate_all("all => all.map((one) => one.id)")
    assert figures > 10 or name != "report"
    for figure, left, right, height, scale in shown:
        assert 0 <= left < right <= viewport["width"], figure
        assert height > 60, figure
        assert scale == pytest.approx(1, abs=0.03), f"{figure}: its letters are not of the size they were made for"
    cut = page.evaluate("""[...document.querySelectorAll("figure svg text")].filter((text) => text.checkVisibility())
        .map((text) => [text.getBoundingClientRect(), text.closest("svg").getBoundingClientRect(), text.textContent])
        .filter(([own, all]) => own.left < all.left - 1 || own.right > all.right + 1).map(([, , words]) => words)""")
    assert cut == [], "texts that stand out of their figures"


@pytest.mark.parametrize("width", [400, 1100])
@pytest.mark.parametrize("name", ["report", "history", "thresholds", "comparison"])
def test_a_wide_table_scrolls_in_its_own_box_and_its_first_column_stays(opened, name, width):
    """The first cell of every row, that of the head as well, stays in sight, above the cells that pass it."""
    page = opened(name, {"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    scrolled = page.evaluate("""() => [...document.querySelectorAll(".scroll")].map((box) => {
        box.scrollLeft = 1e6;
        const left = box.getBoundingClientRect().left, all = [...box.querySelectorAll("tr")];
        const rows = all.filter((row) => row.checkVisibility()).slice(0, 4);
        const firsts = rows.map((row) => row.cells[0]), seen = firsts.map((cell) => {
            cell.scrollIntoView({ block: "center", inline: "nearest" });
            const { left, top, height } = cell.getBoundingClientRect();
            return cell.contains(document.elementFromPoint(left + 3, top + height / 2));
        });
        const moved = firsts.map((cell) => Math.abs(cell.getBoundingClientRect().left - left));
        const share = Math.max(...firsts.map((cell) => cell.offsetWidth)) / box.clientWidth;
        const range = document.createRange(), tall = firsts.slice(1).map((cell) => {
            range.selectNodeContents(cell);
            return cell.className === "brief" ? range.getBoundingClientRect().height : 0;
        });
        const far = box.scrollLeft;
        return [box.closest(".table").id, far, Math.max(...moved), seen.every(Boolean), share, Math.max(...tall)];
    })""")
    wide = [row for row in scrolled if row[1] > 0]
    assert len(wide) >= 2
    for table, _, moved, seen, share, tall in wide:
        assert moved < 1, f"{table}: its first column does not stay"
        assert seen, f"{table}: its first column is covered"
        assert share < 0.6, f"{table}: its first column takes the room"
        assert tall < 70, f"{table}: its first column has four lines or more"


@pytest.mark.parametrize("name", ["report", "moved", "history", "thresholds", "comparison"])
def test_a_name_has_one_colour_in_all_figures_of_a_page_and_no_two_of_a_figure_share_it(files, name):
    text = files[name].read_text(encoding="utf-8")
    colours, drawings = {}, re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    for drawing in drawings:
        marks = re.findall(r'class="mark" d="[^"]*" fill="(var\(--c[^"]*)"><title>([^\n]*)\n', drawing)
        marks = [(colour, series.removesuffix(", before")) for colour, series in marks]
        of_drawing = {series: colour for colour, series in marks if series != "after"}  # of the graph of stages
        assert len({*of_drawing.values()}) == min(len(of_drawing), 8)
        for series, colour in of_drawing.items():
            assert colours.setdefault(series, colour) == colour, series
    assert len(colours) >= 5
    assert len(drawings) >= 2


def test_pages_of_files_say_what_was_read_and_where_systems_disagree(files):
    for name in ("thresholds", "comparison"):
        text = files[name].read_text(encoding="utf-8")
        read = text[text.index('<section id="files') :]
        assert "What was read" in read
        for file in ("popQA.tsv: TSV, 300 questions", "closed.csv: CSV, 300 rows", "300 of 300 rows joined by id"):
            assert file in read
    assert "Where they disagree: popQA-2021-10" in text
    made = systems.make()
    rows = list(csv.DictReader((files["comparison"].parent / "agreement-popQA-2021-10.csv").open(encoding="utf-8")))
    kinds = ("both right", "only the first", "only the second", "neither")
    by_pair = {}
    for row in rows:
        by_pair.setdefault((row["system"], row["and"]), {})[row["relation"]] = [int(row[kind]) for kind in kinds]
        assert sum(int(row[kind]) for kind in kinds) == int(row["questions"])
    assert len(by_pair) == 6
    for pair, of_pair in by_pair.items():
        everything = of_pair.pop("all")
        first, second = (made.closed if name == "closed" else made.augmented for name in pair)
        assert everything == [n.sum() for n in (first & second, first > second, first < second, ~first & ~second)]
        assert len(of_pair) == len(systems.RELATIONS)
        assert everything == [sum(counts) for counts in zip(*of_pair.values(), strict=True)]


def test_a_click_on_a_relation_changes_the_figures_that_have_it(opened):
    page = opened()
    figure, chosen = page.locator(ACCURACY), page.locator(f"{ACCURACY} select")
    whole = figure.locator("svg:visible").inner_html()
    page.locator("#table-accuracy-by-relation-popqa tbody button", has_text="director (P57)").first.click()
    assert chosen.input_value() == "director (P57)"
    assert figure.locator("svg:visible").count() == 1
    assert figure.locator("svg:visible").inner_html() != whole
    assert "director (P57)" in figure.locator("figcaption:visible").inner_text()
    assert page.locator(f"{GAIN} select").input_value() == "director (P57)"
    assert figure.evaluate("one => Math.abs(one.getBoundingClientRect().top)") < 50, (
        "they are not where the reader looks"
    )
    chosen.select_option("")
    assert figure.locator("svg:visible").inner_html() == whole


def test_pointer_and_keyboard_make_a_mark_say_its_value_and_interval(opened):
    for viewport in (DESK, PHONE):
        page = opened(viewport=viewport)
        plot = page.locator(f"{ACCURACY} .plot:visible")
        title = plot.locator("svg:visible .mark title").nth(1).text_content()
        name, place, value = title.split("\n")
        assert re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]", value)
        plot.scroll_into_view_if_needed()
        box = plot.locator("svg:visible .mark").nth(1).bounding_box()
        page.mouse.move(box["x"] + 4, box["y"] + 4)
        tip = plot.locator(".tip")
        assert tip.locator(".here").inner_text().split("\t") == [name, value]
        assert tip.locator("b").inner_text() == place
        assert tip.locator("tr").count() == 7, "the other methods at the same place"
        page.mouse.move(0, 0)
        assert tip.is_hidden()
        plot.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert tip.locator(".here").inner_text().split("\t") == [name, value]
        assert tip.evaluate("""one => {
            const box = one.getBoundingClientRect();
            return box.left >= 0 && box.right <= innerWidth;
        }""")
        page.keyboard.press("Escape")
        assert tip.is_hidden()


def test_tables_sort_filter_and_unfold(opened):
    page = opened()
    frame = page.locator("#table-stages")
    rows, column = frame.locator("tbody tr:visible"), frame.locator("tbody tr:visible td:nth-child(3)")
    total = frame.locator("tbody tr").count()
    assert rows.count() == 12 < total
    frame.locator(".tools button").click()
    assert rows.count() == total
    head = frame.locator("thead th").nth(2)
    for order, expected in (("ascending", False), ("descending", True)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        runs = [int(text) for text in column.all_inner_texts()]
        assert runs == sorted(runs, reverse=expected)
    frame.locator("input").fill("BM25")
    found = rows.all_inner_texts()
    assert 0 < len(found) < total
    assert all("bm25" in text.lower() for text in found)


def test_a_table_fades_where_its_columns_go_on(opened):
    page = opened(viewport=PHONE)
    scroll = page.locator("#table-stages .scroll")
    assert scroll.evaluate("one => one.scrollWidth > one.clientWidth && one.classList.contains('more')")
    scroll.evaluate("one => { one.scrollLeft = one.scrollWidth; }")
    page.locator("#table-stages .scroll:not(.more)").wait_for()


@pytest.mark.parametrize("name", ["report", "moved", "history", "attribution", "difference"])
def test_every_text_can_be_read_on_light_and_on_dark(opened, name):
    page = opened(name, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 24, 30)"
    assert page.evaluate(CONTRAST) == []
    page.locator(".theme").click()
    assert page.evaluate(ground) == "rgb(252, 252, 250)"
    assert page.evaluate(CONTRAST) == []
    page.locator(".theme").click()
    assert page.evaluate(ground) == "rgb(20, 24, 30)"


def test_the_contents_follow_the_reader_and_open_on_a_phone(opened):
    page = opened()
    page.evaluate("document.querySelector('#provenance').scrollIntoView()")
    page.locator(".contents a[aria-current]", has_text="How this page was made").wait_for()
    assert page.locator(".contents a").first.is_visible()
    page = opened(viewport=PHONE)
    link = page.locator(".contents a", has_text="How this page was made")
    assert link.is_hidden()
    page.locator(".contents summary").click()
    link.click()
    assert link.is_hidden(), "what was chosen is covered"
    top, bar = (page.locator(one).bounding_box() for one in ("#provenance h2", ".contents"))
    assert bar["y"] == 0
    assert top["y"] >= bar["height"] - 1


def test_print_has_a_figure_and_a_sentence_a_section_in_ink_on_paper_and_few_pages(opened):
    page = opened(color_scheme="dark", unfolded=False)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("nav:visible, .tools:visible, .theme:visible, .numbers:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 36, 48)"
    sections = page.locator("main > section:not(#findings)")
    for section in sections.all():
        of_figures = section.get_attribute("id") != "provenance"
        assert section.locator("svg:visible").count() == of_figures, section.get_attribute("id")
        assert section.locator(".says:visible").count() == 1, section.get_attribute("id")
    assert len(re.findall(rb"/Type /Page\b", page.pdf(format="A4"))) <= 10 < sections.count()
    page.locator("#accuracy .numbers").evaluate("one => { one.open = true; }")
    assert page.locator("#accuracy .numbers tbody:not(.word) tr:visible").count() > 40, "what is unfolded is printed"


@pytest.mark.parametrize("scripts", [True, False])
def test_a_switch_shows_one_rule_at_a_time_on_the_whole_page(opened, files, scripts):
    page = opened(java_script_enabled=scripts, unfolded=scripts)
    head = page.locator("#table-accuracy thead th:visible")
    for rule, other in (("substring", "word"), ("word", "substring")):
        page.locator(f"#rule-{rule}").check()
        assert page.locator(f".{rule}.drawn:visible").count() > 2
        assert page.locator(f".{other}.of-rule:visible").count() == 0
        assert page.locator(f".says.{rule}:visible").count() >= 3
        if scripts:
            assert [rule in head.all_inner_texts(), other in head.all_inner_texts()] == [True, False]
            assert page.locator("#table-accuracy-by-popularity-popqa tbody:visible tr").count() == 20
            shown = page.locator("#table-accuracy-by-popularity-popqa tbody tr:visible").first.inner_text().split("\t")
            with (files["report"].parent / "tables/accuracy-by-popularity-popqa.csv").open() as table:
                row = next(row for row in csv.DictReader(table) if row["match"] == rule)
            assert shown[4].startswith(f"{100 * float(row['closed-book']):.1f} [")


def test_figures_and_tables_are_saved_from_the_page(opened, files):
    """The SVG is the file beside the page, the PNG has its size and colours, and the CSV its numbers."""
    page = opened(viewport=PHONE, accept_downloads=True)
    beside = files["report"].parent
    for kind in ("svg", "png"):
        with page.expect_download() as download:
            page.locator(f"{ACCURACY} .drawn:visible .save button", has_text=kind.upper()).click()
        assert download.value.suggested_filename == f"accuracy-by-popularity-popqa.{kind}"
        saved = download.value.path().read_bytes()
        if kind == "svg":
            file = (beside / "figures/accuracy-by-popularity-popqa.svg").read_text(encoding="utf-8")
            mine, theirs = (ElementTree.fromstring(text) for text in (saved, file))
            assert [mark.attrib for mark in mine.iter()][1:] == [mark.attrib for mark in theirs.iter()][1:]
            assert b"var(" not in saved
        else:
            assert saved.startswith(b"\x89PNG")
            width, height = struct.unpack(">II", saved[16:24])
            box = ElementTree.fromstring(file).get("viewBox").split()
            assert [width, height] == [3 * int(box[2]), 3 * int(box[3])]
            assert len(saved) > 20_000, "it is empty"
    with page.expect_download() as download:
        page.locator("#table-accuracy a", has_text="Save as CSV").click()
    assert download.value.suggested_filename == "accuracy.csv"
    assert download.value.path().read_text(encoding="utf-8") == (beside / "tables/accuracy.csv").read_text()


def test_without_scripts_everything_can_be_read(opened):
    page = opened(viewport=PHONE, java_script_enabled=False, unfolded=False)
    assert page.locator("nav").evaluate("one => getComputedStyle(one).position") == "static", "it covers the page"
    assert page.locator("button:visible, select:visible, input:not([type=radio]):visible").count() == 0
    page.locator(f"{ACCURACY} summary").click()
    assert page.locator(f"{ACCURACY} svg:visible").count() == 1 + page.locator(f"{ACCURACY} .choice").count() > 2
    for fold in page.locator(".numbers > summary").all():
        fold.click()
    rows = page.locator("tbody:not(.word) tr")
    assert page.locator("tbody tr:visible").count() == rows.count() > 100


def test_names_say_what_things_are(opened):
    for name in ("report", "attribution", "difference"):
        page = opened(name)
        unnamed = page.evaluate("""[...document.querySelectorAll("svg, select, input, button, [role=region], nav")]
            .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length))
            .map((one) => one.outerHTML.slice(0, 80))""")
        assert unnamed == []
        repeated = page.evaluate("""[...document.querySelectorAll("[id]")].map((one) => one.id)
            .filter((id, i, all) => all.indexOf(id) !== i)""")
        assert repeated == []
