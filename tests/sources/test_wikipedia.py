"""Articles come out of a dump, whole or in parts, and nothing else does; damage is named."""

import bz2
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from fetching import saved

from pipelines.errors import LongtailError
from pipelines.sources import bz2_blocks
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikipedia import Page, read_articles, source_parts

HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">'
SITEINFO = (
    "<siteinfo><sitename>W</sitename><namespaces><namespace key='0'/></namespaces></siteinfo>"
)
END = "</mediawiki>"


def page(number: int, title: str, text: str, namespace: int = 0, redirect: str = "") -> str:
    target = f'<redirect title="{redirect}"/>' if redirect else ""
    return (
        f"<page><title>{title}</title><ns>{namespace}</ns><id>{number}</id>{target}<revision><id>{number}0</id>"
        f'<timestamp>2018-12-20T00:00:00Z</timestamp><text xml:space="preserve">{text}</text></revision></page>'
    )


def read(dump: Path | list[Part], max_share: float = 0.0) -> tuple[list[Page], Rejects]:
    """The pages of a whole dump, or of parts."""
    rejects = Rejects(max_share)
    if isinstance(dump, Path):
        return list(read_articles(Part(dump), rejects)), rejects
    return [article for part in dump for article in read_articles(part, rejects)], rejects


def check_parts(dump: Path, dump_parts: list[Part]) -> None:
    """The parts give what the whole gives, and the last ones what they give by themselves."""
    (pages, whole), (articles, rejects) = read(dump), read(dump_parts)
    assert (articles, rejects.read, rejects.skipped) == (pages, whole.read, whole.skipped)
    last, _ = read(dump_parts[-3:])
    assert last == pages[len(pages) - len(last) :]


# The whole

BODY = (
    page(7, "First &amp; last", "Some ''text''.")
    + page(8, "Old name", "#REDIRECT [[First]]", redirect="First &amp; last")
    + page(9, "Talk:First", "chat", namespace=1)
    + page(10, "C:\\ drive", "")
)
A = page(1, "a", "b")


@pytest.mark.parametrize("head", [HEAD + SITEINFO, HEAD])
def test_articles_only_with_or_without_a_siteinfo_header(tmp_path: Path, head: str) -> None:
    dump = saved(tmp_path / "dump.xml.bz2", head + BODY + END)
    pages, rejects = read(dump)
    assert pages == [Page("7", "First & last", "Some ''text''."), Page("10", "C:\\ drive", "")]
    assert rejects.skipped == {"redirect": 1, "other_namespace": 1}
    assert rejects.read == 4


def test_broken_or_other_xml_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    for xml in [
        HEAD + BODY,  # the XML stops
        HEAD + BODY + "<page><title>X</tit",
        HEAD + "<page><title>a</title><surprise/></page>" + END,
        HEAD + A.replace("<id>1</id>", "<id>one</id>") + END,
        HEAD + A.replace("<ns>0</ns>", f"<ns>{'1' * 5000}</ns>") + END,
        HEAD + BODY + page(11, "a", "b").replace("page>", "article>") + END,
        HEAD + "<a>" * 100_000,
        f'<!DOCTYPE x [<!ENTITY a "a"><!ENTITY b "{"&a;" * 1000}">]>{HEAD}{"&b;" * 10_000}{END}',
        "plain words",
        "<feed></feed>",
        HEAD.encode() + page(1, "A", "caf\xe9").encode("latin-1") + END.encode(),
    ]:
        after = (
            r"after the page 10 \(C:\\ drive\)"
            if BODY in str(xml)
            else "before its first page's end"
        )
        said = (
            "begins with b'<feed>" if "<feed>" in str(xml) else f"corrupt {after}, expected the XML"
        )
        with pytest.raises(LongtailError, match=rf"dump\.xml\.bz2: .*{said}"):
            read(saved(tmp_path / "dump.xml.bz2", xml))


def test_an_endless_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.params.bounds.RECORD", int(0.5 * 2**20))
    body = page(1, "Long as may be", "x" * 100_000) + page(2, "Long", "x" * 3_000_000)
    with pytest.raises(
        LongtailError, match=r"after the page 1 .*an element longer than 0\.5 MB, expected a page"
    ):
        read(saved(tmp_path / "dump.xml.bz2", HEAD + body + END))


def test_the_real_excerpts_as_a_whole_and_in_parts(
    tmp_path: Path, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, tables = sorted((real / "wikipedia").glob("enwiki-*.bz2"))
    pages, rejects = read(long)
    expected = (106, 206, {"redirect": 99, "other_namespace": 1})
    assert (len(pages), rejects.read, dict(rejects.skipped)) == expected
    assert pages[0][:2] == ("12", "Anarchism")
    of_tables, rejects = read(tables)
    assert [p.title for p in of_tables][:2] == [
        "Constructive vote of no confidence",
        "List of Prison Break characters",
    ]
    assert (len(of_tables), rejects.read) == (5, 5)
    monkeypatch.setattr(bz2_blocks, "PART_BYTES", 400_000)
    ordinary = tmp_path / "enwiki-pages-articles.xml.bz2"
    ordinary.symlink_to(long)
    assert len(source_parts(ordinary)) == 5
    assert read(source_parts(ordinary))[0] == pages


# In parts, by any of its bytes


def test_an_index_is_no_part_and_small_and_other_files_are_one(tmp_path: Path) -> None:
    assert source_parts(tmp_path / "enwiki-pages-articles-multistream-index.txt.bz2") == []
    for name in ("enwiki-pages-articles.xml", "psgs_w100.tsv"):
        (tmp_path / name).write_text("a", encoding="utf-8")
        assert source_parts(tmp_path / name) == [Part(tmp_path / name)]


@pytest.fixture(scope="module")
def plain() -> bytes:
    """Pages of some 10 kB that compress badly, every fourth of another namespace, one longer
    than a block.
    """
    rng, texts = np.random.default_rng(0), []
    for number in range(60):
        text = rng.bytes(200_000 if number == 30 else int(rng.integers(1, 10_000))).hex()
        texts.append(page(number, f"T {number}", f"é {text}", int(number % 4 == 1)))
    return "\n".join([HEAD + SITEINFO, *texts, END + "\n"]).encode()


def ordinary(folder: Path, *streams: bytes) -> Path:
    """A dump of blocks of 100 kB; an ordinary name says nothing of them."""
    path = folder / "enwiki-pages-articles.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(data, 1) for data in streams))
    return path


@pytest.mark.parametrize(("split", "streams"), [(5_000, 1), (61_111, 3), (200_000, 1)])
def test_parts_by_bytes_give_what_the_whole_gives(
    tmp_path, monkeypatch, plain, split, streams
) -> None:
    monkeypatch.setattr(bz2_blocks, "PART_BYTES", split)
    third = -(-len(plain) // streams)
    pieces = [
        piece for at in range(0, len(plain), third) for piece in (plain[at : at + third], b"")
    ]
    dump = ordinary(tmp_path, *pieces[:-1])
    assert len(source_parts(dump)) == -(-dump.stat().st_size // split)
    check_parts(dump, source_parts(dump))


def blocks(text: bytes, size: int, begin: int, end: int) -> Iterator[tuple[bytes, bool]]:
    yield from ((text[at : min(at + size, end)], True) for at in range(begin, end, size))
    yield from ((text[at : at + size], False) for at in range(end, len(text), size))


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_page_belongs_to_the_part_of_its_mark(monkeypatch, size) -> None:
    """A line belongs to that of the newline before it."""
    monkeypatch.setattr(
        bz2_blocks, "_blocks", lambda part: blocks(text, size, part.begin, part.end)
    )
    text = b"<mediawiki>h<page>1</page><page>2</page></mediawiki>"
    for cuts in product(range(1, len(text)), repeat=2):
        bounds = list(pairwise([0, *sorted({*cuts}), len(text)]))
        dumps = [b"".join(bz2_blocks.open_pages(Part(Path(), *at))) for at in bounds]
        assert all(
            xml.startswith(b"<mediawiki>") and xml.endswith(b"</mediawiki>") for xml in dumps
        )
        starts = [sum(begin <= at < end for at in (12, 26)) for begin, end in bounds]
        assert [xml.count(b"<page>") for xml in dumps] == starts
        assert (
            b"".join(
                xml.removeprefix(b"<mediawiki>").removesuffix(b"</mediawiki>") for xml in dumps
            )
            == text[11:-12]
        )
    text = b"a\n\nlonger line\nb\nlast"
    newline_before = [0, *(at for at, byte in enumerate(text) if byte == ord("\n"))]
    lines = list(zip(text.splitlines(keepends=True), newline_before, strict=True))
    for cuts in product(range(1, len(text)), repeat=2):
        for begin, end in pairwise([0, *sorted({*cuts}), len(text)]):
            found = bz2_blocks.open_lines(Part(Path(), begin, end))
            assert b"".join(found) == b"".join(line for line, at in lines if begin <= at < end)


@pytest.mark.parametrize("how", ["changed", "left out", "cut", "no end"])
def test_damage_anywhere_is_named(tmp_path, monkeypatch, plain, how) -> None:
    monkeypatch.setattr(bz2_blocks, "PART_BYTES", 100_000)
    dump = ordinary(tmp_path, plain[:300_000], plain[300_000:600_000])
    data = dump.read_bytes()
    for at in (4, len(data) // 3, data.rindex(b"BZh1"), data.rindex(b"BZh1") + 5, len(data) - 30):
        bad = {
            "changed": data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :],
            "left out": data[:at] + data[at + 7 :],
            "cut": data[:at] if at > 4 else data[:-1],
            "no end": data[: -12 - at],
        }
        dump.write_bytes(bad[how])
        with pytest.raises(LongtailError, match=rf"{dump.name}: (corrupt|cut in the middle)"):
            read(source_parts(dump))
