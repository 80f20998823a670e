"""The layout of an entity in Wikidata's JSON, as far as it is read, with the names of a language.

Understands the layout of 2014-15 (entity values with only a numeric id; `[]` for an empty map) and
the later one.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import msgspec

from pipelines.language.language import MUL

Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


# msgspec skips everything else unparsed.
class Text(msgspec.Struct, gc=False):
    value: str


class Article(msgspec.Struct, gc=False):
    title: str


class Value(msgspec.Struct, gc=False):
    entity_type: str | None = msgspec.field(default=None, name="entity-type")
    numeric_id: Int64 | None = msgspec.field(default=None, name="numeric-id")
    id: str | None = None


class Data(msgspec.Struct, gc=False):
    value: Value | str | int | float | bool | list | None = None


class Snak(msgspec.Struct, gc=False):
    snaktype: str
    datavalue: Data | None = None


class Statement(msgspec.Struct, gc=False):
    mainsnak: Snak
    rank: str = "normal"


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
