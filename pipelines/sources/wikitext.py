"""Reads WikiText (Merity et al., 2017; REPLUG, section 7.2): its articles, or its lines joined into
long texts.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources.batches import in_batches
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import Raw, parquet_rows, text_id
from pipelines.sources.streams import bounded_lines, is_parquet

# " = Title = "; a section is " = = Section = = "
TITLE = re.compile(rb"\s*= (?!= )(.*\S) =\s*")


class _Article(NamedTuple):
    row: int  # the line of the title, from 1
    title: bytes | None  # None for what stands before the first title
    lines: list[bytes] | None  # None for an article longer than `bounds.RECORD`


def read_wikitext(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Yield WikiText's articles, which together are the whole file.

    Each begins with the blank line before its title, a line ` = Title = ` between blank lines. Bad
    articles go to `rejects` (not_utf8, too_long, and no_title for text before the first title).
    Raises LongtailError naming the file if it is damaged (see `open_lines`) or has no article.
    """
    path = part.file
    read_before = rejects.read
    for article in _articles(_lines(path)):
        if _is_blank_beginning(article):
            continue
        rejects.read += 1
        if article.lines is None:
            rejects.add(path, article.row, "too_long", bounds.too_long("an article"))
        elif article.title is None:
            expected = "expected a line ' = Title = ' between blank lines first"
            rejects.add(path, article.row, "no_title", expected)
        else:
            try:
                text = b"\n".join([*article.lines, b""]).decode("utf-8")
                title = article.title.decode("utf-8")
            except UnicodeDecodeError as error:
                rejects.add(path, article.row, "not_utf8", str(error))
            else:
                yield Raw(text_id(text), name, title, text, file=path.name, row=article.row)

    if rejects.read == read_before:
        raise LongtailError(
            f"{path}: no article, expected lines ' = Title = ' between blank lines; fetch it again"
        )


def read_joined_lines(name: str, part: Part, rejects: Rejects, n_lines: int) -> Iterator[Raw]:
    """Yield each `n_lines` lines of a file as one text, as REPLUG's authors evaluate WikiText.

    They read the rows of the data set on the Hub: a line with its newline in each row, or nothing
    for a blank line. Two newlines stand between rows. Bad texts go to `rejects` (not_utf8,
    too_long). Raises LongtailError naming the file if it is damaged (see `open_lines`).
    """
    path = part.file
    row = 1
    for lines in in_batches(_lines(path), lambda line: 1, n_lines):
        first_row = row
        row += len(lines)
        rejects.read += 1
        if None in lines or sum(map(len, lines)) > bounds.RECORD:
            rejects.add(path, first_row, "too_long", bounds.too_long("a text of joined lines"))
            continue

        rows = [line + b"\n" if line.strip() else b"" for line in lines]
        try:
            text = b"\n\n".join(rows).decode("utf-8")
        except UnicodeDecodeError as error:
            rejects.add(path, first_row, "not_utf8", str(error))
        else:
            yield Raw(text_id(text), name, "", text, file=path.name, row=first_row)


def _lines(path: Path) -> Iterator[bytes | None]:
    """The lines of a file; None for one longer than `bounds.RECORD`."""
    if not is_parquet(path):
        for line in bounded_lines(path):
            yield line and line.removesuffix(b"\r")  # of a file that Windows wrote
        return
    for row in parquet_rows(path):  # a line in each row
        text = (row["text"] or "").encode().removesuffix(b"\n")
        if len(text) > bounds.RECORD:
            yield None
        else:
            yield text or b" "  # an empty row stands for " ", WikiText's blank line


def _articles(lines: Iterable[bytes | None]) -> Iterator[_Article]:
    """Yield the articles. What stands before the first title comes first, even if it is nothing."""
    longest = bounds.RECORD
    row = 1
    title = None
    article: list[bytes] | None = []
    size = 0
    before: bytes | None = b""

    for number, (line, after) in enumerate(pairwise(chain(lines, [b""])), start=1):
        match = None
        if line and _is_blank(before) and _is_blank(after):
            match = TITLE.fullmatch(line)
        if match:
            # the blank line before the title is the new article's
            yield _Article(row, title, article and article[:-1])
            row = number
            title = match[1]
            article = [before] if number > 1 else []
            size = 0

        size += len(line or b"") + 1  # its newline: blank lines take memory too
        if line is None or size > longest:
            article = None
        elif article is not None:
            article.append(line)
        before = line

    yield _Article(row, title, article)


def _is_blank(line: bytes | None) -> bool:
    return line is not None and not line.strip()


def _is_blank_beginning(article: _Article) -> bool:
    """Whether an article is only the blank lines before the first title."""
    if article.title is not None or article.lines is None:
        return False
    return all(_is_blank(line) for line in article.lines)
