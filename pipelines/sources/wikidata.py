"""Wikidata's JSON dumps, read as items with a language's names and their best claims.

A full dump is 1.7 TB of JSON. Most of it is only searched for a few keys, and nothing is parsed
that isn't used (wikidata_layout.py).
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from pipelines.errors import BROKEN_JSON, LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikidata_layout import (
    Data,
    EntityLayout,
    Statement,
    Value,
    entity_layout,
)
from pipelines.tables.table import INT64, STRING

BLOCK_BYTES = 1 << 25  # bytes of JSON: about 2,000 entities
TYPE_BYTES = 64  # a property says in its line's first bytes that it is one, in either layout
BRACKETS = (b"", b"[", b"]", b",")  # lines of a dump that hold no entity
ID = re.compile(r"Q([1-9][0-9]{0,17})")

NUMBERS = pa.list_(INT64)
# An item, and its claims as aligned lists of properties and objects.
ENTITIES = pa.schema(
    {
        "row": INT64,
        "qid": INT64,
        "label": STRING,
        "aliases": pa.list_(STRING),
        "wiki_title": STRING,
        "properties": NUMBERS,
        "objects": NUMBERS,
    }
)


class Block(NamedTuple):
    """What was read of a block of a dump.

    `fault` is an error in the last line, or "". In a file's last line it means that the file is
    cut.
    """

    table: pa.Table  # of ENTITIES
    lines: int
    fault: str


class Line(NamedTuple):
    """A line of a block: block[start:end]. Copying it would take as long as searching it."""

    block: bytes
    start: int
    end: int

    def is_property(self) -> bool:
        end = min(self.start + TYPE_BYTES, self.end)
        return self.block.find(b'"type":"property"', self.start, end) >= 0

    def is_bracket(self) -> bool:
        if self.block.find(b"{", self.start, self.end) >= 0:
            return False
        return self.block[self.start : self.end].strip() in BRACKETS

    def has_article(self, site_key: bytes) -> bool:
        links = max(self.block.rfind(b'"sitelinks"', self.start, self.end), self.start)
        return self.block.find(site_key, links, self.end) >= 0

    def names_only(self) -> bytes:
        """The entity cut before its claims.

        It is empty if the keys don't have a dump's order (labels and aliases, claims, sitelinks).
        A text can't be mistaken for a key, as its quotes would be escaped.
        """
        links = self.block.rfind(b'"sitelinks":', self.start, self.end)
        if links < 0:
            return b""
        labels = self.block.find(b'"labels":', self.start, links)
        aliases = self.block.find(b'"aliases":', self.start, links)
        claims = self.block.find(b'"claims":', max(labels, aliases, self.start), links)
        if claims < 0 or not self.block.endswith((b"},", b"}"), self.start, self.end):
            return b""
        return self.block[self.start : claims].rstrip(b", \t") + b"}"

    def whole(self) -> bytes | memoryview:
        """The entity, without the comma behind it."""
        if self.block.endswith(b"},", self.start, self.end):
            return memoryview(self.block)[self.start : self.end - 1]
        return self.block[self.start : self.end].strip().removesuffix(b",")


def parse_block(
    file: str,
    block: Iterable[bytes],
    properties: tuple[str, ...],
    rejects: Rejects,
    language: Language = ENGLISH,
) -> Block:
    """Read one block, which comes in pieces.

    The table has the items with a label or an article in the language; `row` is the line of the
    block, from 1. The statements of an item without an article are neither parsed nor checked. Bad
    lines go to `rejects` (bad_json, no_entity, unexpected_layout, bad_id), which counts well-formed
    ones that aren't used as skipped.
    """
    layout = entity_layout(language.codes, language.site, language.nameless, properties)
    text = b"".join(block)
    items = []
    row = 0
    for row, line in enumerate(_lines(text), start=1):
        if line.is_bracket():
            continue
        rejects.read += 1
        if line.is_property():
            rejects.skip("not_an_item")
            continue
        try:
            entity = _parse(line, layout)
        except msgspec.ValidationError as error:
            rejects.add(file, row, "unexpected_layout", str(error))
        except BROKEN_JSON as error:
            shown = text[line.start : min(line.start + 80, line.end)].decode("utf-8", "replace")
            rejects.add(file, row, "bad_json", f"{error}: {shown}")
        else:
            if entity is None:
                rejects.skip(layout.nameless)
                continue
            item = _item(file, row, entity, rejects, layout)
            if item is not None:
                items.append(item)

    return Block(_table(items), row, _fault(text))


def _table(items: list[tuple]) -> pa.Table:
    if not items:
        return ENTITIES.empty_table()
    columns = zip(*items, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ENTITIES, strict=True)]
    return pa.table(arrays, schema=ENTITIES)


def _fault(text: bytes) -> str:
    """What is wrong with the JSON in the text's last line; "" if nothing is."""
    last_line = text[text.rfind(b"\n", 0, -1) + 1 :].strip()
    if last_line in BRACKETS:
        return ""
    try:
        msgspec.json.decode(last_line.removesuffix(b","), type=msgspec.Raw)
    except BROKEN_JSON as error:
        return str(error)
    return ""


def check_read(path: str | Path, rejects: Rejects, fault: str) -> None:
    """Raise LongtailError if a file that was read to its end is cut, has no entity, or has too many
    bad lines.

    `fault` is the fault of its last block.
    """
    if fault:
        raise LongtailError(
            f"{path}: cut within its last entity ({fault}), expected a whole dump; fetch it again"
        )
    if rejects.read == rejects.bad.total():
        raise LongtailError(
            f"{path}: no entity in it, expected a JSON dump (one entity a line); fetch it again"
        )
    rejects.check()


def _lines(text: bytes) -> Iterator[Line]:
    start = 0
    while start < len(text):
        end = text.find(b"\n", start)
        if end < 0:
            end = len(text)
        yield Line(text, start, end)
        start = end + 1


def _parse(line: Line, layout: EntityLayout) -> msgspec.Struct | None:
    """The entity of a line, without article and claims if it has no article; None if it has no name
    either. Raises msgspec's errors.
    """
    if line.has_article(layout.site_key):
        return layout.decode(line.whole())

    names = line.names_only()
    is_entity = b'"id":' in names and b'"type":' in names
    if is_entity and not any(code_key in names for code_key in layout.code_keys):
        return None
    if names:
        # if it is broken, the whole line is parsed, and shows what is wrong if anything is
        with suppress(*BROKEN_JSON):
            return layout.decode_names(names)
    return layout.decode_names(line.whole())


def _item(
    file: str,
    row: int,
    entity: msgspec.Struct,
    rejects: Rejects,
    layout: EntityLayout,
) -> tuple | None:
    """The item as a row of ENTITIES; None for what is none, which is skipped or a reject."""
    label = layout.label(entity)
    title = layout.title(entity)
    if entity.redirect:
        rejects.skip("redirect")
    elif not (entity.id and entity.type):
        rejects.add(file, row, "no_entity", "it has no id and type")
    elif entity.type != "item":
        rejects.skip("not_an_item")
    elif not (label or title):
        rejects.skip(layout.nameless)
    elif not ID.fullmatch(entity.id):
        rejects.add(file, row, "bad_id", entity.id)
    else:
        aliases = layout.aliases(entity, label)
        pids: list[int] = []
        objects: list[int] = []
        if title:
            for pid in layout.properties:
                statements = getattr(entity.claims, pid, ())
                if not statements:
                    continue
                best = _best_objects(statements, rejects)
                pids += [int(pid[1:])] * len(best)
                objects += best
        return row, int(entity.id[1:]), label, aliases, title, pids, objects

    return None


def _best_objects(statements: list[Statement], rejects: Rejects) -> list[int]:
    """The objects of the best-ranked statements, chosen like Wikidata's own "truthy" statements.

    Deprecated statements never count. If any statement is preferred, only preferred ones count. An
    unknown value and "no value" are not objects, but a preferred one still outranks normal
    statements.
    """
    ranks = [statement.rank for statement in statements]
    best_rank = "preferred" if "preferred" in ranks else "normal"
    objects = []

    for statement in statements:
        snak = statement.mainsnak
        if statement.rank == "deprecated":
            rejects.skip("deprecated_statement")
        elif statement.rank != best_rank:
            rejects.skip("outranked_statement")
        elif snak.snaktype != "value":
            rejects.skip(f"{snak.snaktype}_statement")
        else:
            item = _item_number(snak.datavalue)
            if item is None:
                rejects.skip("not_an_item_statement")
            else:
                objects.append(item)

    return objects


def _item_number(data: Data | None) -> int | None:
    """The number of the item that is a value, 42 for Q42; None for other values."""
    if data is None or not isinstance(data.value, Value):
        return None
    value = data.value
    if value.numeric_id is not None and value.entity_type in (None, "item"):
        return value.numeric_id
    match = ID.fullmatch(value.id or "")
    return int(match[1]) if match else None
