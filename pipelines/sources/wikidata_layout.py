"""The layout of an entity in Wikidata's JSON, as far as it is read, with the names of a language.

Understands the layout of 2014-15 (entity values with only a numeric id; `[]` for an empty map) and
the later one.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import msgspec

from pipelines.language.language import MUL

Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
QUALIFIERS = {"start": "P580", "end": "P582", "point": "P585"}  # when a statement holds
# The layout of 2014-15 fills years up with zeros.
TIME = re.compile(r"([+-])0*(\d{1,4})-(\d\d)-(\d\d)T")
DATE = re.compile(r"(-?\d{4})(.*)")  # the year and the rest of a date by `iso`
BEFORE_ALL = -(10**4)  # a year before all that are known
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
            dates_of_qualifier = [qualifier.date() for qualifier in qualifiers]
            dates.append(max(dates_of_qualifier, default="", key=by_time))
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


def by_time(dates: str) -> list[tuple[int, str]]:
    """What dates by `iso`, with "/" between several, are sorted by; an empty one is before all."""
    keys = []
    for date in dates.split("/"):
        match = DATE.match(date)
        year = int(match[1]) if match else BEFORE_ALL
        keys.append((year, match[2] if match else ""))
    return keys


class EntityLayout:
    """How an entity's names are read in one language: by its codes in Wikidata and by its
    Wikipedia's name.

    Where a map is empty, it may be a list, which has none of the fields.
    """

    def __init__(
        self, codes: tuple[str, ...], site: str, nameless: str, properties: tuple[str, ...]
    ) -> None:
        self.nameless = nameless
        self.properties = properties
        self.site_key = f'"{site}"'.encode()
        self.code_keys = [f'"{code}"'.encode() for code in codes]

        self._names = [f"name{i}" for i in range(len(codes))]  # fields of the structs, one a code
        # `mul`, since 2024, is one name for all languages: it counts if there is no other, and not
        # as an alias
        self._further_names = self._names[1 : codes.index(MUL)]
        labels = [(name, Text | None, None) for name in self._names]
        aliases = [(name, list[Text], []) for name in self._names]
        codes_of_names = dict(zip(self._names, codes, strict=True))
        names = [
            _map_field("labels", labels, codes_of_names),
            _map_field("aliases", aliases, codes_of_names),
        ]
        article = [("article", Article | None, None)]
        claims = [(pid, list[Statement], []) for pid in properties]
        links_and_claims = [
            _map_field("sitelinks", article, {"article": site}),
            _map_field("claims", claims, None),
        ]
        self.decode_names = _entity_decoder(names)
        self.decode = _entity_decoder([*names, *links_and_claims])

    def label(self, entity: msgspec.Struct) -> str | None:
        """The label in the first of the codes that has one."""
        for name in self._names:
            label = getattr(entity.labels, name, None)
            if label:
                return label.value or None
        return None

    def title(self, entity: msgspec.Struct) -> str | None:
        """The title of the Wikipedia article."""
        sitelinks = getattr(entity, "sitelinks", None)
        article = getattr(sitelinks, "article", None)
        return article.title if article else None

    def aliases(self, entity: msgspec.Struct, label: str | None) -> list[str]:
        """Other names than the label, each once: the labels in the other codes but `mul`, then all
        codes' aliases.
        """
        texts = []
        for name in self._further_names:
            further_label = getattr(entity.labels, name, None)
            if further_label:
                texts.append(further_label.value)
        for name in self._names:
            texts += [alias.value for alias in getattr(entity.aliases, name, ())]
        return [text for text in dict.fromkeys(texts) if text and text != label]


def _map_field(name: str, fields: list[tuple], rename: dict[str, str] | None) -> tuple:
    """A field of a struct for a map in JSON with these fields; it may be a list where it is
    empty.
    """
    struct = msgspec.defstruct(name.title(), fields, rename=rename, gc=False)
    return name, struct | list, msgspec.field(default_factory=struct)


def _entity_decoder(maps: list[tuple]) -> Callable[[bytes | memoryview], Any]:
    """A function that reads the JSON of an entity with these maps."""
    fields = [
        ("id", str, ""),
        ("type", str, ""),
        ("redirect", str | None, None),  # the entity was merged into another
    ]
    entity = msgspec.defstruct("Entity", [*fields, *maps], gc=False)
    return msgspec.json.Decoder(entity).decode


entity_layout = cache(EntityLayout)
