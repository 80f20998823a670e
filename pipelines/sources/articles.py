"""Articles of text files: DPR's Wikipedia, and WikiText (Merity et al., 2017; REPLUG, section 7.2).

DPR's `psgs_w100.tsv` of December 2018 holds passages of 100 words, which are joined to articles again.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.pile import read_parquet
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import LONGEST, bounded_lines, open_rows

HEADER = ["id", "text", "title"]  # of DPR's file
TITLE = re.compile(rb"\s*= (?!= )(.*\S) =\s*")  # WikiText's " = Title = "; a section is " = = Section = = "


class Article(NamedTuple):
    id: str  # of DPR's first passage; WikiText has none
    title: str
    text: str
    row: int  # the line of DPR's first passage, or of WikiText's title


def is_psgs(file: Path) -> bool:
    return file.name.endswith((".tsv", ".tsv.gz"))


def read_psgs(path: Path, rejects: Rejects) -> Iterator[Article]:
    """Yield DPR's articles: consecutive passages with one title, joined by a space. Quotes are undone as DPR does.

    Bad rows go to `rejects` (unexpected_layout, not_utf8, no_text, too_long); the rest of their article is kept. An
    article longer than LONGEST is cut into several. Raises LongtailError if the header isn't DPR's or the file is
    damaged.
    """
    rows = open_rows(path, rejects)
    _, header = next(rows, (1, b""))
    rejects.read -= 1
    if header.rstrip(b"\r").split(b"\t") != [name.encode() for name in HEADER]:
        raise LongtailError(f"{path}: begins with {header[:60]!r}, expected the header id, text, title; fetch it again")
    first: Article | None = None
    texts: list[str] = []
    size = 0
    for number, line in rows:
        try:
            (passage, text, title), *_ = csv.reader([line.decode("utf-8")], delimiter="\t", strict=True)
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))
            continue
        except (csv.Error, ValueError) as error:
            rejects.add(path, number, "unexpected_layout", f"expected id, text and title: {error}")
            continue
        if not text.strip():
            rejects.add(path, number, "no_text", title)
            continue
        size += len(text)
        if first is None or title != first.title or size > LONGEST:
            if first:
                yield first._replace(text=" ".join(texts))
            first, texts, size = Article(passage, title, "", number), [], len(text)
        texts.append(text)
    if first:
        yield first._replace(text=" ".join(texts))


def read_wikitext(path: Path, rejects: Rejects) -> Iterator[Article]:
    """Yield WikiText's articles, each from the blank line before its title to the blank line before the next title.

    So all articles together are the whole file. A title is a line ` = Title = ` between blank lines. Bad articles go to
    `rejects` (not_utf8, too_long, and no_title for text before the first title). Raises LongtailError naming the file
    if it is damaged (see `open_lines`).
    """
    lines = _parquet_lines(path) if path.suffix == ".parquet" else bounded_lines(path)
    for row, title, article in _articles(lines):
        if title is None and article is not None and not any(map(bytes.strip, article)):
            continue  # blank lines before the first title
        rejects.read += 1
        if article is None:
            rejects.add(path, row, "too_long", f"longer than {LONGEST >> 20} MB, expected an article")
        elif title is None:
            rejects.add(path, row, "no_title", "expected a line ' = Title = ' between blank lines first")
        else:
            try:
                yield Article("", title.decode("utf-8"), b"\n".join([*article, b""]).decode("utf-8"), row)
            except UnicodeDecodeError as error:
                rejects.add(path, row, "not_utf8", str(error))


def _articles(lines: Iterable[bytes | None]) -> Iterator[tuple[int, bytes | None, list[bytes] | None]]:
    """Yield (line of the title, title, lines) of each article.

    What stands before the first title comes first, with None as its title; it may be empty. The lines are None for an
    article longer than LONGEST, which isn't held in memory.
    """
    row, title, size = 1, None, 0
    article: list[bytes] | None = []
    before: bytes | None = b""
    for number, (line, after) in enumerate(pairwise(chain(lines, [b""])), start=1):
        match = TITLE.fullmatch(line) if line and _blank(before) and _blank(after) else None
        if match:
            yield row, title, article and article[:-1]
            row, title, size = number, match[1], 0
            article = [before] if number > 1 else []
        size += len(line or b"")
        if line is None or size > LONGEST:
            article = None
        elif article is not None:
            article.append(line)
        before = line
    yield row, title, article


def _blank(line: bytes | None) -> bool:
    return line is not None and not line.strip()


def _parquet_lines(path: Path) -> Iterator[bytes]:
    """The lines of the Hub's Parquet file, a row each; an empty row becomes " ", WikiText's blank line."""
    for row, _ in read_parquet(path):
        yield (row or b"").removesuffix(b"\n") or b" "
