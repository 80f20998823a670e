"""Wikitext becomes the prose that a reader sees."""

import re
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.corpus import clean, markup
from pipelines.corpus.clean import BadWikitext, wikitext_to_text
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikipedia import read_articles


def test_markup_goes_and_prose_stays():
    for wikitext, text in {
        "'''Ada''' was a ''poet's'' [[daughter]] of [[Lord Byron|Byron]].": "Ada was a poet's daughter of Byron.",
        "One.<ref>No.</ref> Two.<ref name=a /> {{cite|x={{y|z}}}}Three.": "One. Two. Three.",
        "[[File:a.jpg|thumb|A [[link]] in it]]Text[[Category:People]] [[de:Titel]]": "Text",
        "See [[:Category:Men]] and [http://x.org a page] or [http://y.org].": "See Category:Men and a page or .",
        "a\n{|\n| never closed\n|-\n| b\nafter": "a\nafter",
        "caf&eacute;&nbsp;&amp; &#x41;<!-- no -->  b<br>c": "café & A b\nc",
        "Athens ({{IPA-el|x}}), ( ; or) ({{a}})\u2003\t  old.": "Athens, old.",
        "; term : said\n:: deep": "term : said\ndeep",
        "a<p>b<li>c<td>d <span class='x'>e</span> <b>never closed": "a\nb\nc\nd e never closed",
        "1 <2 and a<b but <foo> and <ref>lost</ref> <REF name='x/y'>lost</REF>.": "1 <2 and a<b but <foo> and .",
        "A {{ b [[ c {| d ]] e": "A {{ b [[ c {| d ]] e",
        "{{a|[[b}} c]] <nowiki>{{</nowiki>}} {{x|<math>}}</math>}}d": "c]] {{}} d",
        "x<!-- y <!-- z -->w <!-- end": "xw end",
        "[[File:a.jpg|thumb|{{lang|fr|b}}\n* c]]\n{|\n{{!}}\n{|\n|}\n|}\nd "
        "[[e|<small>f</small>]]": "d f",
        "[<b>[a|b]] {<i>{c}} <b>{|</b>\n*{|\nd": "[[a|b]] {{c}} {|\nd",
        "__NOTOC__\nText <math>x^2</math> end.<gallery>\na.jpg|b\n</gallery>": "Text end.",
        "{{infobox}}\n[[Category:A]]": "",
        "Lead.\n== Life ==\n=== Youth ===\nBorn.\n=== Empty ===\n{{table}}\n"
        "== Works ==\n{{list}}\n== End ==": "Lead.\nLife\nYouth\nBorn.",
        # templates whose words belong to the sentence
        "in {{lang|fr|la ''Ville''}} and {{transl|ru|ISO|Moskva}}": "in la Ville and Moskva",
        "({{lang-de|[[Wien]]}}; {{Lang|2=b|1=a}}) {{lang|fr}}.": "(Wien; b) .",
        "{{convert|5|km}} or {{Convert|5|to|10|km2|sqmi|abbr=on}}": "5 km or 5 to 10 km²",
        "{{cvt|5|ft|8|in|m}}, {{convert|-1.5|-|2,000|C|F}}; {{convert|x}}.": "5 ft 8 in, -1.5\u20132,000 °C; .",
        "{{circa|1900}}, {{c.|1|2}}, {{nowrap|a {{lang|fr|b}}}}{{'s}}": "c. 1900, c. 1 \u2013 c. 2, a b's",
        "{{quote|one\ntwo}} a{{nbsp}}b{{spaced_ndash}}c": "one\ntwo a b \u2013 c",
        "{{infobox|x={{lang|fr|a}}}}<ref>{{lang|fr|b}}</ref>{{language|fr|c}}{{lang}}": "",
    }.items():
        assert wikitext_to_text(wikitext) == text


MARKS = re.findall(
    r"\S+",
    """
    [[ ]] {{ }} [ ] { } {{{ }}} | = == < > </ /> <!-- --> & ; : # * ( ) - ---- ' ''' __TOC__ // \\
    " ! || {| |} |-
    <ref> </ref> <ref/> <REF/name="b"> <nowiki> </nowiki> <math> </math> <br> <b> <foo> <1 </1> <10
    &amp; &nbsp; &#91; &#x41; &lt; &bogus; &#0; &#xffffffff;
    http:// https://x.org/b?d=e [http://x.org [//x.org [mailto: mailto:a@b news: //x HTTP://X
    [[File:a.jpg|thumb| [[Category: [[: Image: de: [[de:Titel]] [[a]] [[a|b]] [[http://x [[|x]]
    [[a|]] [sic] ]]] [[[
    {{lang|fr| {{convert|5|km}} {{nowrap| {{quote| {{Lang-de| {{val|1|u={{ill|a}} {{dda|2001|{{unknown|b}} {{formatnum:5}} {{cite| {{cite|title=y}} {{'s}}
    <ref>{{c|{{d|x}}}}</ref>
    <ref>[http://x]</ref> a word lang \x00 \x01 \x02 \x03 \x04 \x04\ue000 \ue001 é 𝄞 \ud7ff \u017f \u212a
""",
)
BREAKS = ["\n", "\n\n", "\n=", "\n==", "\n== T ==\n", "\n=== [[x]] ===", "\n== a = b ==\n"]
BREAKS += ["\n{|", "\n|}", "\n----"]
BREAKS += [" ", "\t", "\r", "\x1f", "\u2009", "\u2028", "word word "]


def text_or_error(wikitext: str) -> str | tuple[str]:
    try:
        return wikitext_to_text(wikitext)
    except BadWikitext as error:
        return (str(error),)


def by_the_parser(wikitext: str) -> str | tuple[str]:
    """The text, or the error, where the parser reads every page whole and each mark is read by
    itself.
    """
    or_line = re.compile(markup.SINGLE.pattern + r" | \n", re.VERBOSE)
    marks = patch.multiple(markup, MARK=markup.SINGLE, MARK_OR_LINE=or_line)
    with marks, patch.object(clean, "visible", clean.parsed):
        return text_or_error(wikitext)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(MARKS + BREAKS), max_size=40).map("".join))
@example("mailto:\r")
@example("{{convert|5\n|km}}" * 150 + "{{nowrap|a}}")
@example("{{convert|{{cite|x}}5|km}}")
@example("[[//x y]] [[a&amp;b|c&#91;d]] [[a:b|c]] {{quote|a\nb}}\n== a == b ==\n")
@example("[[File:a|b\n== c]] ==\n")
@example("[[{{lang|fr|\n== T ==\n}}}")
def test_short_ways_give_the_parsers_text_in_clean_lines(wikitext):
    text = text_or_error(wikitext)
    assert text == by_the_parser(wikitext)
    if isinstance(text, str):
        assert "\x00" not in text.encode("utf-8").decode()
        assert all(line == line.strip() and line for line in text.split("\n") if text)


@pytest.mark.parametrize(
    "inside", ["{{b|{{c|[http://x y]}}}}", "<ref>{{b|{{c|{{d|[[e]]}}}}}}</ref>", "[[b]]"]
)
@pytest.mark.parametrize("mark", ["{{a|", "[[a|", "{{a|[[a|", "{{a|<ref>"])
def test_short_ways_allow_as_deep_a_nesting(inside, mark):
    for depth in (45, 48, 49, 50, *range(94, 102)):
        wikitext = mark * depth + inside
        assert text_or_error(wikitext) == by_the_parser(wikitext)


def test_short_ways_give_the_parsers_text(real):
    long, tables = (
        list(read_articles(Part(path), Rejects(0.0)))
        for path in sorted((real / "wikipedia").glob("*.bz2"))
    )
    pages = [page.text for page in (*long[::3], *tables)]
    texts = [text_or_error(page) for page in pages]
    assert texts == [by_the_parser(page) for page in pages]
    joined = "\n".join(texts[-5:])
    assert not [
        mark for mark in ("[[", "]]", "{{", "}}", "{|", "|}", "''", "<ref", "==") if mark in joined
    ]
    assert 90_000 < len(joined) < 110_000
    assert (
        "\nGermany\nGovernments in the 1919 Weimar Republic were usually very unstable." in joined
    )


BAD = [  # each takes the parser alone from many seconds to hours
    "{{a|" * 100_000,
    "{|\n|\n" * 100_000,
    "[http://a " * 50_000,
    "{" * 500_000 + "}" * 500_000,
    "\n".join(["text [[a] {{b}"] * 20_000),
    "{{a|" * 100 + "[[b]]" + "}}" * 100,
]


@pytest.mark.parametrize("wikitext", BAD, ids=range(len(BAD)))
def test_a_page_of_unclosed_or_nested_marks_is_refused(wikitext):
    with pytest.raises(BadWikitext, match=r"never closed|open at once"):
        wikitext_to_text(wikitext)


def test_a_long_page_of_unclosed_tags_keeps_its_text():
    text = wikitext_to_text(
        'Some text with [[a link]] and <div><b>unclosed <ref name="x\n' * 12_000
    )
    assert text.startswith('Some text with a link and\nunclosed <ref name="x\nSome text')
    assert len(text.splitlines()) == 24_000


UNITS = [
    "<ref>",
    "<ref>x",
    "<b>{|",
    "*{|\n",
    "[<b>[a|",
    "{<b>{a|",
    "<!--",
    "*" * 50 + "\n",
    " ",
    "<a b='",
    "\n==",
]


@pytest.mark.parametrize("unit", [*UNITS, "|}{{convert|5|//\n==a}}}<br>"])
def test_time_follows_the_length_of_the_page(unit):
    wikitext_to_text(unit * (150_000 // len(unit)))
