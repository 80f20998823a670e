"""Wikitext becomes the prose that a reader sees."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.corpus.clean import wikitext_to_text
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikipedia import read_pages


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Ada''' was a ''poet's'' [[daughter]] of [[Lord Byron|Byron]].", "Ada was a poet's daughter of Byron."),
        ("One.<ref>No.</ref> Two.<ref name=a /> {{cite|x={{y|z}}}}Three.", "One. Two. Three."),
        ("[[File:a.jpg|thumb|A [[link]] in it]]Text[[Category:People]] [[de:Titel]]", "Text"),
        ("See [[:Category:Men]] and [http://x.org a page] or [http://y.org].", "See Category:Men and a page or ."),
        ("before\n{| class=x\n! head\n|-\n| a || b\n|}\nafter", "before\nafter"),
        ("a\n{|\n| never closed\n|-\n| b\nafter", "a\nafter"),
        ("* one\n* [[two]]\n## three", "one\ntwo\nthree"),
        ("caf&eacute;&nbsp;&amp; &#x41;<!-- no -->  b<br>c", "café & A b\nc"),
        ("Athens ({{lang|el|x}}) is ({{IPA}}; born 1900) old.", "Athens is (born 1900) old."),
        ("__NOTOC__\nText <math>x^2</math> end.<gallery>\na.jpg|b\n</gallery>", "Text end."),
        ("<nowiki>[[kept]]</nowiki>", "[[kept]]"),
        ("{{infobox}}\n[[Category:A]]", ""),
        ("", ""),
    ],
)
def test_markup_goes_and_prose_stays(wikitext: str, text: str) -> None:
    assert wikitext_to_text(wikitext) == text


def test_a_section_title_stays_where_text_follows_it() -> None:
    wikitext = "Lead.\n== Life ==\n=== Youth ===\nBorn.\n=== Empty ===\n{{table}}\n== Works ==\n{{list}}\n== End =="
    assert wikitext_to_text(wikitext) == "Lead.\nLife\nYouth\nBorn."


@settings(deadline=None)
@given(st.text(alphabet="[]{}|='<>/* \n#ab&;:\x00\ud7ffé𝄞refnowkimath", max_size=80))
def test_any_wikitext_gives_clean_lines(wikitext: str) -> None:
    text = wikitext_to_text(wikitext)
    text.encode("utf-8")
    assert "\x00" not in text
    assert all(line == line.strip() and line for line in text.split("\n") if text)


def test_no_markup_is_left_in_the_real_pages(real: Path) -> None:
    texts = [
        wikitext_to_text(page.text)
        for path in sorted((real / "wikipedia").glob("enwiki-table*.bz2"))
        for page in read_pages(path, Rejects(0.0))
    ]
    assert len(texts) == 5
    joined = "\n".join(texts)
    assert not [mark for mark in ("[[", "]]", "{{", "}}", "{|", "|}", "''", "<ref", "==") if mark in joined]
    assert 90_000 < len(joined) < 110_000
    assert "\nGermany\nGovernments in the 1919 Weimar Republic were usually very unstable." in joined
