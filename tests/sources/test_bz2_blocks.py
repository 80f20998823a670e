"""An ordinary dump read in parts, by any of its bytes, is the dump read as a whole, and no damage goes unseen."""

import bz2
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import LongtailError
from pipelines.sources import bz2_blocks
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikipedia import Page, Part, parts, read_articles, read_pages

BLOCKS = 1  # bz2's level: blocks of 100 kB


def xml(pages: int = 60) -> bytes:
    """Pages of some 10 kB that compress badly, every fourth of another namespace, one longer than a block."""
    rng = np.random.default_rng(0)
    parts = ["<mediawiki><siteinfo/>\n"]
    for number in range(pages):
        text = rng.bytes(200_000 if number == pages // 2 else int(rng.integers(1, 10_000))).hex()
        head = f"<title>T {number}</title><ns>{int(number % 4 == 1)}</ns><id>{number}</id>"
        parts.append(f"<page>{head}<revision><text>é {text}</text></revision></page>\n")
    return "".join([*parts, "</mediawiki>\n"]).encode()


def saved(folder: Path, data: bytes) -> Path:
    path = folder / "enwiki-pages-articles.xml.bz2"
    path.write_bytes(data)
    return path


def read(dump_parts: list[Part]) -> tuple[list[Page], Rejects]:
    rejects = Rejects(0.0)
    return [article for part in dump_parts for article in read_articles(part, rejects)], rejects


@pytest.fixture(scope="module")
def plain() -> bytes:
    return xml()


@pytest.mark.parametrize("split", [5_000, 61_111, 200_000])
@pytest.mark.parametrize("streams", [1, 3])
def test_parts_give_what_the_whole_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bytes, split: int, streams: int
) -> None:
    monkeypatch.setattr(bz2_blocks, "PART", split)
    third = -(-len(plain) // streams)
    compressed = [bz2.compress(plain[at : at + third], BLOCKS) for at in range(0, len(plain), third)]
    dump = saved(tmp_path, bz2.compress(b"").join(compressed))
    pages = list(read_pages(dump, whole := Rejects(0.0)))
    dump_parts = parts(dump)
    assert len(dump_parts) == -(-dump.stat().st_size // split)
    articles, rejects = read(dump_parts)
    assert (articles, rejects.read, rejects.skipped) == (pages, whole.read, whole.skipped)
    last, _ = read(dump_parts[-4:])
    assert last == pages[len(pages) - len(last) :], "a part can be read by itself"


def test_the_real_excerpt_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: Path) -> None:
    dump = saved(tmp_path, min((real / "wikipedia").glob("enwiki-*short*.bz2")).read_bytes())
    monkeypatch.setattr(bz2_blocks, "PART", 400_000)
    articles, rejects = read(parts(dump))
    assert (len(parts(dump)), len(articles), rejects.read) == (5, 106, 206)
    assert articles == list(read_pages(dump, Rejects(0.0)))


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_page_belongs_to_the_part_where_its_mark_begins(size: int) -> None:
    text = b"<mediawiki>h<page>1</page><page>2</page></mediawiki>"

    def blocks(begin: int, end: int) -> Iterator[tuple[bytes, bool]]:
        yield from ((text[at : min(at + size, end)], True) for at in range(begin, end, size))
        yield from ((text[at : at + size], False) for at in range(end, len(text), size))

    for first_cut, second_cut in product(range(1, len(text)), repeat=2):
        bounds = [0, *sorted({first_cut, second_cut}), len(text)]
        dumps = [
            b"".join(bz2_blocks._whole_pages(blocks(begin, end), from_start=begin == 0))
            for begin, end in pairwise(bounds)
        ]
        assert all(xml.startswith(b"<mediawiki>") and xml.endswith(b"</mediawiki>") for xml in dumps)
        starts = [[at for at in (12, 26) if begin <= at < end] for begin, end in pairwise(bounds)]
        assert [xml.count(b"<page>") for xml in dumps] == list(map(len, starts))
        assert b"".join(xml.removeprefix(b"<mediawiki>").removesuffix(b"</mediawiki>") for xml in dumps) == text[11:-12]


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_line_belongs_to_the_part_where_the_newline_before_it_is(size: int) -> None:
    text = b"a\n\nlonger line\nb\nlast"
    lines = text.splitlines(keepends=True)
    newline_before = [0, *(at for at, byte in enumerate(text) if byte == ord("\n"))]
    for first_cut, second_cut in product(range(1, len(text)), repeat=2):
        for begin, end in pairwise([0, *sorted({first_cut, second_cut}), len(text)]):
            blocks = [(text[at : min(at + size, end)], True) for at in range(begin, end, size)]
            blocks += [(text[at : at + size], False) for at in range(end, len(text), size)]
            expected = [line for line, at in zip(lines, newline_before, strict=True) if begin <= at < end]
            assert b"".join(bz2_blocks._whole_lines(iter(blocks), from_start=begin == 0)) == b"".join(expected)


@pytest.mark.parametrize("how", ["changed", "left out", "cut", "no end"])
def test_damage_anywhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bytes, how: str) -> None:
    monkeypatch.setattr(bz2_blocks, "PART", 100_000)
    data = bz2.compress(plain[:300_000], BLOCKS) + bz2.compress(plain[300_000:], BLOCKS)
    for at in (4, len(data) // 3, data.rindex(b"BZh1"), data.rindex(b"BZh1") + 5, len(data) - 30):
        bad = {
            "changed": data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :],
            "left out": data[:at] + data[at + 7 :],
            "cut": data[:at] if at > 4 else data[:-1],
            "no end": data[: -12 - at],
        }[how]
        dump = saved(tmp_path, bad)
        with pytest.raises(LongtailError, match=rf"{dump.name}: (corrupt|cut in the middle)"):
            read(parts(dump))


def test_a_block_is_read_whole_or_not_at_all(tmp_path: Path, plain: bytes) -> None:
    with saved(tmp_path, bz2.compress(plain, BLOCKS)).open("rb") as raw:
        (first, _), (second, _), *_ = bz2_blocks._marks(raw, 0)
        data = bz2.decompress(bz2_blocks._as_stream(raw, first, second))
        assert plain.startswith(data)
        assert len(data) > 90_000
        with pytest.raises((OSError, ValueError)):
            bz2.decompress(bz2_blocks._as_stream(raw, first, second - 8_000))


def test_bits_that_look_like_a_mark_do_not_end_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bytes
) -> None:
    dump, marks = saved(tmp_path, bz2.compress(plain, BLOCKS)), bz2_blocks._marks
    whole = b"".join(bz2_blocks.open_pages(dump, 0, None))

    def with_false_marks(raw, begin: int) -> Iterator[tuple[int, int]]:
        for bit, mark in marks(raw, begin):
            yield from [(bit - 99, bz2_blocks.END), (bit - 98, bz2_blocks.BLOCK), (bit, mark)]

    monkeypatch.setattr(bz2_blocks, "_marks", with_false_marks)
    assert b"".join(bz2_blocks.open_pages(dump, 0, None)) == whole == plain
