"""Source documents of a text corpus: the layouts of its files, told by their beginnings, and their readers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache, partial
from html import unescape
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources import delimited
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import (
    AGAIN,
    bounded_lines,
    is_parquet,
    open_rows,
    parse_whole,
    read_head,
)
from pipelines.sources.wikipedia import Page, Part, read_articles
from pipelines.storage import parquet

DOC = re.compile(rb'\s*<doc id="[^"\n]*"[^>\n]* title="([^\n]*)">\s*')
QUERIES = re.compile(
    r"(?i)(?<![a-z])(queries|query|topics?|qrels?)(?![a-z])"
)  # of test collections, by their names
CORPUS = re.compile(r"(?i)(?<![a-z])(corpus|passages|collection|docs|documents)(?![a-z])")
PARQUET_BATCH = 1 << 10  # rows
A_PASSAGE = 2000  # characters, some 300 words; a longer one is cut like an article
# The title in FlashRAG's and Pyserini's `contents`: a first line in quotes, or a short one that ends no sentence.
FIRST_LINE = re.compile(r'[ \t]*(?:"([^\n]+)"|([^\n]{,100}?(?<![.!?:;,\s])))[ \t]*\n+(?=\s*\S)')
MARKS = re.compile(r"^(?:Section|BULLET)::::", re.MULTILINE)  # WikiExtractor's
TITLE = re.compile(
    rb"\s*= (?!= )(.*\S) =\s*"
)  # WikiText's " = Title = "; a section is " = = Section = = "


class Layout(NamedTuple):
    """The fields of a record, or the columns of a line. A file has the first of LAYOUTS whose fields it all has."""

    tools: str  # who writes it
    text: str
    title: str = ""
    id: str = ""
    passages: bool = True  # or articles, which are cut into documents and identified by their text
    prefix: str = ""  # of a document's id
    beside: tuple[str, ...] = ()  # further fields that tell the layout

    @property
    def fields(self) -> set[str]:
        return {name for name in (self.text, self.title, self.id, *self.beside) if name}


ARTICLES = Layout("JSON lines", "text", "title", passages=False)
UNTITLED = Layout("BEIR without titles", "text", id="_id")  # its queries have the same fields
DUMP = Layout("MediaWiki's dump", "", passages=False)
DOCS = Layout("WikiExtractor's text", "text", "title", passages=False)
LAYOUTS = (
    Layout("Pyserini", "contents", "title", "id"),
    Layout("FlashRAG and Pyserini", "contents", id="id"),  # the title is the first line
    Layout("KILT", "text", "wikipedia_title", passages=False),
    Layout("BEIR, and Cohere since 2023", "text", "title", "_id"),
    Layout(
        "WikiExtractor, and the Hub's wikipedia",
        "text",
        "title",
        beside=("id", "url"),
        passages=False,
    ),
    Layout("DPR and Contriever", "text", "title", "id", prefix="psgs-"),
    UNTITLED,
    ARTICLES,
)


def layout_of(file: Path) -> Layout | None:
    """A corpus file's layout; None for a file that is in none. Raises the errors of `open_blocks`."""
    if is_parquet(file):
        return by_fields(parquet.schema_of(file).names)
    return by_head(read_head(file))


def by_head(head: bytes) -> Layout | None:
    """The layout that a file's beginning tells."""
    if b"<mediawiki" in head[:1000]:
        return DUMP
    if DOC.match(head.partition(b"\n")[0]):
        return DOCS
    if is_json(head):
        return by_fields(first_record(head.decode("utf-8", "ignore")))
    return by_fields(columns_of(head))


def by_fields(names: Collection[str]) -> Layout | None:
    return next((layout for layout in LAYOUTS if layout.fields <= {*names}), None)


def is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[")


def columns_of(head: bytes) -> list[str]:
    """The columns of a table of passages, which its first line names; none for other files."""
    header = header_of(head)
    return header if by_fields(header) else []


def header_of(head: bytes) -> list[str]:
    """The columns that a table's first line names, a bare word in each of its cells; none without such a line."""
    first = head.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r").split("\t")
    return (
        first
        if len(first) > 1 and all(re.fullmatch(r"[^\W\d][\w-]*", cell) for cell in first)
        else []
    )


def is_query_file(file: Path, layout: Layout | None) -> bool:
    """Whether a file holds a test collection's queries, which look like passages, or its judgements."""
    named = f"{file.parent.name}/{file.name}"
    return bool(QUERIES.search(named)) or (layout == UNTITLED and not CORPUS.search(named))


def first_record(text: str) -> dict:
    """The first object of JSON lines or of a list; where it is longer than the text, the keys that are there."""
    try:
        record = json.JSONDecoder().raw_decode(text, max(text.find("{"), 0))[0]
    except (ValueError, RecursionError):
        return dict.fromkeys(re.findall(r'"(\w+)"\s*:', text))
    return record if isinstance(record, dict) else {}


def known(file: Path) -> Layout:
    """A corpus file's layout; LongtailError for a file that is in none."""
    if layout := layout_of(file):
        return layout
    names = parquet.schema_of(file).names if is_parquet(file) else header_of(read_head(file))
    found = f"columns {', '.join(names)}" if names else f"begins with {read_head(file)[:60]!r}"
    expected = "expected a MediaWiki dump, or fields such as `title` and `text`"
    raise LongtailError(f"{file}: {found}, {expected} (docs/real-data.md lists the layouts)")


class Raw(NamedTuple):
    """One document as its source has it."""

    source_document: str
    source: str
    title: str
    text: str
    file: str
    row: int  # line or row of the file, from 1; the line of an article's title in WikiText; the page's id in a dump
    wikitext: bool = False  # or plain text
    whole: bool = (
        False  # a passage, which is a document as it is: neither cut nor left out for being short
    )


def read_raw(
    name: str, part: Part, rejects: Rejects, redirects: list[Page] | None = None
) -> Iterator[Raw]:
    """Yield the documents of a part, by the reader in the catalogue; redirects are added to `redirects`."""
    reader = catalogue.function(name, "documents")
    yield from (
        reader(name, part, rejects) if redirects is None else reader(name, part, rejects, redirects)
    )


def read_wikipedia(
    name: str, part: Part, rejects: Rejects, redirects: list[Page] | None = None
) -> Iterator[Raw]:
    """Articles of a pages-articles dump, or a corpus in one of LAYOUTS; the file's beginning tells which."""
    layout = known(part.file)
    if layout == DUMP:
        for page in read_articles(part, rejects, redirects):
            yield Raw(
                page.id, name, page.title, page.text, part.file.name, int(page.id), wikitext=True
            )
    else:
        yield from read_documents(name, part, rejects, layout)


class _Meta(msgspec.Struct):
    pile_set_name: str | None = None


@cache
def _row(layout: Layout) -> type:
    """A record's type, whose `text`, `title` and `id` are the fields that the layout names."""
    fields = [
        ("text", str | list[str] | None),  # or paragraphs; null: an empty cell
        (
            "meta",
            _Meta | str | None,
            None,
        ),  # a text or null, in some data sets on the Hub, names no subset
        ("subset", str | None, None),
        ("title", Any, ""),  # anything but a text is no title
        ("id", Any, None),
    ]
    names = {field: getattr(layout, field) or field for field in ("text", "title", "id")}
    return msgspec.defstruct("Row", fields, rename=names)


def read_documents(
    name: str, part: Part, rejects: Rejects, layout: Layout = ARTICLES
) -> Iterator[Raw]:
    """Yield the documents of one file: JSON lines or a JSON list, a table, or Parquet.

    An article's id is a hash of its text, which exact duplicates share; a passage has the id that its source gives it.
    Bad rows go to `rejects` (bad_json, unexpected_layout, not_utf8, no_text, too_long). Raises LongtailError naming the
    file if it is damaged (see `open_lines`).
    """
    is_article = not layout.passages and layout != ARTICLES
    for number, text, row in read_texts(part.file, rejects, layout):
        subset = (isinstance(row.meta, _Meta) and row.meta.pile_set_name) or row.subset or name
        title = row.title if isinstance(row.title, str) else ""
        if layout.text == "contents" and not layout.title and (line := FIRST_LINE.match(text)):
            title, text = (line[1] or line[2]).replace('""', '"'), text[line.end() :]
        elif is_article:
            text = MARKS.sub("", text.removeprefix(f"{title}\n").lstrip("\n"))
        own = f"{layout.prefix}{row.id}" if layout.id and isinstance(row.id, str | int) else ""
        if text.strip():
            whole = layout.passages and len(text) <= A_PASSAGE
            yield Raw(
                own or text_id(text), subset, title, text, part.file.name, number, whole=whole
            )
        elif title and is_article:  # a redirect, or a page that is a template's
            rejects.skip("no_text")
        else:
            rejects.add(part.file, number, "no_text", title or "text is empty")


def text_id(text: str) -> str:
    """128 bits of BLAKE2b of the text, in hexadecimal."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


def read_texts(
    path: Path, rejects: Rejects, layout: Layout = ARTICLES
) -> Iterator[tuple[int, str, Any]]:
    """Yield (line or row, text, the row's other fields) of a file; bad rows go to `rejects` as in `read_documents`."""
    row_type = _row(layout)
    convert, decode = partial(msgspec.convert, type=row_type), msgspec.json.Decoder(row_type).decode
    for number, data in _rows(path, rejects, layout):
        try:
            row = decode(data) if isinstance(data, bytes) else convert(data)
        except msgspec.ValidationError as error:
            rejects.add(path, number, "unexpected_layout", str(error))
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))
        except (msgspec.DecodeError, RecursionError) as error:
            rejects.add(path, number, "bad_json", str(error))
        else:
            text = row.text or ""
            text = "\n".join(filter(None, map(str.strip, text))) if isinstance(text, list) else text
            if len(text) <= bounds.RECORD:
                yield number, text, row
            else:
                rejects.add(path, number, "too_long", bounds.too_long("a document"))


def _rows(path: Path, rejects: Rejects, layout: Layout) -> Iterator[tuple[int, Any]]:
    """Yield (line or row, record) of a file: a line of JSON as it stands, or a dict. Bad ones are rejects."""
    if is_parquet(path):
        counted = enumerate(_parquet_rows(path, layout), start=1)
    elif layout == DOCS:
        counted = _docs(path, rejects)
    elif (head := read_head(path)).lstrip()[:1] == b"[":
        counted = enumerate(
            (json.dumps(one).encode() for one in parse_whole(path)), start=1
        )  # as a line would be
    else:
        columns = [] if is_json(head) else columns_of(head)
        yield from _table(path, rejects, columns) if columns else open_rows(path, rejects)
        return
    for number, record in counted:
        rejects.read += 1
        yield number, record


def _table(
    path: Path, rejects: Rejects, columns: list[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, row) of a table under a header, whose columns are separated by tabs, with quotes as DPR has them."""
    rows = open_rows(path, rejects)
    next(rows)
    rejects.read -= 1
    for number, line in rows:
        try:
            cells = delimited.one_row([line.decode("utf-8").rstrip("\r")], "\t")
        except UnicodeDecodeError as error:
            rejects.add(path, number, "not_utf8", str(error))
            continue
        if cells is None or len(cells) != len(columns):
            had = "a quote out of place" if cells is None else f"{len(cells)} columns"
            expected = f"{had}, expected {', '.join(columns[:-1])} and {columns[-1]}"
            rejects.add(path, number, "unexpected_layout", expected)
        else:
            yield number, dict(zip(columns, cells, strict=True))


def _docs(path: Path, rejects: Rejects) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, title and text) of the articles that WikiExtractor put between <doc> and </doc>."""
    begun, title, article = 0, b"", bytearray()
    for number, line in enumerate(bounded_lines(path), start=1):
        if line and (tag := DOC.fullmatch(line)):
            begun, title, article = number, tag[1], bytearray()
        elif begun and (line is None or len(article) + len(line) > bounds.RECORD):
            rejects.add(path, begun, "too_long", bounds.too_long("an article"))
            begun = 0
        elif begun and line.strip() == b"</doc>":
            try:
                yield (
                    begun,
                    {"title": unescape(title.decode("utf-8")), "text": article.decode("utf-8")},
                )
            except UnicodeDecodeError as error:
                rejects.add(path, begun, "not_utf8", str(error))
            begun = 0
        elif begun:
            article += line.removesuffix(b"\r") + b"\n"
    if begun:
        raise LongtailError(
            f"{path}: cut in the middle of {title!r}, expected </doc> at its end; {AGAIN}"
        )


def _parquet_rows(path: Path, layout: Layout = ARTICLES) -> Iterator[dict[str, Any]]:
    return parquet.foreign_rows(path, partial(used_columns, path, layout), PARQUET_BATCH)


def used_columns(path: Path, layout: Layout, schema: pa.Schema) -> list[str]:
    """The columns of a Parquet file that are read. Raises LongtailError where the texts or titles are no strings."""
    kinds = {field.name: field.type for field in schema}
    strings = "string", "large_string", "string_view"  # also in lists, and as pandas' categories
    texts = [
        name for name, kind in kinds.items() if str(getattr(kind, "value_type", kind)) in strings
    ]
    untitled = layout.title not in texts and not pa.types.is_null(
        kinds.get(layout.title, pa.null())
    )
    wrong = layout.title if untitled else layout.text
    if wrong not in texts:
        kind = f", not of {kinds[wrong]}" if wrong in kinds else ""
        raise LongtailError(
            f"{path}: columns {', '.join(kinds)}, expected a column `{wrong}` of strings{kind}"
        )
    meta = kinds.get("meta", pa.null())
    has_set = pa.types.is_struct(meta) and meta.get_field_index("pile_set_name") >= 0
    names = [name for name in (layout.text, "subset", layout.title) if name in texts]
    return ["meta.pile_set_name"] * has_set + names + [layout.id] * (layout.id in kinds)


def read_wikitext(name: str, part: Part, rejects: Rejects) -> Iterator[Raw]:
    """Yield WikiText's articles (Merity et al., 2017; REPLUG, section 7.2), which together are the whole file.

    Each begins with the blank line before its title, a line ` = Title = ` between blank lines. Bad articles go to
    `rejects` (not_utf8, too_long, and no_title for text before the first title). Raises LongtailError naming the file
    if it is damaged (see `open_lines`) or has no article.
    """
    path = part.file
    if is_parquet(path):  # a line in each row; an empty one stands for " ", WikiText's blank line
        texts = (
            (row["text"] or "").encode().removesuffix(b"\n") or b" " for row in _parquet_rows(path)
        )
        lines = (text if len(text) <= bounds.RECORD else None for text in texts)
    else:
        lines = (
            line and line.removesuffix(b"\r") for line in bounded_lines(path)
        )  # of a file that Windows wrote
    before = rejects.read
    for row, title, article in _articles(lines):
        if title is None and article is not None and not any(map(bytes.strip, article)):
            continue  # blank lines before the first title
        rejects.read += 1
        if article is None:
            rejects.add(path, row, "too_long", bounds.too_long("an article"))
        elif title is None:
            rejects.add(
                path, row, "no_title", "expected a line ' = Title = ' between blank lines first"
            )
        else:
            try:
                text = b"\n".join([*article, b""]).decode("utf-8")
                yield Raw(text_id(text), name, title.decode("utf-8"), text, path.name, row)
            except UnicodeDecodeError as error:
                rejects.add(path, row, "not_utf8", str(error))
    if rejects.read == before:
        raise LongtailError(
            f"{path}: no article, expected lines ' = Title = ' between blank lines; fetch it again"
        )


def _articles(
    lines: Iterable[bytes | None],
) -> Iterator[tuple[int, bytes | None, list[bytes] | None]]:
    """Yield (line of the title, title, lines) of each article; the lines are None for one longer than `bounds.RECORD`.

    What stands before the first title comes first, with None as its title; it may be empty.
    """
    row, title, size, longest = 1, None, 0, bounds.RECORD
    article: list[bytes] | None = []
    before: bytes | None = b""
    for number, (line, after) in enumerate(pairwise(chain(lines, [b""])), start=1):
        blank_around = (
            before is not None and after is not None and not before.strip() and not after.strip()
        )
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
