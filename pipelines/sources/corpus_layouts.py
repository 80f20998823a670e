"""The layouts of a text corpus's files, told by their beginnings: who writes them, and where the
text stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import LongtailError
from pipelines.sources.question_files import read_records
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import is_parquet, read_head
from pipelines.storage import parquet

DOC = re.compile(rb'\s*<doc id="[^"\n]*"[^>\n]* title="([^\n]*)">\s*')
# names of the files of test collections
QUERIES = re.compile(r"(?i)(?<![a-z])(queries|query|topics?|qrels?)(?![a-z])")
CORPUS = re.compile(r"(?i)(?<![a-z])(corpus|passages|collection|docs|documents)(?![a-z])")
# Fields of records that are parts of articles: the part's number or id, such as paragraph_id or
# chunkIndex, its section, and the id of the article.
PART_NUMBER = re.compile(
    r"(?i)(start_?)?(paragraph|para|chunk|passage|psg|section|segment|snippet)"
    r"_?(id|idx|index|no|nr|num|number)"
)
SECTION = re.compile(r"(?i)section(_?(title|name|heading))?|paragraph|chunk")
ARTICLE_ID = re.compile(r"(?i)(wiki|wikipedia|wikidata|page|article|doc|document|cur)_?id")
RECORDS_COMPARED = 200  # of a file's beginning
DPR_PREFIX = "psgs-"  # of the ids of documents that are DPR's passages


class Layout(NamedTuple):
    """The fields of a record, or the columns of a line. A file has the first of LAYOUTS whose
    fields it all has.
    """

    tools: str  # who writes it; it tells layouts with the same fields apart
    text: str
    title: str = ""
    id: str = ""
    passages: bool = True  # or articles, which are cut into documents and identified by their text
    prefix: str = ""  # of a document's id
    beside: tuple[str, ...] = ()  # further fields that tell the layout
    part: str = ""  # the number of a passage in its article, whose id is `id`

    @property
    def fields(self) -> set[str]:
        names = {self.text, self.title, self.id, *self.beside}
        return names - {""}


PLAIN = Layout("JSON lines", "text", "title", passages=False)
UNTITLED = Layout("BEIR without titles", "text", id="_id")  # its queries have the same fields
DUMP = Layout("MediaWiki's dump", "", passages=False)
DOCS = Layout("WikiExtractor's text", "text", "title", passages=False)
LAYOUTS = (
    Layout("Pyserini", "contents", "title", "id"),
    Layout("FlashRAG and Pyserini", "contents", id="id"),  # the title is the first line
    Layout("KILT", "text", "wikipedia_title", passages=False),
    Layout("BEIR, and Cohere since 2023", "text", "title", "_id"),
    Layout("Tevatron, MIRACL and Mr. TyDi", "text", "title", "docid"),
    Layout("wiki_snippets", "passage_text", "article_title", "_id"),
    Layout(
        "WikiExtractor, and the Hub's wikipedia",
        "text",
        "title",
        beside=("id", "url"),
        passages=False,
    ),
    Layout("DPR and Contriever", "text", "title", "id", prefix=DPR_PREFIX),
    UNTITLED,
    PLAIN,
)


def require_layout(file: Path) -> Layout:
    """A corpus file's layout; LongtailError for a file that is in none."""
    layout = layout_of(file)
    if layout is not None:
        return layout._replace(passages=True, id="id") if _are_parts(file, layout) else layout
    names = parquet.schema_of(file).names if is_parquet(file) else header_of(read_head(file))
    content = f"columns {', '.join(names)}" if names else f"begins with {read_head(file)[:60]!r}"
    raise LongtailError(
        f"{file}: {content}, expected a MediaWiki dump, or fields such as `title` and `text` "
        "(docs/passages.md lists the layouts)"
    )


def _are_parts(file: Path, layout: Layout) -> bool:
    """Whether a title of a file's first articles has several ids: then they are passages."""
    if layout.passages or "id" not in layout.beside:
        return False
    id_by_title: dict[str, str] = {}
    rejects = Rejects(1.0)
    for _, record in islice(read_records(file, (layout.title, "id"), rejects), RECORDS_COMPARED):
        id_ = str(record.get("id"))
        if record.get(layout.title) and id_by_title.setdefault(record[layout.title], id_) != id_:
            return True
    return False


def layout_of(file: Path) -> Layout | None:
    """A corpus file's layout, or None. Raises the errors of `open_blocks`."""
    if is_parquet(file):
        return by_fields(parquet.schema_of(file).names)
    return by_head(read_head(file))


def by_head(head: bytes) -> Layout | None:
    """The layout that a file's beginning tells."""
    if b"<mediawiki" in head[:1000]:
        return DUMP
    first_line, _, _ = head.partition(b"\n")
    if DOC.match(first_line):
        return DOCS
    if is_json(head):
        return by_fields(first_record(head.decode("utf-8", "ignore")))
    return by_fields(columns_of(head))


def by_fields(names: Collection[str]) -> Layout | None:
    """The layout of records with these fields; parts of articles are passages."""
    for layout in LAYOUTS:
        if layout.fields <= set(names):
            return _of_parts(layout, names)
    return None


def _of_parts(layout: Layout, names: Collection[str]) -> Layout:
    """A layout as one of passages, if a field says that a record is a part of an article."""
    numbers = sorted(name for name in names if PART_NUMBER.fullmatch(name))
    if layout.id in ("_id", "docid") or layout.text == "contents":
        return layout
    if not numbers and not any(SECTION.fullmatch(name) for name in names):
        return layout

    layout = layout._replace(passages=True)
    article_ids = sorted(name for name in names if ARTICLE_ID.fullmatch(name))
    if "id" in names and (article_ids or not numbers):
        return layout._replace(id="id")
    if not numbers:
        return layout
    if "id" in names or article_ids:
        article_id = "id" if "id" in names else article_ids[0]
        return layout._replace(id=article_id, part=numbers[0])
    return layout._replace(id=numbers[0])


def is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[")


def columns_of(head: bytes) -> list[str]:
    """The columns of a table of passages, which its first line names; none for other files."""
    header = header_of(head)
    return header if by_fields(header) else []


def header_of(head: bytes) -> list[str]:
    """The columns that a table's first line names, a bare word in each of its cells; none without
    such a line.
    """
    first_line, _, _ = head.partition(b"\n")
    cells = first_line.decode("utf-8", "replace").rstrip("\r").split("\t")
    if len(cells) == 1:
        return []
    are_words = all(re.fullmatch(r"[^\W\d][\w-]*", cell) for cell in cells)
    return cells if are_words else []


def is_query_file(file: Path, layout: Layout | None) -> bool:
    """Whether a file holds a test collection's queries, which look like passages, or its
    judgements.
    """
    name = f"{file.parent.name}/{file.name}"
    if QUERIES.search(name):
        return True
    return layout == UNTITLED and not CORPUS.search(name)


def first_record(text: str) -> dict:
    """The first object of JSON lines or of a list; where it is longer than the text, the keys that
    are there.
    """
    begin = max(text.find("{"), 0)
    try:
        record, _ = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        return dict.fromkeys(re.findall(r'"(\w+)"\s*:', text))
    return record if isinstance(record, dict) else {}
