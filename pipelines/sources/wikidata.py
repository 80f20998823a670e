"""Wikidata's JSON dumps, read as items with a language's names and their best claims.

A full dump is 1.7 TB of JSON. Most of it is only searched for a few keys, and nothing is parsed that isn't used.
Understands the layout of 2014-15 (entity values with only a numeric id; `[]` for an empty map) and the later one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, MUL, Language
from pipelines.sources.rejects import Rejects

BLOCK = 1 << 25  # bytes of JSON: about 2,000 entities
TYPE = 64  # bytes at a line's beginning; a property says there that it is one, in either layout
BRACKETS = (b"", b"[", b"]", b",")  # lines of a dump that hold no entity
BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # JSON that can't be read
ID = re.compile(r"Q([1-9][0-9]{0,17})")

# One line's item, and its claims as aligned lists of properties, objects and dates.
NUMBERS, TEXTS = pa.list_(pa.int64()), pa.list_(pa.string())
NAMES = {
    "row": pa.int64(),
    "qid": pa.int64(),
    "label": pa.string(),
    "aliases": TEXTS,
    "wiki_title": pa.string(),
}
ENTITIES = pa.schema(NAMES | {"properties": NUMBERS, "objects": NUMBERS, "dates": TEXTS})

Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
QUALIFIERS = {"start": "P580", "end": "P582", "point": "P585"}  # when a statement holds
TIME = re.compile(
    r"([+-])0*(\d{1,4})-(\d\d)-(\d\d)T"
)  # the layout of 2014-15 fills years up with zeros
PARTS = {
    9: 1,
    10: 2,
    11: 3,
    12: 3,
    13: 3,
    14: 3,
}  # precision -> parts of the date that are known: year, month, day


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
        value = self.datavalue and self.datavalue.value
        return iso(value.time, value.precision) if isinstance(value, Value) else ""


Qualifiers = msgspec.defstruct(
    "Qualifiers", [(pid, list[Qualifier], []) for pid in QUALIFIERS.values()], gc=False
)


class Statement(msgspec.Struct, gc=False):
    mainsnak: Snak
    rank: str = "normal"
    qualifiers: Qualifiers | list = []

    def dates(self) -> str:
        """When it holds, as "START/END/POINT", each by `iso` or empty; "" for none. The last of a kind counts."""
        snaks = [getattr(self.qualifiers, pid, ()) for pid in QUALIFIERS.values()]
        dates = [max(map(Qualifier.date, of), default="") for of in snaks]
        return "/".join(dates) if any(dates) else ""


def iso(time: str, precision: int) -> str:
    """Wikidata's time as YYYY, YYYY-MM or YYYY-MM-DD (with - before Christ), as far as known; "" if not to the year."""
    match, parts = TIME.match(time), PARTS.get(precision, 0)
    if not match or not parts:
        return ""
    sign, year, month, day = match.groups()
    known = [year.zfill(4), *(part for part in (month, day)[: parts - 1] if part != "00")]
    return sign.strip("+") + "-".join(known)


class Layout:
    """How an entity's names are read in one language: by its codes in Wikidata and by its Wikipedia's name."""

    def __init__(self, codes: tuple[str, ...], site: str, nameless: str) -> None:
        self.nameless, self.site_key = nameless, f'"{site}"'.encode()
        self.code_keys = [f'"{code}"'.encode() for code in codes]
        # `mul`, since 2024, is one name for all languages: it counts if there is no other, and not as an alias
        names = [f"name{i}" for i in range(len(codes))]
        renamed = dict(zip(names, codes, strict=True))
        labels, aliases = (
            [(name, Text | None, None) for name in names],
            [(name, list[Text], []) for name in names],
        )
        self._labels = msgspec.defstruct("Labels", labels, rename=renamed, gc=False)
        self._aliases = msgspec.defstruct("Aliases", aliases, rename=renamed, gc=False)
        article = [("article", Article | None, None)]
        self._sitelinks = msgspec.defstruct(
            "Sitelinks", article, rename={"article": site}, gc=False
        )
        self._names = attrgetter(*names)
        self._others = names[1 : codes.index(MUL)]
        self.decoder = cache(self._decoder)

    def _decoder(self, properties: tuple[str, ...] | None) -> msgspec.json.Decoder:
        """A decoder of one entity: with its article and its claims of `properties`, or of its names only for None."""
        fields: list = [("id", str, ""), ("type", str, "")]
        fields += [("redirect", str | None, None)]  # the entity was merged into another
        fields += [("labels", self._labels | list, msgspec.field(default_factory=self._labels))]
        fields += [("aliases", self._aliases | list, msgspec.field(default_factory=self._aliases))]
        if properties is not None:
            claims = msgspec.defstruct(
                "Claims", [(pid, list[Statement], []) for pid in properties], gc=False
            )
            fields += [
                (
                    "sitelinks",
                    self._sitelinks | list,
                    msgspec.field(default_factory=self._sitelinks),
                )
            ]
            fields += [("claims", claims | list, msgspec.field(default_factory=claims))]
        return msgspec.json.Decoder(msgspec.defstruct("Entity", fields, gc=False))

    def label(self, entity: msgspec.Struct) -> str | None:
        """The label in the first of the codes that has one."""
        for label in () if isinstance(entity.labels, list) else self._names(entity.labels):
            if label:
                return label.value or None
        return None

    def title(self, entity: msgspec.Struct) -> str | None:
        """The title of the Wikipedia article."""
        article = getattr(
            getattr(entity, "sitelinks", None), "article", None
        )  # an empty map may be a list
        return article.title if article else None

    def aliases(self, entity: msgspec.Struct, label: str | None) -> Sequence[str]:
        """Other names than the label, each once: the labels in the other codes but `mul`, then all codes' aliases."""
        aliases = () if isinstance(entity.aliases, list) else self._names(entity.aliases)
        if not self._others and not any(aliases):
            return ()  # the usual case; a new list would only be work for the garbage collector
        names = (
            ()
            if isinstance(entity.labels, list)
            else [getattr(entity.labels, name) for name in self._others]
        )
        texts = chain(filter(None, names), *aliases)
        return [
            text for text in dict.fromkeys(text.value for text in texts) if text and text != label
        ]


layout_of = cache(Layout)


def parse_block(
    file: str,
    block: Iterable[bytes],
    properties: tuple[str, ...],
    rejects: Rejects,
    language: Language = ENGLISH,
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
        elif (
            head
            and b'"id":' in head
            and b'"type":' in head
            and not any(map(head.__contains__, layout.code_keys))
        ):
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
        raise LongtailError(
            f"{path}: cut within its last entity ({end_error}), expected a whole dump; fetch it again"
        )
    if rejects.read == rejects.bad.total():
        raise LongtailError(
            f"{path}: no entity in it, expected a JSON dump (one entity a line); fetch it again"
        )
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
    names = max(
        text.find(b'"labels":', start, links), text.find(b'"aliases":', start, links), start
    )
    claims = text.find(b'"claims":', names, links)
    if claims < 0 or not text.endswith((b"},", b"}"), start, end):
        return b"", links
    return text[start:claims].rstrip(b", \t") + b"}", links


def _parse(
    text: bytes,
    start: int,
    end: int,
    head: bytes,
    links: int,
    properties: tuple[str, ...],
    layout: Layout,
) -> msgspec.Struct:
    """The entity in text[start:end], without article and claims if it has no article. Raises msgspec's errors."""
    if head:
        with suppress(
            *BROKEN
        ):  # then the whole line is parsed, and shows what is wrong if anything is
            return layout.decoder(None).decode(head)
    if links < 0:
        links = max(text.rfind(b'"sitelinks"', start, end), start)
    decoder = layout.decoder(properties if text.find(layout.site_key, links, end) >= 0 else None)
    if text.startswith(b"{", start) and text.endswith(b"},", start, end):
        return decoder.decode(
            memoryview(text)[start : end - 1]
        )  # most lines are long: they are not copied
    return decoder.decode(text[start:end].strip().removesuffix(b","))


def _item(
    file: str,
    row: int,
    parsed: msgspec.Struct,
    properties: tuple[str, ...],
    rejects: Rejects,
    layout: Layout,
) -> tuple | None:
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
            rejects.skip(
                "deprecated_statement" if statement.rank == "deprecated" else "outranked_statement"
            )
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
