"""A slice as a file: one page that needs nothing else, the same every time."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.explorer import export, slices
from pipelines.explorer.slices import Slice


def test_the_page_has_the_slice_and_nothing_from_elsewhere_and_is_the_same_again(answered):
    chosen = Slice.of(answered, {"relation": "P57", "cell": "base", "method": "dense"})
    page = export.html(answered, chosen, most=20)
    assert export.html(answered, chosen, most=20) == page
    assert not re.search(r"<script|<link|<img|<iframe|url\(|@import|\bhref=\"(?!#)|\bsrc=", page)
    ids = slices.ids(answered, chosen, 20)
    total = slices.listed(answered, chosen).total
    assert len(ids) == 20 < total
    assert f"The first 20 of {total} questions" in page
    shown = re.findall(r"<summary><bdi>What is (\d+) &amp; co\?</bdi>", page)
    assert [f"q{int(number):04d}" for number in shown] == ids
    assert page.count('<table class="answers">') == 40, "the imported model's answers stand beside ours"
    links, anchors = set(re.findall(r'href="#([^"]+)"', page)), re.findall(r'id="([^"]+)"', page)
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
    assert not re.search(r"<(script|img|iframe|svg|base|meta http)", page)
    assert "&lt;script&gt;" in page


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
