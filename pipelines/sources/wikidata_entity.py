"""One entity of Wikidata's JSON: its English names, its English Wikipedia article and the objects of its best claims.

Understands the layout of 2014-15 (entity values with only a numeric id; `[]` for an empty map) and the later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec

from pipelines.sources.rejects import Rejects


# The layout, as far as it is used. msgspec skips everything else unparsed.
class Text(msgspec.Struct, gc=False):
    value: str


class Label(msgspec.Struct, gc=False):
    en: Text | None = None
    mul: Text | None = None  # since 2024: one name for all languages; it counts if there is no English one


class Aliases(msgspec.Struct, gc=False):
    en: list[Text] = []
    mul: list[Text] = []


class Article(msgspec.Struct, gc=False):
    title: str


class Sitelinks(msgspec.Struct, gc=False):
    enwiki: Article | None = None


class Value(msgspec.Struct, gc=False):
    entity_type: str | None = msgspec.field(default=None, name="entity-type")
    numeric_id: int | None = msgspec.field(default=None, name="numeric-id")
    id: str | None = None


class Data(msgspec.Struct, gc=False):
    value: Value | str | int | float | bool | list | None = None


class Snak(msgspec.Struct, gc=False):
    snaktype: str
    datavalue: Data | None = None


class Statement(msgspec.Struct, gc=False):
    mainsnak: Snak
    rank: str = "normal"


@cache
def decoder(properties: tuple[str, ...] | None) -> msgspec.json.Decoder:
    """A decoder of one entity: with its article and its claims of `properties`, or of its names only for None."""
    fields: list = [("id", str, ""), ("type", str, "item"), ("lastrevid", int, 0)]
    fields += [("redirect", str | None, None)]  # in a dump: the entity was merged into another
    fields += [("redirects", msgspec.Raw, msgspec.Raw())]  # in an API answer: the entity asked for was merged into this
    fields += [("missing", msgspec.Raw, msgspec.Raw())]  # deleted
    fields += [("labels", Label | list, msgspec.field(default_factory=Label))]
    fields += [("aliases", Aliases | list, msgspec.field(default_factory=Aliases))]
    if properties is not None:
        claims = msgspec.defstruct("Claims", [(pid, list[Statement], []) for pid in properties], gc=False)
        fields += [("sitelinks", Sitelinks | list, msgspec.field(default_factory=Sitelinks))]
        fields += [("claims", claims | list, msgspec.field(default_factory=claims))]
    return msgspec.json.Decoder(msgspec.defstruct("Entity", fields, gc=False))


def label_and_title(entity: msgspec.Struct) -> tuple[str | None, str | None]:
    """English label and title of the English Wikipedia article."""
    label = (entity.labels.en or entity.labels.mul) if isinstance(entity.labels, Label) else None
    sitelinks = getattr(entity, "sitelinks", None)
    article = sitelinks.enwiki if isinstance(sitelinks, Sitelinks) else None
    return (label.value or None) if label else None, article.title if article else None


def reason_to_skip(entity: msgspec.Struct, name: str | None) -> str | None:
    """Why a well-formed entity isn't an item with an English `name`; None if it is."""
    if entity.missing:
        return "missing"
    if entity.redirect:
        return "redirect"
    if entity.type != "item":
        return "not_an_item"
    return None if name else "no_english"


def aliases(entity: msgspec.Struct, label: str | None) -> Sequence[str]:
    """English aliases other than the label, each once, in their order."""
    if not isinstance(entity.aliases, Aliases) or not (entity.aliases.en or entity.aliases.mul):
        return ()  # the usual case; a new list would only be work for the garbage collector
    texts = dict.fromkeys(text.value for text in [*entity.aliases.en, *entity.aliases.mul])
    return [text for text in texts if text and text != label]


def best_claims(entity: msgspec.Struct, properties: tuple[str, ...], rejects: Rejects) -> tuple[list[int], list[int]]:
    """Properties and objects of the best-ranked statements, aligned."""
    pids: list[int] = []
    objects: list[int] = []
    for pid in () if isinstance(entity.claims, list) else properties:
        if statements := getattr(entity.claims, pid):
            best = _best_objects(statements, rejects)
            objects += best
            pids += [int(pid[1:])] * len(best)
    return pids, objects


def _best_objects(statements: list[Statement], rejects: Rejects) -> list[int]:
    """The objects of the best-ranked statements, chosen like Wikidata's own "truthy" statements.

    Deprecated statements never count. If any statement is preferred, only preferred ones count. An unknown value and
    "no value" are not objects, but a preferred one still outranks normal statements.
    """
    best = "preferred" if any(statement.rank == "preferred" for statement in statements) else "normal"
    objects: list[int] = []
    for statement in statements:
        snak = statement.mainsnak
        value = snak.datavalue.value if snak.datavalue else None
        if statement.rank != best:
            rejects.skip("deprecated_statement" if statement.rank == "deprecated" else "outranked_statement")
        elif snak.snaktype != "value":
            rejects.skip(f"{snak.snaktype}_statement")
        elif not isinstance(value, Value) or (number := _item_number(value)) is None:
            rejects.skip("not_an_item_statement")
        else:
            objects.append(number)
    return list(dict.fromkeys(objects))


def _item_number(value: Value) -> int | None:
    if value.numeric_id is not None and value.entity_type in (None, "item"):
        return value.numeric_id
    if value.id and value.id.startswith("Q") and value.id[1:].isdecimal():
        return int(value.id[1:])
    return None
