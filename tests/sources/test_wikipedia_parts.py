"""A multistream dump read in parts by its index gives what the whole dump gives. A wrong index is an error."""

import bz2
from itertools import pairwise
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikipedia import Page, Part, parts, read_articles, read_pages

NAME = "enwiki-20181220-pages-articles-multistream"
PAGES = 10
PER_STREAM = 3


def page(number: int) -> str:
    kind = "<ns>1</ns>" if number % 4 == 1 else "<ns>0</ns>"
    moved = '<redirect title="x"/>' if number % 5 == 2 else ""
    text = f"<revision><text>é {number}</text></revision>"
    return f"<page><title>T:{number}</title>{kind}<id>{number}</id>{moved}{text}</page>"


def write(folder: Path, numbers: range = range(PAGES), suffix: str = "") -> tuple[Path, Path]:
    """A dump of streams of PER_STREAM pages, and its index, as MediaWiki writes them."""
    dump = folder / f"{NAME}{suffix and '1'}.xml{suffix}.bz2"
    index = folder / f"{NAME}-index{suffix and '1'}.txt{suffix}.bz2"
    data = bz2.compress(b"<mediawiki><siteinfo><sitename>W</sitename></siteinfo>")
    lines = []
    for first in range(0, len(numbers), PER_STREAM):
        stream = numbers[first : first + PER_STREAM]
        lines += [f"{len(data)}:{number}:T:{number}" for number in stream]
        data += bz2.compress("".join(map(page, stream)).encode())
    dump.write_bytes(data + bz2.compress(b"</mediawiki>"))
    index.write_bytes(bz2.compress("\n".join(lines).encode() + b"\n"))
    return dump, index


def read(dump_parts: list[Part]) -> tuple[list[Page], Rejects]:
    rejects = Rejects(0.0)
    return [article for part in dump_parts for article in read_articles(part, rejects)], rejects


@pytest.mark.parametrize("streams", [1, 2, 3, 100])
@pytest.mark.parametrize("suffix", ["", "-p1p30303"])
def test_parts_give_what_the_whole_gives(tmp_path: Path, streams: int, suffix: str) -> None:
    dump, _ = write(tmp_path, suffix=suffix)
    whole = Rejects(0.0)
    pages = list(read_pages(dump, whole))
    dump_parts = parts(dump, streams)
    assert len(dump_parts) == max(1, -(-4 // streams))
    assert (dump_parts[0].begin, dump_parts[-1].end, sum(part.pages for part in dump_parts)) == (0, None, PAGES)
    assert all(part.end == following.begin for part, following in pairwise(dump_parts))
    articles, rejects = read(dump_parts)
    assert articles == pages
    assert (rejects.read, rejects.skipped) == (whole.read, whole.skipped)
    last, _ = read(dump_parts[-1:])
    assert last == pages[len(pages) - len(last) :], "a part can be read by itself"


def test_small_and_other_files_are_one_part_and_an_index_is_none(tmp_path: Path) -> None:
    dump, index = write(tmp_path)
    assert parts(index) == []
    for name in ("enwiki-pages-articles.xml", "psgs_w100.tsv"):
        assert parts(tmp_path / name) == [Part(tmp_path / name)]
    index.unlink()
    assert parts(dump) == [Part(dump)]
    assert len(read(parts(dump))[0]) == len(list(read_pages(dump, Rejects(0.0))))


def test_an_index_without_its_dump_is_an_error(tmp_path: Path) -> None:
    dump, index = write(tmp_path)
    dump.unlink()
    with pytest.raises(LongtailError, match=rf"{index.name}: the index of a dump, expected {dump.name} beside it"):
        parts(index)


def changed(how: str, lines: list[bytes]) -> list[bytes]:
    one, later = lines[PER_STREAM].split(b":")[0], lines[-1].split(b":")[0]
    return {
        "no numbers": [*lines, b"<a>:1:x"],
        "one column": [b"12", *lines],
        "backwards": [*lines, lines[0]],
        "beyond the dump": [*lines, b"99999999:5:x"],
        "a page less": lines[:4] + lines[5:],
        "cut": lines[:-4],
        "no place of a stream": [line.replace(later, b"%d" % (int(later) - 5)) for line in lines],
        "another's": [line.replace(one, b"%d" % (int(one) + 1)) for line in lines],
    }[how]


@pytest.mark.parametrize("how", ["no numbers", "one column", "backwards", "beyond the dump"])
def test_a_bad_index_is_named(tmp_path: Path, how: str) -> None:
    dump, index = write(tmp_path)
    index.write_bytes(bz2.compress(b"\n".join(changed(how, bz2.decompress(index.read_bytes()).splitlines()))))
    with pytest.raises(LongtailError, match=rf"{index.name}: line \d+: .*, expected a byte of {dump.name}"):
        parts(dump)
    index.write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(LongtailError, match=rf"{index.name}: an HTML page"):
        parts(dump)


@pytest.mark.parametrize("how", ["a page less", "cut", "no place of a stream", "another's"])
def test_an_index_of_another_dump_is_an_error(tmp_path: Path, how: str) -> None:
    dump, index = write(tmp_path)
    index.write_bytes(bz2.compress(b"\n".join(changed(how, bz2.decompress(index.read_bytes()).splitlines()))))
    with pytest.raises(LongtailError, match=rf"{dump.name}: .*(of its index; fetch both|copy it again, and its index)"):
        read(parts(dump, 1))


def test_a_damaged_stream_is_named(tmp_path: Path) -> None:
    dump, _ = write(tmp_path)
    data = bytearray(dump.read_bytes())
    part = parts(dump, 1)[2]
    data[part.begin + 20] ^= 255
    dump.write_bytes(data)
    with pytest.raises(LongtailError, match=rf"{dump.name}: corrupt"):
        read([part])
    assert read(parts(dump, 1)[:2])[0]


def test_the_real_excerpt_as_a_multistream_dump(tmp_path: Path, real: Path) -> None:
    plain = bz2.decompress(min((real / "wikipedia").glob("enwiki-*short*.bz2")).read_bytes())
    begin, end = plain.index(b"<page>"), plain.rindex(b"</page>") + 7
    pages = [text + b"</page>\n" for text in plain[begin:end].split(b"</page>")[:-1]]
    data, lines = bz2.compress(plain[:begin]), []
    for first in range(0, len(pages), 20):
        lines += [b"%d:1:x" % len(data)] * len(pages[first : first + 20])
        data += bz2.compress(b"".join(pages[first : first + 20]))
    dump = tmp_path / f"{NAME}.xml.bz2"
    dump.write_bytes(data + bz2.compress(plain[end:]))
    (tmp_path / f"{NAME}-index.txt.bz2").write_bytes(bz2.compress(b"\n".join(lines)))
    dump_parts = parts(dump, 4)
    assert len(dump_parts) == 3
    articles, rejects = read(dump_parts)
    assert (len(articles), rejects.read) == (106, 206)
    assert articles == list(read_pages(dump, Rejects(0.0)))
