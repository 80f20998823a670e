"""Articles come out of a dump, nothing else does, and damage is named."""

import bz2
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikipedia import Page, read_pages

HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">'
SITEINFO = "<siteinfo><sitename>W</sitename><namespaces><namespace key='0'/></namespaces></siteinfo>"


def page(number: int, title: str, text: str, namespace: int = 0, redirect: str = "") -> str:
    target = f'<redirect title="{redirect}"/>' if redirect else ""
    return (
        f"<page><title>{title}</title><ns>{namespace}</ns><id>{number}</id>{target}<revision><id>{number}0</id>"
        f'<timestamp>2018-12-20T00:00:00Z</timestamp><text xml:space="preserve">{text}</text></revision></page>'
    )


def dump(folder: Path, body: str, head: str = HEAD + SITEINFO, tail: str = "</mediawiki>") -> Path:
    path = folder / "dump.xml.bz2"
    path.write_bytes(bz2.compress((head + body + tail).encode()))
    return path


BODY = (
    page(7, "First &amp; last", "Some ''text''.")
    + page(8, "Old name", "#REDIRECT [[First]]", redirect="First &amp; last")
    + page(9, "Talk:First", "chat", namespace=1)
    + page(10, "C:\\ drive", "")
)


@pytest.mark.parametrize("head", [HEAD + SITEINFO, HEAD])
def test_articles_only_with_or_without_a_siteinfo_header(tmp_path: Path, head: str) -> None:
    rejects = Rejects(0.0)
    pages = list(read_pages(dump(tmp_path, BODY, head), rejects))
    assert pages == [Page("7", "First & last", "Some ''text''."), Page("10", "C:\\ drive", "")]
    assert rejects.skipped == {"redirect": 1, "other_namespace": 1}
    assert rejects.read == 4


@pytest.mark.parametrize(
    ("head", "body", "tail"),
    [
        (HEAD, BODY, ""),  # the XML stops
        (HEAD, BODY + "<page><title>X</tit", ""),
        (HEAD, "<page><title>a</title><surprise/></page>", "</mediawiki>"),
        (HEAD, "<page><title>a</title><ns>zero</ns></page>", "</mediawiki>"),
        (HEAD, page(1, "a", "b").replace("<id>1</id>", "<id>one</id>"), "</mediawiki>"),
        (HEAD, page(1, "a", "b").replace("<id>1</id>", f"<id>{'1' * 5000}</id>"), "</mediawiki>"),
        (HEAD, page(1, "a", "b").replace("<ns>0</ns>", f"<ns>{'1' * 5000}</ns>"), "</mediawiki>"),
        (HEAD, BODY + page(11, "a", "b").replace("page>", "article>"), "</mediawiki>"),
        (HEAD, "<a>" * 100_000, ""),
        ('<!DOCTYPE x [<!ENTITY a "a"><!ENTITY b "' + "&a;" * 1000 + '">]>' + HEAD, "&b;" * 10_000, "</mediawiki>"),
        ("", "plain words", ""),
    ],
)
def test_broken_xml_is_an_error_that_names_the_file(tmp_path: Path, head: str, body: str, tail: str) -> None:
    after = r"after the page 10 \(C:\\ drive\)" if body.startswith(BODY) else "before its first page's end"
    with pytest.raises(LongtailError, match=rf"dump\.xml\.bz2: corrupt {after}, expected the XML"):
        list(read_pages(dump(tmp_path, body, head, tail), Rejects(0.0)))


def test_other_xml_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match="begins with <feed>"):
        list(read_pages(dump(tmp_path, "", "<feed>", "</feed>"), Rejects(0.0)))


def test_bytes_that_are_no_utf8_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes(bz2.compress(HEAD.encode() + page(1, "A", "caf\xe9").encode("latin-1") + b"</mediawiki>"))
    with pytest.raises(LongtailError, match=r"dump\.xml\.bz2: corrupt"):
        list(read_pages(path, Rejects(0.0)))


def test_an_endless_page_is_a_reject_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_RECORD_MB", "0.1")
    rejects = Rejects(1.0)
    body = page(1, "Long", "x" * 104_858) + page(2, "As long as may be", "x" * 104_857)
    assert [found.id for found in read_pages(dump(tmp_path, body), rejects)] == ["2"]
    assert [row[:3] for row in rejects.rows] == [("dump.xml.bz2", 1, "too_long")]
    assert rejects.read == 2


def test_the_last_revision_is_the_page(tmp_path: Path) -> None:
    body = page(1, "A", "old").replace("</page>", "<revision><id>2</id><text>new</text></revision></page>")
    assert [found.text for found in read_pages(dump(tmp_path, body), Rejects(0.0))] == ["new"]


def test_a_cut_dump_is_an_error(tmp_path: Path) -> None:
    path = dump(tmp_path, BODY)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(LongtailError, match="cut in the middle"):
        list(read_pages(path, Rejects(0.0)))


def test_the_real_excerpts(real: Path) -> None:
    long, tables = sorted((real / "wikipedia").glob("enwiki-*.bz2"))
    rejects = Rejects(0.0)
    pages = list(read_pages(long, rejects))
    assert (len(pages), rejects.read, dict(rejects.skipped)) == (106, 206, {"redirect": 99, "other_namespace": 1})
    assert pages[0][:2] == ("12", "Anarchism")
    assert [page.title for page in read_pages(tables, rejects)] == [
        "Constructive vote of no confidence",
        "List of Prison Break characters",
        "Academy Award for Best Production Design",
        "Economy of Estonia",
        "Brahui language",
    ]
    assert rejects.read == 211
