"""Reads the source documents of a text corpus from its files; corpus_layouts.py tells their
layouts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache, partial
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources import delimited
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.corpus_layouts import (
    DOC,
    DOCS,
    DUMP,
    PLAIN,
    Layout,
    columns_of,
    is_json,
    require_layout,
)
from pipelines.sources.json_rows import PARQUET_ROWS, json_rows, open_rows
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import (
    AGAIN,
    bounded_lines,
    is_parquet,
    read_head,
)
from pipelines.sources.wikipedia import read_articles
from pipelines.storage import parquet

PASSAGE_CHARS = 2000  # some 300 words; a longer passage is cut like an article
STRING_TYPES = ("string", "large_string", "string_view")  # of Arrow
# The title in FlashRAG's and Pyserini's `contents`: a first line in quotes, or a short one that
# ends no sentence.
FIRST_LINE = re.compile(r'[ \t]*(?:"([^\n]+)"|([^\n]{,100}?(?<![.!?:;,\s])))[ \t]*\n+(?=\s*\S)')
EXTRACTOR_MARKS = re.compile(r"^(?:Section|BULLET)::::", re.MULTILINE)  # WikiExtractor's


class Raw(NamedTuple):
    """One document as its source has it."""

    source_document: str
    source: str
    title: str
    text: str
    file: str
    # line or row of the file, from 1; the line of an article's title in WikiText; the page's id in
    # a dump
    row: int
    # the page that an article in plain text is a version of, its id and title; else ""
    page: str = ""
    wikitext: bool = False  # or plain text
    # a passage, which is a document as it is: neither cut nor left out for being short
    whole: bool = False


def read_raw(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """The documents of a part, by the reader in the catalogue."""
    return catalogue.function(name, "documents")(name, part, rejects)


def read_wikipedia(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Articles of a pages-articles dump, or a corpus in one of LAYOUTS; the file's beginning tells
    which.
    """
    layout = require_layout(part.file)
    if layout != DUMP:
        yield from read_documents(name, part, rejects, layout)
        return

    for page in read_articles(part, rejects):
        yield Raw(
            source_document=page.id,
            source=name,
            title=page.title,
            text=page.text,
            file=part.file.name,
            row=int(page.id),
            wikitext=True,
        )


def read_documents(
    name: str, part: Part, rejects: Rejects, layout: Layout = PLAIN
) -> Iterator[Raw]:
    """Yield the documents of one file: JSON lines or a JSON list, a table, or Parquet.

    An article's id is a hash of its text, which exact duplicates share; a passage has the id that
    its source gives it. Articles of one title and page id are versions of a page. Bad rows go to
    `rejects` (bad_json, unexpected_layout, not_utf8, no_text, too_long). Raises LongtailError
    naming the file if it is damaged (see `open_lines`).
    """
    title_is_first_line = layout.text == "contents" and not layout.title
    is_article = not layout.passages and layout != PLAIN
    for number, text, row in read_texts(part.file, rejects, layout):
        title = row.title if isinstance(row.title, str) else ""
        if title_is_first_line:
            line = FIRST_LINE.match(text)
            if line:
                title = (line[1] or line[2]).replace('""', '"')
                text = text[line.end() :]
        elif is_article:
            text = EXTRACTOR_MARKS.sub("", text.removeprefix(f"{title}\n").lstrip("\n"))

        if not text.strip():
            if title and is_article:  # a redirect, or a page that is a template's
                rejects.skip("no_text")
            else:
                rejects.add(part.file, number, "no_text", title or "text is empty")
            continue
        page = ""
        if is_article and title:
            page = f"{row.id or ''} {title}"
        yield Raw(
            source_document=_own_id(row, layout) or text_id(text),
            source=_subset(row) or name,
            title=title,
            text=text,
            file=part.file.name,
            row=number,
            page=page,
            whole=layout.passages and len(text) <= PASSAGE_CHARS,
        )


def text_id(text: str) -> str:
    """128 bits of BLAKE2b of the text, in hexadecimal."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


class _Meta(msgspec.Struct):
    pile_set_name: str | None = None


@cache
def _row_type(layout: Layout) -> type:
    """A record's type, whose `text`, `title` and `id` are the fields that the layout names."""
    fields = [
        ("text", str | list[str] | None),  # or paragraphs; null: an empty cell
        # a text or null, in some data sets on the Hub, names no subset
        ("meta", _Meta | str | None, None),
        ("subset", str | None, None),
        ("title", Any, ""),  # anything but a text is no title
        ("id", Any, None),
        ("part", Any, None),
    ]
    names = {
        "text": layout.text or "text",
        "title": layout.title or "title",
        "id": layout.id or "id",
        "part": layout.part or "part",
    }
    return msgspec.defstruct("Row", fields, rename=names)


def _own_id(row: Any, layout: Layout) -> str:
    """The id that a document's source gives it, "" if it gives none."""
    if not layout.id or not isinstance(row.id, str | int):
        return ""
    if layout.part:
        return f"{layout.prefix}{row.id}-{row.part}"
    return f"{layout.prefix}{row.id}"


def _subset(row: Any) -> str | None:
    """The part of a corpus that a document comes from, as The Pile names it."""
    if isinstance(row.meta, _Meta) and row.meta.pile_set_name:
        return row.meta.pile_set_name
    return row.subset


def read_texts(
    path: Path, rejects: Rejects, layout: Layout = PLAIN
) -> Iterator[tuple[int, str, Any]]:
    """Yield (line or row, text, the row's other fields) of a file; bad rows go to `rejects` as in
    `read_documents`.
    """
    row_type = _row_type(layout)
    decode = msgspec.json.Decoder(row_type).decode
    for number, record in _records(path, rejects, layout):
        try:
            if isinstance(record, bytes):
                row = decode(record)
            else:
                row = msgspec.convert(record, type=row_type)
        except msgspec.ValidationError as error:
            rejects.add(path, number, "unexpected_layout", str(error))
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))
        except (msgspec.DecodeError, RecursionError) as error:
            rejects.add(path, number, "bad_json", str(error))
        else:
            text = _join_paragraphs(row.text)
            if len(text) <= bounds.RECORD:
                yield number, text, row
            else:
                rejects.add(path, number, "too_long", bounds.too_long("a document"))


def _join_paragraphs(text: str | list[str] | None) -> str:
    if isinstance(text, list):
        paragraphs = [paragraph.strip() for paragraph in text]
        return "\n".join(paragraph for paragraph in paragraphs if paragraph)
    return text or ""


def _records(path: Path, rejects: Rejects, layout: Layout) -> Iterator[tuple[int, bytes | dict]]:
    """Yield (line or row, record) of a file: JSON, or a dict. Bad ones are rejects."""
    if layout == DOCS:
        return _extracted_articles(path, rejects)
    if not is_parquet(path):
        head = read_head(path)
        columns = [] if is_json(head) else columns_of(head)
        if columns:
            return _table_records(path, rejects, columns)
    return json_rows(path, rejects, partial(used_columns, path, layout))


def _table_records(
    path: Path, rejects: Rejects, columns: list[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, row) of a table under a header, whose columns are separated by tabs, with quotes
    as DPR has them.
    """
    rows = open_rows(path, rejects)
    next(rows)  # the header
    rejects.read -= 1

    for number, line in rows:
        try:
            cells = delimited.one_row([line.decode("utf-8").rstrip("\r")], "\t")
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))
            continue
        if cells is not None and len(cells) == len(columns):
            yield number, dict(zip(columns, cells, strict=True))
            continue
        problem = "a quote out of place" if cells is None else f"{len(cells)} columns"
        rejects.add(
            path,
            number,
            "unexpected_layout",
            f"{problem}, expected {', '.join(columns[:-1])} and {columns[-1]}",
        )


def _extracted_articles(path: Path, rejects: Rejects) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, title and text) of WikiExtractor's articles, between <doc> and </doc>."""
    begin = 0  # the line of the article's <doc>; 0 between articles
    title = b""
    article = bytearray()
    for number, line in enumerate(bounded_lines(path), start=1):
        tag = DOC.fullmatch(line) if line else None
        if tag:
            rejects.read += 1
            if begin:
                problem = f"no </doc> before the next article, in line {number}"
                rejects.add(path, begin, "unexpected_layout", problem)
            begin = number
            title = tag[1]
            article = bytearray()
        elif begin == 0:
            continue
        elif line is None or len(article) + len(line) > bounds.RECORD:
            rejects.add(path, begin, "too_long", bounds.too_long("an article"))
            begin = 0
        elif line.strip() == b"</doc>":
            try:
                record = {"title": unescape(title.decode("utf-8")), "text": article.decode("utf-8")}
            except UnicodeDecodeError as error:
                rejects.add(path, begin, "not_utf8", str(error))
            else:
                yield begin, record
            begin = 0
        else:
            article += line.removesuffix(b"\r") + b"\n"

    if begin:
        raise LongtailError(
            f"{path}: cut in the middle of {title!r}, expected </doc> at its end; {AGAIN}"
        )


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a corpus's Parquet file, with the columns of `used_columns`."""
    return parquet.foreign_rows(path, partial(used_columns, path, PLAIN), PARQUET_ROWS)


def used_columns(path: Path, layout: Layout, schema: pa.Schema) -> list[str]:
    """The columns of a Parquet file that are read. Raises LongtailError where the texts, or titles
    that are not all null, are no strings.
    """
    types = {field.name: field.type for field in schema}
    texts = [name for name, column_type in types.items() if _has_strings(column_type)]
    has_no_titles = pa.types.is_null(types.get(layout.title, pa.null()))
    for name in (layout.title, layout.text):
        if name in texts or (name == layout.title and has_no_titles):
            continue
        actual = f", not of {types[name]}" if name in types else ""
        raise LongtailError(
            f"{path}: columns {', '.join(types)}, expected a column `{name}` of strings{actual}"
        )

    names = []
    meta = types.get("meta", pa.null())
    if pa.types.is_struct(meta) and meta.get_field_index("pile_set_name") >= 0:
        names.append("meta.pile_set_name")
    for name in (layout.text, "subset", layout.title):
        if name in texts:
            names.append(name)
    for name in (layout.id or "id", layout.part):
        if layout != PLAIN and name in types:
            names.append(name)
    return names


def _has_strings(column_type: pa.DataType) -> bool:
    """Whether a column has strings, also in lists, or as pandas' categories."""
    value_type = getattr(column_type, "value_type", column_type)
    return str(value_type) in STRING_TYPES
