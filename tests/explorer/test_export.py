"""A slice as a file: one page that needs nothing else, the same every time."""

import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.explorer import export, slices
from pipelines.explorer.slices import Slice


def details(page: str) -> list[str]:
    """What each question of the page shows when it is opened."""
    return json.loads(gzip.decompress(base64.b64decode(re.search(r'id="details">([^<]+)<', page)[1])))


def test_the_page_has_the_slice_and_nothing_from_elsewhere_and_is_the_same_again(answered):
    chosen = Slice.of(answered, {"relation": "P57", "cell": "base", "method": "dense"})
    page = export.html(answered, chosen, most=20)
    assert export.html(answered, chosen, most=20) == page
    opened = details(page)
    assert not re.search(r"<script src|<link|<img|<iframe|url\(|@import|\bhref=\"(?!#)|\bsrc=", page + "".join(opened))
    ids = slices.ids(answered, chosen, 20)
    total = slices.listed(answered, chosen).total
    assert len(ids) == 20 < total
    assert f"The first 20 of {total} questions" in page
    shown = re.findall(r'<span class="asked"><bdi>What is (\d+) &amp; co\?</bdi>', page)
    assert [f"q{int(number):04d}" for number in shown] == ids
    assert [one.count('<table class="answers cards">') for one in opened] == [2] * 20, "ours and the imported model's"
    links, anchors = (re.findall(f'{name}="#?([^"]+)"', "".join(opened)) for name in ("href", "id"))
    links = set(links)
    assert links <= set(anchors)
    assert len(anchors) == len(set(anchors))


def test_every_question_of_a_small_slice_is_on_the_page(answered):
    chosen = Slice.of(answered, {"words": "77 &"})
    page = export.html(answered, chosen, most=50)
    total = slices.listed(answered, chosen).total
    assert re.findall(r"<h2>(.*) questions</h2>", page) == [str(total)]
    assert page.count('<details class="one"') == total == 8


def test_hostile_texts_stay_words_in_the_page(spoilt):
    page = export.html(spoilt, Slice.of(spoilt, {"order": "id"}), most=60)
    for text in (page[: page.index("<script")], "".join(details(page))):
        assert not re.search(r"<(script|img|iframe|svg|base|meta http)", text)
        assert "&lt;script&gt;" in text


def test_the_command_writes_the_page_where_it_was_called_and_names_a_choice_that_there_is_not(asked, root):
    def explore(*words):
        command = [sys.executable, "-m", "flows.cli", "explore", *words]
        return subprocess.run(
            command, cwd=asked.folder / "conf", env={"PYTHONPATH": str(root)}, capture_output=True, text=True
        )

    done = explore("--export", "page.html", "--method", "bm25", "--cell", "neither")
    assert (done.returncode, done.stderr) == (0, "")
    page = Path(asked.folder / "conf/page.html")
    assert done.stdout == f"the page: {page}\n"
    chosen = Slice.of(asked.run, {"method": "bm25", "cell": "neither"})
    assert page.read_text(encoding="utf-8") == export.html(asked.run, chosen, 50)
    done = explore("--export", "other.html", "--method", "lsr")
    assert (done.returncode, done.stderr) == (
        1,
        "error: method: there is no 'lsr', expected one of: closed_book, bm25, genread\n",
    )
    assert not (asked.folder / "conf/other.html").exists()


@pytest.mark.parametrize("value", ["0", "-3"])
def test_a_page_has_a_question_at_least(value, root):
    command = [sys.executable, "-m", "flows.cli", "explore", "--export", "x.html", "--most", value]
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True)
    assert done.returncode == 2


def test_in_a_browser_without_a_server_a_question_opens_and_words_choose_questions(browser, answered, tmp_path):
    chosen = Slice.of(answered, {"relation": "P57"})
    file = tmp_path / "page.html"
    file.write_text(export.html(answered, chosen, most=60), encoding="utf-8")
    page, noise = browser.new_page(viewport={"width": 400, "height": 800}), []
    for event in ("console", "pageerror"):
        page.on(event, lambda said: noise.append(str(said)))
    page.goto(file.as_uri())
    asked = page.locator("details.one summary bdi:first-child").all_inner_texts()
    page.get_by_label("Only those with").fill(asked[7].upper()[:12])
    shown = [one for one in asked if one.lower().startswith(asked[7].lower()[:12])]
    assert page.locator("details.one:visible").count() == len(shown) < 60
    page.locator("details.one:visible summary").first.click()
    opened = page.locator("details.one:visible").first
    opened.locator("table.answers").first.wait_for()
    assert opened.locator("table.answers").count() == 2
    number = shown[0].removeprefix("What is ").partition(" ")[0]
    assert opened.locator(".gold mark").first.inner_text() == f"answer {number}", "its own details"
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert noise == []
    page.close()
