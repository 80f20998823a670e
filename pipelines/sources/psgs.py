"""DPR's Wikipedia (`psgs_w100.tsv`, December 2018): its passages of 100 words, joined to articles again."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import LONGEST, open_rows

HEADER = ["id", "text", "title"]


class Article(NamedTuple):
    id: str  # its first passage's
    title: str
    text: str
    row: int  # its first passage's line


def is_psgs(file: Path) -> bool:
    return file.name.endswith((".tsv", ".tsv.gz"))


def read_articles(path: Path, rejects: Rejects) -> Iterator[Article]:
    """Yield articles: consecutive passages with one title, joined by a space. Quotes are undone like in DPR's reader.

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
