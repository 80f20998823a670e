"""The layout of a Wikidata entity in JSON, as far as it is used: names in one language, article, claims and dates."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Annotated

import msgspec

from pipelines.language.language import MUL

Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
QUALIFIERS = {"start": "P580", "end": "P582", "point": "P585"}  # when a statement holds
TIME = re.compile(r"([+-])0*(\d{1,4})-(\d\d)-(\d\d)T")  # the layout of 2014-15 fills years up with zeros
PARTS = {9: 1, 10: 2, 11: 3, 12: 3, 13: 3, 14: 3}  # precision -> parts of the date that are known: year, month, day


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


Qualifiers = msgspec.defstruct("Qualifiers", [(pid, list[Qualifier], []) for pid in QUALIFIERS.values()], gc=False)


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
        self._code_keys = [f'"{code}"'.encode() for code in codes]
        # `mul`, since 2024, is one name for all languages: it counts if there is no other, and not as an alias
        names = [f"name{i}" for i in range(len(codes))]
        renamed = dict(zip(names, codes, strict=True))
        labels, aliases = [(name, Text | None, None) for name in names], [(name, list[Text], []) for name in names]
        self._labels = msgspec.defstruct("Labels", labels, rename=renamed, gc=False)
        self._aliases = msgspec.defstruct("Aliases", aliases, rename=renamed, gc=False)
        article = [("article", Article | None, None)]
        self._sitelinks = msgspec.defstruct("Sitelinks", article, rename={"article": site}, gc=False)
        self._names = attrgetter(*names)
        self._others = names[1 : codes.index(MUL)]
        self._decoders: dict[tuple[str, ...] | None, msgspec.json.Decoder] = {}

    def decoder(self, properties: tuple[str, ...] | None) -> msgspec.json.Decoder:
        """A decoder of one entity: with its article and its claims of `properties`, or of its names only for None."""
        if properties in self._decoders:
            return self._decoders[properties]
        fields: list = [("id", str, ""), ("type", str, "")]
        fields += [("redirect", str | None, None)]  # the entity was merged into another
        fields += [("labels", self._labels | list, msgspec.field(default_factory=self._labels))]
        fields += [("aliases", self._aliases | list, msgspec.field(default_factory=self._aliases))]
        if properties is not None:
            claims = msgspec.defstruct("Claims", [(pid, list[Statement], []) for pid in properties], gc=False)
            fields += [("sitelinks", self._sitelinks | list, msgspec.field(default_factory=self._sitelinks))]
            fields += [("claims", claims | list, msgspec.field(default_factory=claims))]
        self._decoders[properties] = msgspec.json.Decoder(msgspec.defstruct("Entity", fields, gc=False))
        return self._decoders[properties]

    def may_name(self, head: bytes) -> bool:
        """Whether an entity's JSON has any of the codes, so perhaps a name."""
        return any(map(head.__contains__, self._code_keys))  # a generator would take three times as long

    def label(self, entity: msgspec.Struct) -> str | None:
        """The label in the first of the codes that has one."""
        for label in () if isinstance(entity.labels, list) else self._names(entity.labels):
            if label:
                return label.value or None
        return None

    def title(self, entity: msgspec.Struct) -> str | None:
        """The title of the Wikipedia article."""
        article = getattr(getattr(entity, "sitelinks", None), "article", None)  # an empty map may be a list
        return article.title if article else None

    def aliases(self, entity: msgspec.Struct, label: str | None) -> Sequence[str]:
        """Other names than the label, each once: the labels in the other codes but `mul`, then all codes' aliases."""
        aliases = () if isinstance(entity.aliases, list) else self._names(entity.aliases)
        if not self._others and not any(aliases):
            return ()  # the usual case; a new list would only be work for the garbage collector
        names = () if isinstance(entity.labels, list) else [getattr(entity.labels, name) for name in self._others]
        texts = chain(filter(None, names), *aliases)
        return [text for text in dict.fromkeys(text.value for text in texts) if text and text != label]


layout_of = cache(Layout)
