"""Pages made of hostile labels, in a real browser: no script runs, nothing is asked for, nothing covers anything."""

import re
from xml.etree import ElementTree

import hostile
import pytest
from waiting import PATIENCE

HOSTILE = True  # to the fixture `files`
PAGES = ("report", "moved", "history", "attribution", "thresholds", "comparison")
SIZES = {"phone": {"width": 390, "height": 844}, "desk": {"width": 1440, "height": 900}}
COVERED = """() => {
    const covered = [], box_of = (one) => one.getBoundingClientRect();
    const shown = (one) => one.checkVisibility() && box_of(one).height > 0;
    const apart = (all, words) => all.filter(shown).map(box_of).forEach((box, i, boxes) => {
        if (i && box.top < boxes[i - 1].bottom - 1 && box.left < boxes[i - 1].right - 1
            && box.right > boxes[i - 1].left + 1) covered.push(words);
    });
    apart([...document.querySelectorAll("main > section")], "sections");
    for (const section of document.querySelectorAll("main > section")) apart([...section.children], section.id);
    for (const row of document.querySelectorAll("tbody tr")) {
        for (const cell of shown(row) ? row.cells : []) {
            if (cell.querySelector("details")) continue;  // what is folded away has a place too
            const range = document.createRange();
            range.selectNodeContents(cell);
            const words = range.getBoundingClientRect(), box = cell.getBoundingClientRect();
            if (words.width && (words.right > box.right + 1 || words.bottom > box.bottom + 1)) {
                covered.push(`cell ${cell.textContent.slice(0, 40)}`);
            }
        }
    }
    return covered;
}"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_well_formed_and_its_only_markup_is_its_own(files, name):
    text = files[name].read_text(encoding="utf-8")
    assert not re.search(hostile.STEERING, text)
    if name != "attribution":
        tree = ElementTree.fromstring(text)
        assert not [
            node for node in tree.iter() if node.tag in ("img", "iframe", "base", "meta") and len(node.attrib) > 2
        ]
        assert len(list(tree.iter("script"))) == 1


def test_tables_as_files_have_all_that_the_page_cuts(files):
    folder = files["report"].parent
    rejected = (folder / "tables/rejects.csv").read_text(encoding="utf-8")
    assert all(label[:20] in rejected.replace('""', '"') for label in hostile.LABELS if "\r" not in label)
    assert "x" * 10_000 in rejected
    assert "x" * 2_001 not in files["report"].read_text(encoding="utf-8")
    for svg in folder.glob("figures/*.svg"):
        ElementTree.parse(svg)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_runs_nothing_is_asked_for_and_nothing_is_covered(browser, files, name, size):
    context, noise = browser.new_context(viewport=SIZES[size]), []
    try:
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        url = files[name].as_uri()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("dialog", lambda dialog: (noise.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: request.url.split("#")[0] == url or noise.append(request.url))
        page.goto(url)
        page.evaluate("for (const one of document.querySelectorAll('.numbers')) one.open = true")
        for button in page.locator(".tools button:visible").all()[:6]:
            button.click()
        assert page.locator("img, iframe, base, object, embed, meta[http-equiv]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size]["width"]
        assert page.evaluate(COVERED) == []
    finally:
        context.close()
    assert noise == []
