"""What leads from the report to the explorer: links where `longtail ui` serves it, a command where it is a file."""

import shutil

import pytest
from small_results import SETTINGS
from waiting import PATIENCE

from flows import explorer
from pipelines.explorer.looked_at import Run


@pytest.fixture
def page(browser):
    """A page of the browser; what it says in its console must stay nothing."""
    page, noise = browser.new_page(viewport={"width": 1100, "height": 900}), []
    page.set_default_timeout(1000 * PATIENCE)
    for event in ("console", "pageerror"):
        page.on(event, lambda said: noise.append(str(said)))
    yield page
    page.close()
    assert noise == []


@pytest.fixture(scope="module")
def address(written, made, tmp_path_factory):
    data = shutil.copytree(written[0], tmp_path_factory.mktemp("served") / "data")
    shutil.copytree(made[0], data / "report", dirs_exist_ok=True)
    with explorer.serving(open_run=lambda: Run(data, SETTINGS)) as address:
        yield address


def test_a_report_from_disk_names_the_command_and_has_no_link_to_a_server(page, made):
    page.goto((made[0] / "index.html").as_uri())
    assert "longtail explore --method dense --cell base" in page.locator("#effect .without").inner_text()
    page.evaluate("for (const one of document.querySelectorAll('.numbers')) one.open = true")
    assert (
        page.locator("header a, .explored p a").evaluate_all("all => all.some((one) => one.checkVisibility())") is False
    )
    assert page.locator("#table-examples-popqa a[data-at]:visible").count() > 0, "questions are there, as words"
    assert page.locator("a[data-at][href]").count() == 0


@pytest.mark.parametrize(("rule", "judged"), [("substring", ""), ("word", "&judged=words")])
def test_a_served_report_leads_to_the_questions_where_retrieval_hurts_and_back(page, address, rule, judged):
    page.goto(f"{address}/report/")
    assert not page.locator("#effect .without").is_visible()
    page.locator(f"#rule-{rule}").check()
    page.locator("#effect .explored a:visible", has_text="hurts").click()
    page.wait_for_url(f"{address}/questions?set=popqa&lm=tiny&base=closed_book&method=dense&cell=base{judged}")
    assert page.locator("#list").inner_text().endswith("right only by closed-book")
    page.goto(f"{address}/report/")
    page.locator("header a").click()
    page.wait_for_url(f"{address}/")


def test_an_example_of_a_served_report_leads_to_its_question(page, address):
    page.goto(f"{address}/report/")
    page.evaluate("for (const one of document.querySelectorAll('.numbers')) one.open = true")
    link = page.locator("#table-examples-popqa a[href]").first
    question = link.inner_text()
    link.click()
    page.wait_for_url(f"{address}/question?**")
    assert page.locator("h1").inner_text() == question


@pytest.mark.parametrize("width", [390, 1100, 1440])
def test_the_passages_of_examples_are_seen_whole(page, made, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((made[0] / "index.html").as_uri())
    page.evaluate("for (const one of document.querySelectorAll('.numbers')) one.open = true")
    box = page.locator("#table-examples-popqa .scroll")
    assert box.evaluate("one => one.scrollWidth <= one.clientWidth")
