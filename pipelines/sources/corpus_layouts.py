"""The layouts of corpora: which field has the text, the title and the id. A file's beginning tells its layout."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.streams import is_parquet, read_head
from pipelines.storage import parquet

DOC = re.compile(rb'\s*<doc id="[^"\n]*"[^>\n]* title="([^\n]*)">\s*')
QUERIES = re.compile(r"(?i)(?<![a-z])(queries|query|topics?|qrels?)(?![a-z])")  # of test collections, by their names
CORPUS = re.compile(r"(?i)(?<![a-z])(corpus|passages|collection|docs|documents)(?![a-z])")


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
    Layout("WikiExtractor, and the Hub's wikipedia", "text", "title", beside=("id", "url"), passages=False),
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
    return first if len(first) > 1 and all(re.fullmatch(r"[^\W\d][\w-]*", cell) for cell in first) else []


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
