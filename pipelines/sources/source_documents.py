"""Source documents of a text corpus, whatever format its files are in: the readers that the catalogue names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources import csv_rows
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import bounded_lines, check_start, open_rows
from pipelines.sources.wikipedia import Page, Part, read_articles
from pipelines.storage import parquet

PARQUET_BATCH = 1 << 10  # rows
HEADER = ["id", "text", "title"]  # of DPR's file
TITLE = re.compile(rb"\s*= (?!= )(.*\S) =\s*")  # WikiText's " = Title = "; a section is " = = Section = = "


class Raw(NamedTuple):
    """One document as its source has it."""

    source_document: str
    source: str
    title: str
    text: str
    file: str
    row: int  # line or row of the file, from 1; the line of an article's title in WikiText; the page's id in a dump
    wikitext: bool = False  # or plain text
    whole: bool = False  # a passage, which is a document as it is: neither cut nor left out for being short


def read_raw(name: str, part: Part, rejects: Rejects, redirects: list[Page] | None = None) -> Iterator[Raw]:
    """Yield the documents of a part, by the reader in the catalogue; redirects are added to `redirects`."""
    reader = catalogue.function(name, "documents")
    yield from reader(name, part, rejects) if redirects is None else reader(name, part, rejects, redirects)


def read_wikipedia(name: str, part: Part, rejects: Rejects, redirects: list[Page] | None = None) -> Iterator[Raw]:
    """Articles of a pages-articles dump, DPR's passages, or rows with title and text; the file's suffix tells which."""
    if is_psgs(part.file):
        yield from read_psgs(name, part, rejects)
    elif is_documents(part.file):
        yield from read_documents(name, part, rejects)
    else:
        for page in read_articles(part, rejects, redirects):
            yield Raw(page.id, name, page.title, page.text, part.file.name, int(page.id), wikitext=True)


def is_psgs(file: Path) -> bool:
    return file.name.endswith((".tsv", ".tsv.gz"))


def is_documents(file: Path) -> bool:
    """Whether a file of Wikipedia is JSON lines or Parquet with titles and texts, and no dump."""
    return bool({".json", ".jsonl", ".parquet"} & set(file.suffixes[-2:]))


class _Meta(msgspec.Struct):
    pile_set_name: str | None = None


class _Row(msgspec.Struct):
    text: str | None  # null in a Parquet file's empty cell
    meta: _Meta | str | None = None  # a text or null, in some data sets on the Hub, names no subset
    subset: str | None = None
    title: Any = ""  # anything but a text is no title


def read_documents(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Yield the documents of one file in the layout of The Pile or C4: JSON lines (compressed or not) or .parquet.

    Exact duplicates share their id, a hash of the text. Bad rows go to `rejects` (bad_json, unexpected_layout,
    not_utf8, no_text, too_long). Raises LongtailError naming the file if it is damaged (see `open_lines`).
    """
    for number, text, row in read_texts(part.file, rejects):
        if text.strip():
            subset = (isinstance(row.meta, _Meta) and row.meta.pile_set_name) or row.subset or name
            title = row.title if isinstance(row.title, str) else ""
            yield Raw(text_id(text), subset, title, text, part.file.name, number)
        else:
            rejects.add(part.file, number, "no_text", "text is empty")


def text_id(text: str) -> str:
    """128 bits of BLAKE2b of the text, in hexadecimal."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


def read_texts(path: Path, rejects: Rejects) -> Iterator[tuple[int, str, _Row]]:
    """Yield (line or row, text, the row's other fields) of a file; bad rows go to `rejects` as in `read_documents`."""
    rows, parse = open_rows(path, rejects), msgspec.json.Decoder(_Row).decode
    if is_parquet := path.suffix == ".parquet":
        rows, parse = enumerate(_parquet_rows(path), start=1), partial(msgspec.convert, type=_Row)
    for number, data in rows:
        rejects.read += is_parquet  # `open_rows` counts its own
        try:
            row = parse(data)
        except msgspec.ValidationError as error:
            rejects.add(path, number, "unexpected_layout", str(error))
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))
        except (msgspec.DecodeError, RecursionError) as error:
            rejects.add(path, number, "bad_json", str(error))
        else:
            if len(text := row.text or "") <= bounds.RECORD:
                yield number, text, row
            else:
                rejects.add(path, number, "too_long", bounds.too_long("a document"))


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a Parquet file's rows, as far as they are used. Raises LongtailError without a column `text` of strings."""

    def columns(schema: pa.Schema) -> list[str]:
        texts = [field.name for field in schema if field.type in (pa.string(), pa.large_string())]
        if "text" not in texts:
            raise LongtailError(f"{path}: columns {', '.join(schema.names)}, expected a column `text` of strings")
        meta = schema.field("meta").type if "meta" in schema.names else pa.null()
        has_set = pa.types.is_struct(meta) and meta.get_field_index("pile_set_name") >= 0
        return [*(["meta.pile_set_name"] * has_set), *(name for name in ("text", "subset", "title") if name in texts)]

    check_start(path)
    yield from parquet.foreign_rows(path, columns, PARQUET_BATCH)


def read_psgs(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Yield DPR's passages of 100 words (psgs_w100.tsv), each with the title of its article.

    Bad rows go to `rejects` (unexpected_layout, not_utf8, no_text, too_long). Raises LongtailError if the header isn't
    DPR's or the file is damaged.
    """
    path = part.file
    rows = open_rows(path, rejects)
    _, header = next(rows, (1, b""))
    rejects.read -= 1
    if header.rstrip(b"\r").split(b"\t") != [column.encode() for column in HEADER]:
        raise LongtailError(f"{path}: begins with {header[:60]!r}, expected the header id, text, title; fetch it again")
    for number, line in rows:
        try:
            cells = csv_rows.one_row([line.decode("utf-8")], "\t")
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))
            continue
        if cells is None or len(cells) != len(HEADER):
            had = "a quote out of place" if cells is None else f"{len(cells)} columns"
            rejects.add(path, number, "unexpected_layout", f"{had}, expected id, text and title")
        elif not cells[1].strip():
            rejects.add(path, number, "no_text", cells[2])
        else:
            yield Raw(f"psgs-{cells[0]}", name, cells[2], cells[1], path.name, number, whole=True)


def read_wikitext(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Yield WikiText's articles (Merity et al., 2017; REPLUG, section 7.2), which together are the whole file.

    Each begins with the blank line before its title, a line ` = Title = ` between blank lines. Bad articles go to
    `rejects` (not_utf8, too_long, and no_title for text before the first title). Raises LongtailError naming the file
    if it is damaged (see `open_lines`) or has no article.
    """
    path = part.file
    if path.suffix == ".parquet":  # a line in each row; an empty one stands for " ", WikiText's blank line
        texts = ((row["text"] or "").encode().removesuffix(b"\n") or b" " for row in _parquet_rows(path))
        lines = (text if len(text) <= bounds.RECORD else None for text in texts)
    else:
        lines = (line and line.removesuffix(b"\r") for line in bounded_lines(path))  # of a file that Windows wrote
    before = rejects.read
    for row, title, article in _articles(lines):
        if title is None and article is not None and not any(map(bytes.strip, article)):
            continue  # blank lines before the first title
        rejects.read += 1
        if article is None:
            rejects.add(path, row, "too_long", bounds.too_long("an article"))
        elif title is None:
            rejects.add(path, row, "no_title", "expected a line ' = Title = ' between blank lines first")
        else:
            try:
                text = b"\n".join([*article, b""]).decode("utf-8")
                yield Raw(text_id(text), name, title.decode("utf-8"), text, path.name, row)
            except UnicodeDecodeError as error:
                rejects.add(path, row, "not_utf8", str(error))
    if rejects.read == before:
        raise LongtailError(f"{path}: no article, expected lines ' = Title = ' between blank lines; fetch it again")


def _articles(lines: Iterable[bytes | None]) -> Iterator[tuple[int, bytes | None, list[bytes] | None]]:
    """Yield (line of the title, title, lines) of each article; the lines are None for one longer than `bounds.RECORD`.

    What stands before the first title comes first, with None as its title; it may be empty.
    """
    row, title, size, longest = 1, None, 0, bounds.RECORD
    article: list[bytes] | None = []
    before: bytes | None = b""
    for number, (line, after) in enumerate(pairwise(chain(lines, [b""])), start=1):
        blank_around = before is not None and after is not None and not before.strip() and not after.strip()
        match = TITLE.fullmatch(line) if line and blank_around else None
        if match:
            yield row, title, article and article[:-1]
            row, title, size = number, match[1], 0
            article = [before] if number > 1 else []
        size += len(line or b"") + 1  # its newline: blank lines take memory too
        if line is None or size > longest:
            article = None
        elif article is not None:
            article.append(line)
        before = line
    yield row, title, article
