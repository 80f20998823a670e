"""Wikidata's JSON dumps, read as items with a language's names and their best claims.

A full dump is 1.7 TB of JSON. Most of it is only searched for a few keys, and nothing is parsed that isn't used.
Understands the layout of 2014-15 (entity values with only a numeric id; `[]` for an empty map) and the later one.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikidata_layout import Layout, Statement, Value, layout_of

BLOCK = 1 << 25  # bytes of JSON: about 2,000 entities
TYPE = 64  # bytes at a line's beginning; a property says there that it is one, in either layout
BRACKETS = (b"", b"[", b"]", b",")  # lines of a dump that hold no entity
BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # JSON that can't be read
ID = re.compile(r"Q([1-9][0-9]{0,17})")

# One line's item, and its claims as aligned lists of properties, objects and dates.
NUMBERS, TEXTS = pa.list_(pa.int64()), pa.list_(pa.string())
NAMES = {"row": pa.int64(), "qid": pa.int64(), "label": pa.string(), "aliases": TEXTS, "wiki_title": pa.string()}
ENTITIES = pa.schema(NAMES | {"properties": NUMBERS, "objects": NUMBERS, "dates": TEXTS})


def parse_block(
    file: str, block: Iterable[bytes], properties: tuple[str, ...], rejects: Rejects, language: Language = ENGLISH
) -> tuple[pa.Table, int, str]:
    """Return (table of ENTITIES, number of lines, error in the last line or "") for one block in pieces.

    The table has the items with a label or an article in the language; `row` is the line of the block, from 1. The
    statements of an item without an article are neither parsed nor checked. Bad lines go to `rejects` (bad_json,
    no_entity, unexpected_layout, bad_id), which counts well-formed ones that aren't used as skipped. An error in the
    last line of a file means that the file is cut.
    """
    layout = layout_of(language.codes, language.site, language.nameless)
    text, rows, row = b"".join(block), [], 0
    last = text[text.rfind(b"\n", 0, -1) + 1 :].strip()
    for row, (start, end) in enumerate(_lines(text), start=1):
        is_property = text.find(b'"type":"property"', start, min(start + TYPE, end)) >= 0
        head, links = (b"", -1) if is_property else _head(text, start, end, layout.site_key)
        if not head and not is_property and text[start:end].strip() in BRACKETS:
            continue
        rejects.read += 1
        if is_property:
            rejects.skip("not_an_item")
        elif head and b'"id":' in head and b'"type":' in head and not layout.may_name(head):
            rejects.skip(layout.nameless)
        else:
            try:
                parsed = _parse(text, start, end, head, links, properties, layout)
            except msgspec.ValidationError as error:
                rejects.add(file, row, "unexpected_layout", str(error))
            except BROKEN as error:
                shown = text[start : min(start + 80, end)].decode("utf-8", "replace")
                rejects.add(file, row, "bad_json", f"{error}: {shown}")
            else:
                if item := _item(file, row, parsed, properties, rejects, layout):
                    rows.append(item)
    columns = zip(*rows, strict=True) if rows else [()] * len(ENTITIES)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ENTITIES, strict=True)]
    fault = ""
    try:
        if last not in BRACKETS:
            msgspec.json.decode(last.removesuffix(b","), type=msgspec.Raw)
    except BROKEN as error:
        fault = str(error)
    return pa.table(arrays, schema=ENTITIES), row, fault


def check_read(path: str | Path, rejects: Rejects, end_error: str) -> None:
    """Raise LongtailError if a file that was read to its end is cut, has no entity, or has too many bad lines."""
    if end_error:
        raise LongtailError(f"{path}: cut within its last entity ({end_error}), expected a whole dump; fetch it again")
    if rejects.read == rejects.bad.total():
        raise LongtailError(f"{path}: no entity in it, expected a JSON dump (one entity a line); fetch it again")
    rejects.check()


def _lines(text: bytes) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends. Splitting would copy them, which takes as long as to search them."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        yield start, end
        start = end + 1


def _head(text: bytes, start: int, end: int, site_key: bytes) -> tuple[bytes, int]:
    """The entity in text[start:end] cut before its claims, so with names only, and where its sitelinks begin.

    It is empty if the entity has an article, or its keys don't have a dump's order (labels and aliases, claims,
    sitelinks): such lines are parsed whole. A text can't be mistaken for a key, as its quotes would be escaped.
    """
    links = text.rfind(b'"sitelinks":', start, end)
    if links < 0 or text.find(site_key, links, end) >= 0:
        return b"", links
    names = max(text.find(b'"labels":', start, links), text.find(b'"aliases":', start, links), start)
    claims = text.find(b'"claims":', names, links)
    if claims < 0 or not text.endswith((b"},", b"}"), start, end):
        return b"", links
    return text[start:claims].rstrip(b", \t") + b"}", links


def _parse(
    text: bytes, start: int, end: int, head: bytes, links: int, properties: tuple[str, ...], layout: Layout
) -> msgspec.Struct:
    """The entity in text[start:end], without article and claims if it has no article. Raises msgspec's errors."""
    if head:
        with suppress(*BROKEN):  # then the whole line is parsed, and shows what is wrong if anything is
            return layout.decoder(None).decode(head)
    if links < 0:
        links = max(text.rfind(b'"sitelinks"', start, end), start)
    decoder = layout.decoder(properties if text.find(layout.site_key, links, end) >= 0 else None)
    if text.startswith(b"{", start) and text.endswith(b"},", start, end):
        return decoder.decode(memoryview(text)[start : end - 1])  # most lines are long: they are not copied
    return decoder.decode(text[start:end].strip().removesuffix(b","))


def _item(
    file: str, row: int, parsed: msgspec.Struct, properties: tuple[str, ...], rejects: Rejects, layout: Layout
) -> tuple | None:
    """The line's row of ENTITIES if it is an item with a name in the language."""
    label, title = layout.label(parsed), layout.title(parsed)
    if parsed.redirect:
        rejects.skip("redirect")
    elif not (parsed.id and parsed.type):
        rejects.add(file, row, "no_entity", "it has no id and type")
    elif parsed.type != "item":
        rejects.skip("not_an_item")
    elif not (label or title):
        rejects.skip(layout.nameless)
    elif not ID.fullmatch(parsed.id):
        rejects.add(file, row, "bad_id", parsed.id)
    else:
        pids, objects, dates = [], [], []
        for pid in properties if title and not isinstance(parsed.claims, list) else ():
            if statements := getattr(parsed.claims, pid):
                best = _best_objects(statements, rejects)
                objects += best
                dates += best.values()
                pids += [int(pid[1:])] * len(best)
        names = (int(parsed.id[1:]), label, layout.aliases(parsed, label), title)
        return row, *names, pids, objects, dates
    return None


def _best_objects(statements: list[Statement], rejects: Rejects) -> dict[int, str]:
    """The objects of the best-ranked statements with their dates, chosen like Wikidata's own "truthy" statements.

    Deprecated statements never count. If any statement is preferred, only preferred ones count. An unknown value and
    "no value" are not objects, but a preferred one still outranks normal statements. Of two statements of one object
    the one that begins last has the dates.
    """
    best = "preferred" if "preferred" in [statement.rank for statement in statements] else "normal"
    objects: dict[int, str] = {}
    for statement in statements:
        snak = statement.mainsnak
        value = snak.datavalue and snak.datavalue.value
        if statement.rank != best:
            rejects.skip("deprecated_statement" if statement.rank == "deprecated" else "outranked_statement")
        elif snak.snaktype != "value":
            rejects.skip(f"{snak.snaktype}_statement")
        elif not isinstance(value, Value) or (number := _item_number(value)) is None:
            rejects.skip("not_an_item_statement")
        else:
            objects[number] = max(objects.get(number, ""), statement.dates())
    return objects


def _item_number(value: Value) -> int | None:
    if value.numeric_id is not None and value.entity_type in (None, "item"):
        return value.numeric_id
    match = ID.fullmatch(value.id or "")
    return int(match[1]) if match else None
