"""What wikitext links to, and how many articles link to one, worked out by hand."""

from pathlib import Path

import duckdb
import pytest

from pipelines.sources import wikipedia_links
from pipelines.sources.wikipedia import Page
from pipelines.sources.wikipedia_links import Links, count_incoming, targets, titles

CASES = {
    "[[Paris]]": ["Paris"],
    "[[Paris|the city]], [[Paris]]s, [[paris]]": ["Paris", "Paris"],
    "[[paris#History|then]] [[#See also]]": ["Paris", ""],
    "[[New_York__City]] [[ New  York City |x]]": ["New York City", "New York City"],
    "[[New\u00a0York]] [[Rome\u200e]]": ["New York", "Rome"],
    "[[:Rome]] [[: rome]]": ["Rome", "Rome"],
    "[[AT&amp;T]] [[Caf%C3%A9]] [[100% Wolf]]": ["AT&T", "Café", "100% Wolf"],
    "[[\u00e9tude]] [[iPod]]": ["\u00c9tude", "IPod"],
    "[[File:A.jpg|thumb|by [[Ada]] in [[Rome|it]]]]": ["File:A.jpg", "Ada", "Rome"],
    "[[category:Cities]] [[de:Berlin]] [[Star Trek: Picard]]": [
        "Category:Cities",
        "De:Berlin",
        "Star Trek: Picard",
    ],
    "{{Infobox|born=[[Rome]]}} [[{{PAGENAME}}]] [[Rome|{{nowrap|x}}]]": ["Rome"],
    "<!-- [[Rome]] --> [[Pa<!-- x -->ris]] <!-- [[Oslo]]": ["Paris"],
    "<nowiki>[[Rome]]</nowiki> <nowiki/>[[Oslo]] <pre class='x'>[[Bonn]]</PRE > [[B<nowiki>onn</nowiki>]]": [
        "Oslo"
    ],
    "<ref>[[Rome]]</ref> <gallery>A.jpg|[[Oslo]]</gallery> <preface>[[Bonn]]": [
        "Rome",
        "Oslo",
        "Bonn",
    ],
    "[[Rome] [Rome]] [[Ro\nme]] [[]] [[|x]] [http://x.y [[Oslo]]": ["Oslo"],
    "[[[Rome]]] [[[[Oslo]]]]": ["Rome", "Oslo"],
    "no link": [],
}


@pytest.mark.parametrize("wikitext", CASES)
def test_what_a_link_names_is_the_title_of_the_page(wikitext: str) -> None:
    assert titles(targets(wikitext)).to_pylist() == CASES[wikitext]


def written(
    folder: Path, pages: dict[str, str], redirects: dict[str, str], name: str = "links.parquet"
) -> Path:
    links = Links(folder / name)
    links.redirects += [Page("1", title, text) for title, text in redirects.items()]
    for title, text in pages.items():
        links.add(title, text)
    links.close()
    return folder / name


def incoming(files: list[Path], wanted: list[str]) -> dict[str, int | None]:
    with duckdb.connect() as db:
        db.execute("CREATE TABLE titles AS SELECT unnest($1) AS title", [wanted])
        count_incoming(db, files)
        return dict(db.sql("SELECT title, links FROM incoming ORDER BY title").fetchall())


def test_articles_that_link_to_an_article_count_once(tmp_path: Path, monkeypatch) -> None:
    redirects = {
        "Roma": "#REDIRECT [[rome#Name]] {{R from|[[Oslo]]}}",
        "Eternal City": "#redirect [[Roma]]",
        "Empty": "",
    }
    pages = {
        "Rome": "'''[[Rome]]''' in [[Italy]]",  # itself does not count
        "Italy": "[[Rome]], [[Roma|its capital]] and [[rome#Food]]",
        "Oslo": "[[Roma]]",
        "Bonn": "[[Eternal City]]",  # a redirect to a redirect is not followed further
        "Talk of Rome": "[[Talk:Rome]] [[File:Rome]]",
    }
    expected = {
        "Rome": 2,
        "Roma": 2,
        "Italy": 1,
        "Bonn": 0,
        "Oslo": 0,
        "Eternal City": None,
        "Unknown": None,
    }
    assert incoming([written(tmp_path, pages, redirects)], [*expected]) == expected
    monkeypatch.setattr(wikipedia_links, "BATCH_CHARS", 1)
    files = [
        written(tmp_path, dict([page]), redirects if i == 3 else {}, f"{i}.parquet")
        for i, page in enumerate(pages.items())
    ]
    assert incoming([*files, files[1]], [*expected]) == expected, (
        "parts, and a page that is in two of them"
    )
