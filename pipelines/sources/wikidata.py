"""Wikidata's JSON dumps, read as items with a language's names and their best claims.

A full dump is 1.7 TB of JSON. Most of it is only searched for a few keys, and nothing is parsed
that isn't used. Understands the layout of 2014-15 (entity values with only a numeric id; `[]` for
an empty map) and the later one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, MUL, Language
from pipelines.sources.rejects import Rejects

BLOCK_BYTES = 1 << 25  # bytes of JSON: about 2,000 entities
TYPE_BYTES = 64  # a property says in its line's first bytes that it is one, in either layout
BRACKETS = (b"", b"[", b"]", b",")  # lines of a dump that hold no entity
BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # JSON that can't be read
ID = re.compile(r"Q([1-9][0-9]{0,17})")

NUMBERS = pa.list_(pa.int64())
TEXTS = pa.list_(pa.string())
# An item, and its claims as aligned lists of properties, objects and dates.
ENTITIES = pa.schema(
    {
        "row": pa.int64(),
        "qid": pa.int64(),
        "label": pa.string(),
        "aliases": TEXTS,
        "wiki_title": pa.string(),
        "properties": NUMBERS,
        "objects": NUMBERS,
        "dates": TEXTS,
    }
)

Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
QUALIFIERS = {"start": "P580", "end": "P582", "point": "P585"}  # when a statement holds
# The layout of 2014-15 fills years up with zeros.
TIME = re.compile(r"([+-])0*(\d{1,4})-(\d\d)-(\d\d)T")
DATE_PARTS = {  # precision -> parts of the date that are known: year, month, day
    9: 1,
    10: 2,
    11: 3,
    12: 3,
    13: 3,
    14: 3,
}


# msgspec skips everything else unparsed.
class Text(msgspec.Struct, gc=False):
    value: str


class Article(msgspec.Struct, gc=False):
    title: str


class Value(msgspec.Struct, gc=False):
    entity_type: str | None = msgspec.field(default=None, name="entity-type")
    numeric_id: Int64 | None = msgspec.field(default=None, name="numeric-id")
    id: str | None = None
    time: str = ""
    precision: int = 0  # of the time


class Data(msgspec.Struct, gc=False):
    value: Value | str | int | float | bool | list | None = None


class Snak(msgspec.Struct, gc=False):
    snaktype: str
    datavalue: Data | None = None


class Qualifier(msgspec.Struct, gc=False):
    datavalue: Data | None = None  # null: unknown, or no value

    def date(self) -> str:
        """The date by `iso`, "" for what is none."""
        if self.datavalue is None or not isinstance(self.datavalue.value, Value):
            return ""
        value = self.datavalue.value
        return iso(value.time, value.precision)


Qualifiers = msgspec.defstruct(
    "Qualifiers", [(pid, list[Qualifier], []) for pid in QUALIFIERS.values()], gc=False
)


class Statement(msgspec.Struct, gc=False):
    mainsnak: Snak
    rank: str = "normal"
    qualifiers: Qualifiers | list = []

    def dates(self) -> str:
        """When it holds, as "START/END/POINT", each by `iso` or empty; "" if all are.

        Of several dates of one qualifier the last counts.
        """
        dates = []
        for pid in QUALIFIERS.values():
            qualifiers = getattr(self.qualifiers, pid, ())
            dates.append(max((qualifier.date() for qualifier in qualifiers), default=""))
        return "/".join(dates) if any(dates) else ""


def iso(time: str, precision: int) -> str:
    """Wikidata's time as YYYY, YYYY-MM or YYYY-MM-DD (with - before Christ), as far as it is known.

    It is "" if it is not known to the year.
    """
    match = TIME.match(time)
    part_count = DATE_PARTS.get(precision, 0)
    if match is None or part_count == 0:
        return ""
    sign, year, month, day = match.groups()
    parts = [year.zfill(4)]
    for part in (month, day)[: part_count - 1]:
        if part != "00":
            parts.append(part)
    return sign.strip("+") + "-".join(parts)


class EntityLayout:
    """How an entity's names are read in one language: by its codes in Wikidata and by its
    Wikipedia's name.
    """

    def __init__(self, codes: tuple[str, ...], site: str, nameless: str) -> None:
        self.nameless = nameless
        self.site_key = f'"{site}"'.encode()
        self.code_keys = [f'"{code}"'.encode() for code in codes]

        names = [f"name{i}" for i in range(len(codes))]  # fields of the structs, one a code
        codes_of_names = dict(zip(names, codes, strict=True))
        labels = [(name, Text | None, None) for name in names]
        aliases = [(name, list[Text], []) for name in names]
        self._labels = msgspec.defstruct("Labels", labels, rename=codes_of_names, gc=False)
        self._aliases = msgspec.defstruct("Aliases", aliases, rename=codes_of_names, gc=False)
        article = [("article", Article | None, None)]
        self._sitelinks = msgspec.defstruct(
            "Sitelinks", article, rename={"article": site}, gc=False
        )
        self._names = attrgetter(*names)
        # `mul`, since 2024, is one name for all languages: it counts if there is no other, and not
        # as an alias
        self._further_names = names[1 : codes.index(MUL)]
        self.decoder = cache(self._decoder)

    def _decoder(self, properties: tuple[str, ...] | None) -> msgspec.json.Decoder:
        """A decoder of one entity: with its article and its claims of `properties`, or of its names
        only for None.
        """
        fields: list[tuple] = [
            ("id", str, ""),
            ("type", str, ""),
            ("redirect", str | None, None),  # the entity was merged into another
            _map_field("labels", self._labels),
            _map_field("aliases", self._aliases),
        ]
        if properties is not None:
            claim_fields = [(pid, list[Statement], []) for pid in properties]
            claims = msgspec.defstruct("Claims", claim_fields, gc=False)
            fields.append(_map_field("sitelinks", self._sitelinks))
            fields.append(_map_field("claims", claims))

        return msgspec.json.Decoder(msgspec.defstruct("Entity", fields, gc=False))

    def label(self, entity: msgspec.Struct) -> str | None:
        """The label in the first of the codes that has one."""
        if isinstance(entity.labels, list):
            return None
        for label in self._names(entity.labels):
            if label:
                return label.value or None
        return None

    def title(self, entity: msgspec.Struct) -> str | None:
        """The title of the Wikipedia article."""
        sitelinks = getattr(entity, "sitelinks", None)
        article = getattr(sitelinks, "article", None)  # an empty map may be a list
        return article.title if article else None

    def aliases(self, entity: msgspec.Struct, label: str | None) -> Sequence[str]:
        """Other names than the label, each once: the labels in the other codes but `mul`, then all
        codes' aliases.
        """
        aliases = ()
        if not isinstance(entity.aliases, list):
            aliases = self._names(entity.aliases)
        if not self._further_names and not any(aliases):
            return ()  # the usual case; a new list would only be work for the garbage collector

        texts = []
        if not isinstance(entity.labels, list):
            for name in self._further_names:
                further_label = getattr(entity.labels, name)
                if further_label:
                    texts.append(further_label.value)

        for aliases_of_code in aliases:
            texts += [alias.value for alias in aliases_of_code]
        return [text for text in dict.fromkeys(texts) if text and text != label]


def _map_field(name: str, struct: type[msgspec.Struct]) -> tuple:
    """A field of a struct for a map in JSON, which may be a list where it is empty."""
    return name, struct | list, msgspec.field(default_factory=struct)


entity_layout = cache(EntityLayout)


class Block(NamedTuple):
    """What was read of a block of a dump."""

    table: pa.Table  # of ENTITIES
    lines: int
    fault: (
        str  # an error in the last line, or ""; in a file's last line it means that the file is cut
    )


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
    layout = entity_layout(language.codes, language.site, language.nameless)
    text = b"".join(block)
    items = []
    row = 0
    for row, (start, end) in enumerate(_lines(text), start=1):
        if text.find(b'"type":"property"', start, min(start + TYPE_BYTES, end)) >= 0:
            rejects.read += 1
            rejects.skip("not_an_item")
            continue
        head, links = _head(text, start, end, layout.site_key)
        if not head and text[start:end].strip() in BRACKETS:
            continue

        rejects.read += 1
        if head and _is_nameless(head, layout):
            rejects.skip(layout.nameless)
            continue
        try:
            entity = _parse(text, start, end, head, links, properties, layout)
        except msgspec.ValidationError as error:
            rejects.add(file, row, "unexpected_layout", str(error))
        except BROKEN as error:
            shown = text[start : min(start + 80, end)].decode("utf-8", "replace")
            rejects.add(file, row, "bad_json", f"{error}: {shown}")
        else:
            item = _item(file, row, entity, properties, rejects, layout)
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
    except BROKEN as error:
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


def _lines(text: bytes) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends. Splitting would copy them, which takes as long as to search
    them.
    """
    start = 0
    while start < len(text):
        end = text.find(b"\n", start)
        if end < 0:
            end = len(text)
        yield start, end
        start = end + 1


def _head(text: bytes, start: int, end: int, site_key: bytes) -> tuple[bytes, int]:
    """The entity in text[start:end] cut before its claims, so with names only, and where its
    sitelinks begin.

    It is empty if the entity has an article, or its keys don't have a dump's order (labels and
    aliases, claims, sitelinks): such lines are parsed whole. A text can't be mistaken for a key, as
    its quotes would be escaped.
    """
    links = text.rfind(b'"sitelinks":', start, end)
    if links < 0 or text.find(site_key, links, end) >= 0:
        return b"", links
    labels = text.find(b'"labels":', start, links)
    aliases = text.find(b'"aliases":', start, links)
    claims = text.find(b'"claims":', max(labels, aliases, start), links)
    if claims < 0 or not text.endswith((b"},", b"}"), start, end):
        return b"", links
    return text[start:claims].rstrip(b", \t") + b"}", links


def _is_nameless(head: bytes, layout: EntityLayout) -> bool:
    """Whether a well-formed head has a name in none of the language's codes."""
    if b'"id":' not in head or b'"type":' not in head:
        return False
    return not any(code_key in head for code_key in layout.code_keys)


def _parse(
    text: bytes,
    start: int,
    end: int,
    head: bytes,
    links: int,
    properties: tuple[str, ...],
    layout: EntityLayout,
) -> msgspec.Struct:
    """The entity in text[start:end], without article and claims if it has no article. Raises
    msgspec's errors.
    """
    if head:
        # if it is broken, the whole line is parsed, and shows what is wrong if anything is
        with suppress(*BROKEN):
            return layout.decoder(None).decode(head)

    if links < 0:
        links = max(text.rfind(b'"sitelinks"', start, end), start)
    has_article = text.find(layout.site_key, links, end) >= 0
    decoder = layout.decoder(properties if has_article else None)
    if text.startswith(b"{", start) and text.endswith(b"},", start, end):
        # most lines are long: they are not copied
        return decoder.decode(memoryview(text)[start : end - 1])

    return decoder.decode(text[start:end].strip().removesuffix(b","))


def _item(
    file: str,
    row: int,
    entity: msgspec.Struct,
    properties: tuple[str, ...],
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
        dates: list[str] = []
        if title and not isinstance(entity.claims, list):
            for pid in properties:
                statements = getattr(entity.claims, pid)
                if not statements:
                    continue
                dates_of_objects = _best_objects(statements, rejects)
                pids += [int(pid[1:])] * len(dates_of_objects)
                objects += dates_of_objects
                dates += dates_of_objects.values()
        return row, int(entity.id[1:]), label, aliases, title, pids, objects, dates

    return None


def _best_objects(statements: list[Statement], rejects: Rejects) -> dict[int, str]:
    """Object -> its dates, of the best-ranked statements, chosen like Wikidata's own "truthy"
    statements.

    Deprecated statements never count. If any statement is preferred, only preferred ones count. An
    unknown value and "no value" are not objects, but a preferred one still outranks normal
    statements. Of two statements of one object the one that begins last has the dates.
    """
    ranks = [statement.rank for statement in statements]
    best_rank = "preferred" if "preferred" in ranks else "normal"
    objects: dict[int, str] = {}

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
                objects[item] = max(objects.get(item, ""), statement.dates())

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
