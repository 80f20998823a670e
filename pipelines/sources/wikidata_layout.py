"""The layout of a Wikidata entity in JSON, as far as it is used: names in one language, article and claims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Annotated

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
    qualifiers: msgspec.Raw = msgspec.Raw()


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
        if properties not in self._decoders:
            self._decoders[properties] = msgspec.json.Decoder(self._entity(properties))
        return self._decoders[properties]

    def _entity(self, properties: tuple[str, ...] | None) -> type[msgspec.Struct]:
        fields: list = [("id", str, ""), ("type", str, "")]
        fields += [("redirect", str | None, None)]  # the entity was merged into another
        fields += [("labels", self._labels | list, msgspec.field(default_factory=self._labels))]
        fields += [("aliases", self._aliases | list, msgspec.field(default_factory=self._aliases))]
        if properties is not None:
            claims = msgspec.defstruct("Claims", [(pid, list[Statement], []) for pid in properties], gc=False)
            fields += [("sitelinks", self._sitelinks | list, msgspec.field(default_factory=self._sitelinks))]
            fields += [("claims", claims | list, msgspec.field(default_factory=claims))]
        return msgspec.defstruct("Entity", fields, gc=False)

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
        sitelinks = getattr(entity, "sitelinks", None)
        article = sitelinks.article if isinstance(sitelinks, self._sitelinks) else None
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
