"""Wikidata JSON dumps, read one entity at a time: English names, the English Wikipedia article, and the best answers.

Understands the layout of 2014-15 (entity values with only a numeric id; `[]` where a map is empty) and the later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.text import open_lines


class Entity(msgspec.Struct):
    """An item with an English label or an English Wikipedia article."""

    qid: int
    row: int  # line of the dump, from 1
    revision: int  # 0 where the dump doesn't say
    label: str | None
    aliases: list[str]
    wiki_title: str | None
    answers: list[tuple[int, int]]  # (property, object) numbers; only read where there is an article


def read_entities(path: Path, rejects: Rejects, properties: tuple[str, ...] = ()) -> Iterator[Entity]:
    """Yield the items of a dump that have an English label or article, in its order, with the answers to `properties`.

    Bad lines go to `rejects` (bad_json, unexpected_layout, bad_id); what is well-formed but none of ours is counted
    there as skipped, by reason. Raises LongtailError when the dump is damaged, cut, or not a dump at all.
    """
    full, names = _decoder(properties), _decoder(None)
    items, last_bad = 0, ""
    for row, raw in enumerate(open_lines(path), start=1):
        line = raw.strip()
        if line.endswith(b","):
            line = line[:-1]
        if line in (b"", b"[", b"]"):
            last_bad = "" if line == b"]" else last_bad
            continue
        rejects.read += 1
        last_bad = ""
        if line.startswith(b"{") and line.endswith(b"}") and b'"en"' not in line and b'"mul"' not in line:
            rejects.skip("no_english")  # a byte search spares parsing most of the dump
            continue
        has_article = b'"enwiki"' in line
        try:
            parsed = (full if has_article else names).decode(line)
        except msgspec.ValidationError as error:
            rejects.add(path, row, "unexpected_layout", str(error))
            continue
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            last_bad = f"line {row}: {error}"
            rejects.add(path, row, "bad_json", f"{error}: {line[:80].decode('utf-8', 'replace')}")
            continue
        items += 1
        if parsed.type != "item":
            rejects.skip("not_an_item")
        elif not parsed.id.startswith("Q") or not parsed.id[1:].isdecimal():
            rejects.add(path, row, "bad_id", parsed.id)
        elif entity := _entity(parsed, row, properties, rejects):
            yield entity
    if last_bad:
        raise LongtailError(f"{path}: cut within its last entity ({last_bad}), expected a whole dump; fetch it again")
    if items + rejects.skipped["no_english"] == 0:
        raise LongtailError(f"{path}: no entity in it, expected a JSON dump (one entity a line); fetch it again")


# The dump's layout, as far as it is used; msgspec skips everything else unparsed.
class _Text(msgspec.Struct):
    value: str


class _Label(msgspec.Struct):
    en: _Text | None = None
    mul: _Text | None = None  # since 2024: one name for all languages, valid where English has none of its own


class _Aliases(msgspec.Struct):
    en: list[_Text] = []
    mul: list[_Text] = []


class _Article(msgspec.Struct):
    title: str


class _Sitelinks(msgspec.Struct):
    enwiki: _Article | None = None


class _Value(msgspec.Struct):
    entity_type: str | None = msgspec.field(default=None, name="entity-type")
    numeric_id: int | None = msgspec.field(default=None, name="numeric-id")
    id: str | None = None


class _Data(msgspec.Struct):
    value: _Value | str | int | float | bool | list | None = None


class _Snak(msgspec.Struct):
    snaktype: str
    datavalue: _Data | None = None


class _Statement(msgspec.Struct):
    mainsnak: _Snak
    rank: str = "normal"


@cache
def _decoder(properties: tuple[str, ...] | None) -> msgspec.json.Decoder:
    """A decoder of one entity, with article and answers if `properties` are given; `[]` may stand for an empty map."""
    fields: list = [("id", str), ("type", str, "item"), ("lastrevid", int, 0)]
    fields += [("labels", _Label | list, msgspec.field(default_factory=_Label))]
    fields += [("aliases", _Aliases | list, msgspec.field(default_factory=_Aliases))]
    if properties is not None:
        claims = msgspec.defstruct("_Claims", [(pid, list[_Statement], []) for pid in properties])
        fields += [("sitelinks", _Sitelinks | list, msgspec.field(default_factory=_Sitelinks))]
        fields += [("claims", claims | list, msgspec.field(default_factory=claims))]
    return msgspec.json.Decoder(msgspec.defstruct("_Entity", fields))


def _entity(parsed: msgspec.Struct, row: int, properties: tuple[str, ...], rejects: Rejects) -> Entity | None:
    names = parsed.labels if isinstance(parsed.labels, _Label) else _Label()
    label = names.en or names.mul
    sitelinks = getattr(parsed, "sitelinks", None)
    article = sitelinks.enwiki if isinstance(sitelinks, _Sitelinks) else None
    if not label and not article:
        rejects.skip("no_english")
        return None
    others = parsed.aliases if isinstance(parsed.aliases, _Aliases) else _Aliases()
    name = label.value if label else None
    aliases = [text.value for text in [*others.en, *others.mul] if text.value and text.value != name]
    answers: list[tuple[int, int]] = []
    if article and not isinstance(parsed.claims, list):
        for pid in properties:
            if statements := getattr(parsed.claims, pid):
                answers += [(int(pid[1:]), o) for o in _best_objects(statements, rejects)]
    return Entity(
        qid=int(parsed.id[1:]),
        row=row,
        revision=parsed.lastrevid,
        label=name or None,
        aliases=list(dict.fromkeys(aliases)),
        wiki_title=article.title if article else None,
        answers=answers,
    )


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
