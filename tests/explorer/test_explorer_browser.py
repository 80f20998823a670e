"""The explorer in a real browser: by keyboard, on a phone, with hostile texts, and with nothing asked for elsewhere."""

import re

import pytest
from waiting import PATIENCE

from flows import explorer

PHONE, DESK = {"width": 400, "height": 860}, {"width": 1280, "height": 900}
COVERED = """() => [...document.querySelectorAll("main :is(td, th, p, h1, h2, h3, h4, pre, summary, label)")]
    .filter((one) => one.checkVisibility() && !one.closest(".scroll") && !one.classList.contains("hidden"))
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 || one.getBoundingClientRect().left < -1)
    .map((one) => one.tagName + " " + one.textContent.slice(0, 40))"""
NAMELESS = """() => [...document.querySelectorAll("input, select, button, a, [role=region], nav")]
    .filter((one) => one.type !== "hidden" && !one.classList.contains("anchor"))
    .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length))
    .map((one) => one.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def addresses(answered, spoilt, scored):
    with (
        explorer.serving(open_run=lambda: answered) as plain,
        explorer.serving(open_run=lambda: spoilt) as hostile,
        explorer.serving(open_run=lambda: scored) as texts,
    ):
        yield {"answered": plain, "spoilt": hostile, "scored": texts}


@pytest.fixture
def opened(browser, addresses):
    """Opens a page of a run; what it said, and asked of others than its server, must stay nothing."""
    contexts, noise = [], []

    def open_page(path, run="answered", viewport=DESK, **more):
        contexts.append(browser.new_context(viewport=viewport, **more))
        page, own = contexts[-1].new_page(), addresses[run]
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith((f"{own}/", "data:,")) or noise.append(asked.url))
        page.goto(own + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert noise == []


VIEWS = [
    ("answered", "/"),
    ("answered", "/questions?cell=base"),
    ("answered", "/question?id=q0100"),
    ("spoilt", "/questions?order=id"),
    *(("spoilt", f"/question?id=q{i:04d}&order=id") for i in (0, 9, 22, 35, 44, 45)),
    ("scored", "/texts"),
    ("scored", "/text?id=q0"),
    ("scored", "/attribution?corpus=pile&retriever=lsr&id=q0"),
]


@pytest.mark.parametrize(("run", "path"), VIEWS)
def test_a_view_fits_a_phone_and_its_controls_have_names(opened, run, path):
    for viewport in (PHONE, DESK):
        page = opened(path, run, viewport)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        if "/attribution" not in path:
            assert page.evaluate(COVERED) == []
            assert page.evaluate(NAMELESS) == []


def test_from_a_loss_at_the_head_to_the_questions_that_show_it(opened):
    """By pointer: the most viewed band's row, the count of questions that only closed-book answers get right."""
    page = opened("/questions?method=dense")
    count = page.locator(".bands tbody td:nth-child(5) a").last
    n = int(count.inner_text())
    count.click()
    page.wait_for_url("**#list")
    assert page.locator("#list").inner_text() == f"{n} question{'s' * (n != 1)}, right only by closed-book"
    assert page.locator("table.list tbody tr").count() == n
    for tr in page.locator("table.list tbody tr").all():
        marks = tr.locator(":is(.right, .wrong)").evaluate_all("all => all.map((one) => one.className)")
        assert marks == ["right", "wrong"]
    question = page.locator("table.list tbody a").first.inner_text()
    page.locator("table.list tbody a").first.click()
    page.wait_for_url("**/question?**")
    assert page.locator("h1").inner_text() == question
    again = opened(f"/{page.url.split('/', 3)[3]}")
    assert again.locator("main").inner_text() == page.locator("main").inner_text(), "an address shows the same anew"


def test_everything_is_reached_by_keyboard_and_what_has_the_focus_is_seen(opened):
    page = opened("/questions")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "set"
    page.locator("select[name=relation]").focus()
    page.keyboard.type("director")
    for _ in range(5):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "submit"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "relation=P57" in page.url
    smalls = page.locator("table.list th small").all_inner_texts()
    assert {one.rpartition(", Q")[0] for one in smalls} == {"director (P57)"}
    stops, seen = (
        [],
        page.locator("main :is(a[href], select, input:not([type=hidden]), button, [tabindex='0'])").count(),
    )
    for _ in range(seen + 10):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.closest('main') && document.activeElement.outerHTML"))
    assert len({stop for stop in stops if stop}) > seen * 0.8


def test_a_question_leads_to_the_next_of_its_slice(opened):
    page = opened("/questions?cell=method&order=rare")
    links = page.locator("table.list tbody a")
    questions = [links.nth(i).inner_text() for i in range(3)]
    links.first.click()
    page.locator("h1", has_text=questions[0]).wait_for()
    assert page.locator("a[rel=prev]").count() == 0
    for expected in questions[1:]:
        page.locator("a[rel=next]").click()
        page.locator("h1", has_text=expected).wait_for()
    page.locator("a[rel=prev]").click()
    page.locator("h1", has_text=questions[1]).wait_for()


def test_the_answer_is_marked_in_the_passage_and_the_passage_is_found_from_the_answer(opened):
    page = opened("/question?id=q0100")
    link = page.locator("table.answers tbody a[href^='#passage']").first
    link.click()
    passage = page.locator(".passage:has(:target)")
    assert passage.count() == 1
    assert passage.locator("mark").all_inner_texts() == ["answer 100"]
    assert "It is answer 100." in passage.inner_text()


def test_light_and_dark_follow_the_system(opened):
    grounds = {
        scheme: opened("/questions", color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }
    assert grounds == {"light": "rgb(252, 252, 250)", "dark": "rgb(20, 24, 30)"}


def test_tokens_are_shaded_by_what_documents_save(opened):
    page = opened("/text?id=q0", "scored")
    tokens = page.locator("p.text .token")
    assert tokens.count() > 3
    kinds = tokens.evaluate_all("all => all.map((one) => [one.className, one.title])")
    for kind, bits in kinds:
        assert ("gain" in kind) == (not re.match("[\N{MINUS SIGN}+]0.00|\N{MINUS SIGN}", bits) or bits == "+0.00")
    page.locator("a", has_text="Token by token").click()
    page.locator("h1", has_text="Whose knowledge: memory or documents").wait_for()
    assert page.locator(".panel:visible").count() == 1, "its script runs"


@pytest.mark.parametrize("width", [390, 1100, 1440])
@pytest.mark.parametrize("path", ["/questions", "/question?id=q0100"])
def test_no_column_is_cut(opened, path, width):
    page = opened(path, viewport={"width": width, "height": 900})
    boxes = page.locator(".scroll").evaluate_all("all => all.map((one) => one.scrollWidth - one.clientWidth)")
    assert set(boxes) == {0}


def test_a_choice_that_is_not_shown_yet_is_said_and_what_is_of_the_earlier_one_grows_pale(opened):
    page = opened("/questions")
    stale = page.get_by_text("Press Show for this one.")
    pale = "one => getComputedStyle(one).opacity"
    assert (stale.is_visible(), page.locator(".counts").evaluate(pale)) == (False, "1")
    page.locator("select[name=method]").select_option("bm25")
    assert (stale.is_visible(), page.locator(".counts").evaluate(pale)) == (True, "0.4")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**method=bm25**")
    assert (stale.is_visible(), page.locator(".counts").evaluate(pale)) == (False, "1")
