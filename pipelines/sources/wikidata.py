"""Wikidata's entity JSON, dumps and the entity API's answers: English names, English Wikipedia article, best answers.

Understands the layout of 2014-15 (entity values with only a numeric id; `[]` where a map is empty) and the later one. A
full dump is 1.7 TB of JSON, so most of it is only searched for a few keys, and no more is parsed than is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import line_spans, open_runs

BLOCK = 1 << 25  # bytes of JSON: some 2,000 entities
TYPE = 64  # bytes of a line within which it says what type of entity it is, in either layout

NAMES = pa.schema(
    {"qid": pa.int64(), "label": pa.string(), "aliases": pa.list_(pa.string()), "wiki_title": pa.string()}
)
CLAIMS = pa.schema({"s": pa.int64(), "p": pa.int64(), "o": pa.int64()})
# An entity as it stands in a line: its names, and the pairs of properties and objects; revision 0 if the line has none.
ENTITIES = pa.schema(
    [
        ("row", pa.int64()),
        ("revision", pa.int64()),
        *NAMES,
        ("properties", pa.list_(pa.int64())),
        ("objects", pa.list_(pa.int64())),
    ]
)


def read_blocks(path: Path) -> Iterator[Iterator[bytes]]:
    """Yield a dump in blocks of whole lines, each in pieces and to be read to its end before the next.

    An answer of the entity API becomes one block, a line for each of its entities. Raises LongtailError when the file
    is damaged or cut.
    """
    blocks = open_runs(path, BLOCK)
    first = next(blocks)
    start = next(first)
    if _ANSWER.match(start):
        yield iter(answer_lines(b"".join([start, *first, *chain.from_iterable(blocks)]), str(path)))
    else:
        yield chain([start], first)
        yield from blocks


def answer_lines(body: bytes, where: str) -> list[bytes]:
    """The entities of an answer of the entity API (`wbgetentities`), one a line as in a dump.

    Raises LongtailError that starts with `where` if the answer is an error or has no entities.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LongtailError(f"{where}: {error}, expected an answer of the entity API; fetch it again") from None
    return [bytes(entity).replace(b"\n", b" ") + b"\n" for entity in answer.entities.values()]


def parse_block(
    file: str, block: Iterable[bytes], properties: tuple[str, ...], rejects: Rejects
) -> tuple[pa.Table, int, str]:
    """The items of a block that have an English label or article (ENTITIES), its number of lines, and its end's fault.

    Bad lines go to `rejects` (bad_json, unexpected_layout, bad_id), what is well-formed but none of ours is counted
    there as skipped, by reason. Rows are the block's lines, from 1. An item without an English article has no objects:
    its statements are not parsed, nor checked. The fault, of a file's last block, says that the file is cut.
    """
    full, names = _decoder(properties), _decoder(None)
    rows: list[tuple] = []
    row, last = 0, (b"", 0, 0)
    for row, (text, start, end) in enumerate(line_spans(block), start=1):
        is_property = text.find(b'"type":"property"', start, min(start + TYPE, end)) >= 0
        head, line = b"" if is_property else _head(text, start, end), b""
        if not head and not is_property:
            line = text[start:end].strip()
            if line in (b"", b"[", b"]", b","):
                last = (b"", 0, 0) if line == b"]" else last
                continue
        rejects.read += 1
        last = text, start, end
        if is_property or (head and b'"en"' not in head and b'"mul"' not in head):
            rejects.skip("not_an_item" if is_property else "no_english")
            continue
        try:
            parsed = _parse_head(head, names) if head else None
            if parsed is None:
                line = line or text[start:end].strip()
                article = text.find(b'"enwiki"', max(text.rfind(b'"sitelinks"', start, end), start), end) >= 0
                parsed = (full if article else names).decode(line.removesuffix(b","))
            elif revision := _REVISION.search(text, text.rfind(b'"sitelinks":', start, end), end):
                parsed.lastrevid = int(revision[1])
        except msgspec.ValidationError as error:
            rejects.add(file, row, "unexpected_layout", str(error))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            shown = text[start : min(start + 80, end)].decode("utf-8", "replace")
            rejects.add(file, row, "bad_json", f"{error}: {shown}")
        else:
            if parsed.redirects:
                rejects.skip("redirect")  # the id asked for; the item counts under its own
            label, title = _names(parsed)
            if reason := _unusable(parsed, label or title):
                rejects.skip(reason)
            elif not parsed.id.startswith("Q") or not parsed.id[1:].isdecimal():
                rejects.add(file, row, "bad_id", parsed.id)
            else:
                pids, objects = _answers(parsed.claims, properties, rejects) if title else ((), ())
                qid = int(parsed.id[1:])
                rows.append((row, parsed.lastrevid, qid, label, _aliases(parsed, label), title, pids, objects))
    columns = zip(*rows, strict=True) if rows else [()] * len(ENTITIES)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ENTITIES, strict=True)]
    return pa.table(arrays, schema=ENTITIES), row, _fault(last[0][last[1] : last[2]].strip())


def check_read(path: Path, rejects: Rejects, fault: str) -> None:
    """Raise LongtailError when a file read to its end is cut, had no entity in it, or too many bad ones."""
    if fault:
        raise LongtailError(f"{path}: cut within its last entity ({fault}), expected a whole dump; fetch it again")
    if rejects.read == len(rejects.rows):
        raise LongtailError(f"{path}: no entity in it, expected a JSON dump (one entity a line); fetch it again")
    rejects.check()


# How an answer of the entity API begins; a dump begins with "[" or an entity, whose first key is its type or id.
_ANSWER = re.compile(rb'\s*\{\s*"(entities|success|warnings|error)"')
_REVISION = re.compile(rb'"lastrevid"\s*:\s*(\d+)')


# The layout, as far as it is used; msgspec skips everything else unparsed.
class _Text(msgspec.Struct, gc=False):
    value: str


class _Label(msgspec.Struct, gc=False):
    en: _Text | None = None
    mul: _Text | None = None  # since 2024: one name for all languages, valid where English has none of its own


class _Aliases(msgspec.Struct, gc=False):
    en: list[_Text] = []
    mul: list[_Text] = []


class _Article(msgspec.Struct, gc=False):
    title: str


class _Sitelinks(msgspec.Struct, gc=False):
    enwiki: _Article | None = None


class _Value(msgspec.Struct, gc=False):
    entity_type: str | None = msgspec.field(default=None, name="entity-type")
    numeric_id: int | None = msgspec.field(default=None, name="numeric-id")
    id: str | None = None


class _Data(msgspec.Struct, gc=False):
    value: _Value | str | int | float | bool | list | None = None


class _Snak(msgspec.Struct, gc=False):
    snaktype: str
    datavalue: _Data | None = None


class _Statement(msgspec.Struct, gc=False):
    mainsnak: _Snak
    rank: str = "normal"


class _Answer(msgspec.Struct):
    entities: dict[str, msgspec.Raw]


@cache
def _decoder(properties: tuple[str, ...] | None) -> msgspec.json.Decoder:
    """A decoder of one entity, with article and answers if `properties` are given; `[]` may stand for an empty map."""
    fields: list = [("id", str, ""), ("type", str, "item"), ("lastrevid", int, 0)]
    fields += [("redirect", str | None, None), ("redirects", msgspec.Raw, msgspec.Raw())]  # merged: in dump, in answer
    fields += [("missing", msgspec.Raw, msgspec.Raw())]  # deleted
    fields += [("labels", _Label | list, msgspec.field(default_factory=_Label))]
    fields += [("aliases", _Aliases | list, msgspec.field(default_factory=_Aliases))]
    if properties is not None:
        claims = msgspec.defstruct("_Claims", [(pid, list[_Statement], []) for pid in properties], gc=False)
        fields += [("sitelinks", _Sitelinks | list, msgspec.field(default_factory=_Sitelinks))]
        fields += [("claims", claims | list, msgspec.field(default_factory=claims))]
    return msgspec.json.Decoder(msgspec.defstruct("_Entity", fields, gc=False))


def _head(text: bytes, start: int, end: int) -> bytes:
    """The entity in a line with its names alone, cut before its claims; empty if it has an article or can't be cut.

    In a dump an entity's labels and aliases stand before its claims, and these before its links to Wikipedias; any
    other order, and a line that doesn't end as an entity does, are for the decoder. A key can't be taken for a text
    that reads the same: in a text, its quotes would be escaped.
    """
    names = max(text.find(b'"labels":', start, end), text.find(b'"aliases":', start, end), start)
    claims = text.find(b'"claims":', names, end)
    links = text.rfind(b'"sitelinks":', claims, end) if claims > 0 else -1
    if links < 0 or text.find(b'"enwiki"', links, end) >= 0 or not text.endswith((b"},", b"}"), start, end):
        return b""
    return text[start:claims].rstrip(b", \t") + b"}"


def _parse_head(head: bytes, names: msgspec.json.Decoder) -> msgspec.Struct | None:
    """None where the head is no entity: what is wrong, if anything, shows in the whole line."""
    try:
        return names.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _fault(line: bytes) -> str:
    """What keeps a line, with no closing bracket behind it, from being whole JSON; "" if nothing."""
    try:
        if line:
            msgspec.json.decode(line.removesuffix(b","), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return str(error)
    return ""


def _names(parsed: msgspec.Struct) -> tuple[str | None, str | None]:
    """English label and title of the English article."""
    label = (parsed.labels.en or parsed.labels.mul) if isinstance(parsed.labels, _Label) else None
    sitelinks = getattr(parsed, "sitelinks", None)
    article = sitelinks.enwiki if isinstance(sitelinks, _Sitelinks) else None
    return (label.value or None) if label else None, article.title if article else None


def _unusable(parsed: msgspec.Struct, name: str | None) -> str | None:
    """Why a well-formed line is no item with an English label or article; None if it is one."""
    if parsed.missing:
        return "missing"
    if parsed.redirect:
        return "redirect"
    if parsed.type != "item":
        return "not_an_item"
    return None if name else "no_english"


def _aliases(parsed: msgspec.Struct, label: str | None) -> Sequence[str]:
    if not isinstance(parsed.aliases, _Aliases) or not (parsed.aliases.en or parsed.aliases.mul):
        return ()  # as most have none: not one more list for the garbage collector to look at
    texts = {text.value: None for text in [*parsed.aliases.en, *parsed.aliases.mul]}  # each once, in their order
    return [text for text in texts if text and text != label]


def _answers(claims: msgspec.Struct | list, properties: tuple[str, ...], rejects: Rejects) -> tuple[list, list]:
    """Properties and objects of the best statements, side by side."""
    pids: list[int] = []
    objects: list[int] = []
    for pid in () if isinstance(claims, list) else properties:
        if statements := getattr(claims, pid):
            best = _best_objects(statements, rejects)
            objects += best
            pids += [int(pid[1:])] * len(best)
    return pids, objects


def _best_objects(statements: list[_Statement], rejects: Rejects) -> list[int]:
    """The objects of the best-ranked statements, as Wikidata's own "truthy" statements are chosen.

    Deprecated ones never count; where any is preferred, only those do. An unknown or no value is no answer, but a
    preferred one still outranks the normal ones.
    """
    ranks = [statement.rank for statement in statements]
    best = "preferred" if "preferred" in ranks else "normal"
    objects: list[int] = []
    for statement, rank in zip(statements, ranks, strict=True):
        snak = statement.mainsnak
        value = snak.datavalue.value if snak.datavalue else None
        if rank != best:
            rejects.skip("deprecated_statement" if rank == "deprecated" else "outranked_statement")
        elif snak.snaktype != "value":
            rejects.skip(f"{snak.snaktype}_statement")
        elif not isinstance(value, _Value) or (number := _item_number(value)) is None:
            rejects.skip("not_an_item_statement")
        else:
            objects.append(number)
    return list(dict.fromkeys(objects))


def _item_number(value: _Value) -> int | None:
    if value.numeric_id is not None and value.entity_type in (None, "item"):
        return value.numeric_id
    if value.id and value.id.startswith("Q") and value.id[1:].isdecimal():
        return int(value.id[1:])
    return None
