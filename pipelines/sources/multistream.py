"""Cuts a Wikipedia dump into parts that can be read independently: by its index if there is one, else by its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.bz2_blocks import CLOSE, OPEN, open_pages
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_blocks, open_lines
from pipelines.sources.wikipedia import Page, read_pages

DUMP, INDEX = "-multistream", "-multistream-index"
STREAMS = 20  # in a part, of 100 pages each: about 2 MB, a second to decompress and parse
BYTES = 1 << 24  # in a part of a dump without an index: about 70 MB of XML, a few seconds


class Part(NamedTuple):
    """A source file or a part of it: bytes `begin` to `end`, or, if `pages` is None, the pages that begin there."""

    file: Path
    begin: int = 0
    end: int | None = None  # None: the end of the file
    pages: int | None = None  # number of pages in these bytes, by the dump's index


def parts(file: Path, streams: int = STREAMS) -> list[Part]:
    """The parts of a source file, in its order: dumps (.xml….bz2) are cut by bytes, other files are one part.

    A multistream dump is cut after every `streams` streams if its index is there (…-multistream-index.txt.bz2, or
    -index1.txt-p1p9.bz2 of -multistream1.xml-p1p9.bz2). The index has a line `stream's first byte:page id:title` for
    each page, and is no part itself. Raises LongtailError naming the index and line if it is malformed or has no dump.
    """
    if DUMP not in file.name:
        return _cut_by_bytes(file)
    if INDEX in file.name:
        dump = file.with_name(file.name.replace(INDEX, DUMP, 1).replace(".txt", ".xml", 1))
        if not dump.is_file():
            raise LongtailError(f"{file}: the index of a dump, expected {dump.name} beside it; fetch both")
        return []
    index = file.with_name(file.name.replace(DUMP, INDEX, 1).replace(".xml", ".txt", 1))
    if not index.is_file():
        return _cut_by_bytes(file)
    starts, pages = _streams(index, file)
    bounds = [0, *starts[streams::streams], None]
    counts = (sum(pages[first : first + streams]) for first in range(0, len(pages), streams))
    return [Part(file, begin, end, count) for begin, end, count in zip(bounds[:-1], bounds[1:], counts, strict=True)]


def read_articles(part: Part, rejects: Rejects) -> Iterator[Page]:
    """The part's articles, see `read_pages`. Raises LongtailError also if the number of pages isn't the index's."""
    before = rejects.read
    try:
        yield from read_pages(part.file, rejects, _xml(part))
    except LongtailError as error:
        raise error if part.pages is None else LongtailError(f"{error}, and its index") from None
    if part.pages not in (None, pages := rejects.read - before):
        raise LongtailError(
            f"{part.file}: {pages} pages from byte {part.begin} on, expected the {part.pages} of its index; "
            "fetch both again"
        )


def _cut_by_bytes(file: Path) -> list[Part]:
    if ".xml" not in file.name or file.suffix != ".bz2" or file.stat().st_size <= BYTES:
        return [Part(file)]
    starts = range(0, file.stat().st_size, BYTES)
    return [Part(file, start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]


def _xml(part: Part) -> Iterable[bytes] | None:
    """A complete XML document of the part's pages; None for a whole file."""
    begin, end = part.begin, part.end
    if part.pages is not None:  # the first part has the dump's own head, the last one its foot
        head, foot = [OPEN] if begin else [], [] if end is None else [CLOSE]
        return chain(head, open_blocks(part.file, begin, end), foot)
    return open_pages(part.file, begin, end) if begin or end else None


def _streams(index: Path, dump: Path) -> tuple[list[int], list[int]]:
    """The first byte of each stream of pages, and its number of pages."""
    size = dump.stat().st_size
    starts: list[int] = []
    pages: list[int] = []
    last = b""
    for number, line in enumerate(open_lines(index), start=1):
        start, _, rest = line.partition(b":")
        if start != last:
            if not (start.isdigit() and rest) or not (starts[-1] if starts else 0) < int(start) < size:
                raise LongtailError(
                    f"{index}: line {number}: {line[:60]!r}, expected a byte of {dump.name} ({size} bytes) after "
                    "the previous line's, a page id and a title; fetch both again"
                )
            last = start
            starts.append(int(start))
            pages.append(0)
        pages[-1] += 1
    return starts, pages
