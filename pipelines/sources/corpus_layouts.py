"""The layouts of corpora as tools and data sets write them: which field has the text, the title and the id.

A file's beginning tells its layout, never its name.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.streams import is_parquet, read_head
from pipelines.storage import parquet

DOC = re.compile(rb'\s*<doc id="[^"\n]*"(?: \w+="[^"\n]*"){,2} title="(.*?)"(?: \w+="[^"\n]*"){,9}>\s*')
PASSAGE_WORDS = 12  # that some passage of a table without a header has, and no query
QUERIES = re.compile(r"(?i)(?<![a-z])(queries|query|topics?|qrels?)(?![a-z])")  # of test collections, by their names
CORPUS = re.compile(r"(?i)(?<![a-z])(corpus|passages|collection|docs|documents)(?![a-z])")


class Layout(NamedTuple):
    """The fields of a record, or the columns of a line. A file has the first of LAYOUTS whose fields it all has."""

    tools: str  # who writes it
    text: str
    title: str = ""
    id: str = ""
    beside: tuple[str, ...] = ()  # further fields that tell the layout
    passages: bool = True  # or articles, which are cut into documents and identified by their text
    prefix: str = ""  # of a document's id

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
    Layout("Pyserini of TREC CAsT", "contents", id="docid"),
    Layout("KILT", "text", "wikipedia_title", passages=False),
    Layout("sentence-transformers' simplewiki", "paragraphs", "title", passages=False),
    Layout("2WikiMultihopQA", "sentences", "title", "id"),
    Layout("LangChain", "page_content"),
    Layout("MS MARCO's documents", "body", "title", "docid", passages=False),
    Layout("ColBERT", "passage", "title", "pid"),
    Layout("MS MARCO", "passage", id="pid"),
    Layout("passages as content", "content", "title", "id"),
    Layout("passages as body", "body", "title", "id"),
    Layout("articles as content", "content", "title", passages=False),
    Layout("BEIR, and Cohere since 2023", "text", "title", "_id"),
    Layout("Tevatron", "text", "title", "docid"),
    Layout("Cohere", "text", "title", "id", ("paragraph_id",)),
    Layout("Atlas", "text", "title", "id", ("section",)),
    Layout("WikiExtractor, and the Hub's wikipedia", "text", "title", beside=("id", "url"), passages=False),
    Layout("DPR and Contriever", "text", "title", "id", prefix="psgs-"),
    UNTITLED,
    ARTICLES,
)
NAMES = frozenset().union(*(layout.fields for layout in LAYOUTS))
COLUMNS = {2: ["pid", "passage"], 3: ["pid", "passage", "title"], 4: ["docid", "url", "title", "body"]}  # no header


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
    """The columns of a table: those that its first line names, or of passages without such a line; none for others."""
    first, *rows = (line.split("\t") for line in head.decode("utf-8", "replace").replace("\r\n", "\n").split("\n", 40))
    if len(first) > 1 and by_fields(first):
        return first
    columns, rows = COLUMNS.get(len(first), []), [first, *rows[:-1]]
    ids, longest = {cells[0] for cells in rows}, max(len(cell.split()) for cells in rows for cell in cells)
    are_rows = all(len(cells) == len(columns) and re.fullmatch(r"\S{1,100}", cells[0]) for cells in rows)
    if not are_rows or header_of(head) or len(ids) < len(rows) or longest < PASSAGE_WORDS:
        return []  # labels repeat, and ids do not
    if len(columns) == 4 and not all("://" in cells[1] for cells in rows):
        return []
    swapped = len(columns) == 3 and sum(len(cells[2]) - len(cells[1]) for cells in rows) > 0
    return ["pid", "title", "passage"] if swapped else columns


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
    if is_parquet(file):
        found = f"columns {', '.join(parquet.schema_of(file).names)}"
    else:
        head = read_head(file)
        found = f"columns {', '.join(header_of(head))}" if header_of(head) else f"begins with {head[:60]!r}"
    raise LongtailError(
        f"{file}: {found}, expected a MediaWiki dump, or fields such as `title` and `text` (data/README.md lists the "
        "layouts)"
    )
