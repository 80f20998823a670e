"""WikiText (Merity et al., 2017): the articles in its files, plain or as rows of Parquet (REPLUG, section 7.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from pipelines.sources import streams
from pipelines.sources.pile import read_parquet
from pipelines.sources.rejects import Rejects

TITLE = re.compile(rb"\s*= (?!= )(.*\S) =\s*")  # " = Title = "; a section's is " = = Section = = "


class Article(NamedTuple):
    title: str
    text: str
    row: int  # line of its title


def read_articles(path: Path, rejects: Rejects) -> Iterator[Article]:
    """Yield the articles as they stand, each from the blank line before its title to that before the next one's.

    So the articles, one after another, are the file. A title is a line ` = Title = ` between blank lines. Bad articles
    go to `rejects` (not_utf8, too_long, and no_title for text before the first title). Raises LongtailError naming the
    file when it is damaged (see `open_lines`).
    """
    lines = _rows(path) if path.suffix == ".parquet" else streams.bounded_lines(path)
    for row, title, held in _articles(lines):
        if title is None and held is not None and not any(map(bytes.strip, held)):
            continue  # a blank line before the first title
        rejects.read += 1
        if held is None:
            rejects.add(path, row, "too_long", f"longer than {streams.LONGEST >> 20} MB, expected an article")
        elif title is None:
            rejects.add(path, row, "no_title", "expected a line ' = Title = ' between blank lines first")
        else:
            try:
                yield Article(title.decode("utf-8"), b"\n".join([*held, b""]).decode("utf-8"), row)
            except UnicodeDecodeError as error:
                rejects.add(path, row, "not_utf8", str(error))


def _articles(lines: Iterable[bytes | None]) -> Iterator[tuple[int, bytes | None, list[bytes] | None]]:
    """(line of the title, title, lines) of each article: no title for what stands before the first, which may be
    nothing, and no lines for what is longer than LONGEST, of which no more is held."""
    row, title, size = 1, None, 0
    held: list[bytes] | None = []
    before: bytes | None = b""
    for number, (line, after) in enumerate(pairwise(chain(lines, [b""])), start=1):
        found = TITLE.fullmatch(line) if line and _blank(before) and _blank(after) else None
        if found:
            yield row, title, held and held[:-1]
            row, title, size = number, found[1], 0
            held = [before] if number > 1 else []
        size += len(line or b"")
        if line is None or size > streams.LONGEST:
            held = None
        elif held is not None:
            held.append(line)
        before = line
    yield row, title, held


def _blank(line: bytes | None) -> bool:
    return line is not None and not line.strip()


def _rows(path: Path) -> Iterator[bytes]:
    """The lines of a Parquet file as on the Hub, a row each, without the space that a blank line has in WikiText."""
    for row, _ in read_parquet(path):
        yield (row or b"").removesuffix(b"\n") or b" "
