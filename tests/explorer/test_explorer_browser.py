"""The explorer in a real browser: by keyboard, on a phone, with hostile texts, and with nothing
asked for elsewhere.
"""

import re

import pytest
from chromium import COVERED, NAMELESS

from flows import explorer
from pipelines.pages.values import label

PHONE, DESK = {"width": 400, "height": 860}, {"width": 1280, "height": 900}
CUT = "all => all.map((one) => one.scrollWidth - one.clientWidth).filter(Boolean)"
VIEWS = [
    ("answered", "/", False),
    ("answered", "/questions", True),
    ("answered", "/question?id=q0100", True),
    ("spoilt", "/questions?order=id", False),
    *(("spoilt", f"/question?id=q{i:04d}&order=id", False) for i in (22, 45)),
    ("scored", "/texts", False),
    ("scored", "/text?id=q0", False),
]


@pytest.fixture(scope="module")
def addresses(answered, spoilt, scored):
    with (
        explorer.serving(open_run=lambda: answered) as plain,
        explorer.serving(open_run=lambda: spoilt) as hostile,
        explorer.serving(open_run=lambda: scored) as texts,
    ):
        yield {"answered": plain, "spoilt": hostile, "scored": texts}


@pytest.fixture
def opened(opened, addresses):
    """Opens a page of a run, or a file."""

    def open_page(path, run="answered", viewport=DESK, **more):
        return opened(
            path if path.startswith("file:") else addresses[run] + path, viewport=viewport, **more
        )

    return open_page


@pytest.mark.parametrize(("run", "path", "whole"), VIEWS)
def test_a_view_fits_every_screen_and_its_controls_have_names(opened, run, path, whole):
    """And the columns of answers are seen whole."""
    page = opened(path, run)
    for width in (400, 1100, 1440):
        page.set_viewport_size({"width": width, "height": 860})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(COVERED) == []
        assert not whole or page.locator(".scroll").evaluate_all(CUT) == []
    assert page.evaluate(NAMELESS) == []


def test_from_a_loss_at_the_head_to_the_questions_that_show_it(opened):
    """By pointer: the most viewed band's row, the count of questions that only closed-book
    answers get right.
    """
    page = opened("/questions?method=dense")
    count = page.locator(".bands tbody td:nth-child(5) a").last
    n = int(count.inner_text())
    count.click()
    page.wait_for_url("**#list")
    assert page.locator("#list").inner_text() == f"{n} question{'s' * (n != 1)}"
    chips = page.locator(".chips a").all_inner_texts()
    assert chips[-1].startswith(f"right only {label('closed_book')}")
    marks = "all => all.map((row) => [...row.querySelectorAll('.right, .wrong')].map((one) => one.className).join())"
    assert page.locator("table.list tbody tr").evaluate_all(marks) == ["right,wrong"] * n
    question = page.locator("table.list tbody a").first.inner_text()
    page.locator("table.list tbody a").first.click()
    page.locator("h1", has_text=question).wait_for()


def test_three_wrong_answers_are_explained_in_four_clicks(opened):
    """From the first page."""
    page = opened("/")
    page.locator(".reasons a", has_text="read the page of a namesake").first.click()
    page.locator("table.list tbody a").first.click()
    asked = []
    for number in (1, 2, 3):
        page.locator("nav span", has_text=f"{number} of ").wait_for()
        asked.append(page.locator("h1").inner_text())
        assert "read the page of a namesake, A (film)" in page.locator(".reason").inner_text()
        if number < 3:
            page.locator("a[rel=next]").click()
    assert len(set(asked)) == 3
    page.locator("a[rel=prev]").click()
    page.locator("h1", has_text=asked[1]).wait_for()


def test_a_choice_is_made_by_keyboard(opened):
    """What is of the earlier choice grows pale."""
    page = opened("/questions", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 30)"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "set"
    stale = page.get_by_text("Press Show for this one.")
    pale = "one => getComputedStyle(one).opacity"
    assert (stale.is_visible(), page.locator(".counts").evaluate(pale)) == (False, "1")
    page.locator("select[name=relation]").focus()
    page.keyboard.type("director")
    assert (stale.is_visible(), page.locator(".counts").evaluate(pale)) == (True, "0.4")
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "relation=P57" in page.url
    assert (stale.is_visible(), page.locator(".counts").evaluate(pale)) == (False, "1")


def test_the_answer_is_marked_in_the_passage(opened):
    """Tokens are shaded by what documents save."""
    page = opened("/question?id=q0100")
    page.locator("table.answers tbody a[href^='#passage']").first.click()
    assert page.locator(".passage:has(:target) mark").all_inner_texts() == ["answer 100"]
    page = opened("/text?id=q0", "scored")
    kinds = page.locator("p.text .token").evaluate_all(
        "all => all.map((one) => [one.className, one.title])"
    )
    assert len(kinds) > 3
    for kind, bits in kinds:
        assert ("gain" in kind) == (
            not re.match("[\N{MINUS SIGN}+]0.00|\N{MINUS SIGN}", bits) or bits == "+0.00"
        )
