"""A release's schema.json: the columns and relations of the day it was made, by which it is checked ever after."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from pipelines import shards
from pipelines.errors import LongtailError
from pipelines.relations import RELATIONS
from pipelines.release import contents

FILE = "schema.json"
NULLABLE = {
    "popqa": {"s_wiki_title", "o_wiki_title"},
    "entityquestions_links": {"s_uri", "s_pop"},
    "thresholds": {"threshold_low", "threshold_high", "adaptive", "adaptive_low", "adaptive_high", "retrieved"},
}


class Column(msgspec.Struct):
    name: str
    type: str  # DuckDB's
    nullable: bool


class Table(msgspec.Struct):
    key: tuple[str, ...]  # unique
    columns: list[Column]

    @property
    def types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns}


class Relation(msgspec.Struct):
    name: str
    template: str


class Schema(msgspec.Struct):
    tables: dict[str, Table]
    relations: dict[str, Relation]


def current() -> Schema:
    """What a release that is made today is held to."""
    tables = {
        table.name: Table(
            table.key,
            [Column(name, kind, name in NULLABLE[table.name]) for name, (kind, _) in table.columns.items()],
        )
        for table in contents.TABLES
    }
    return Schema(tables, {pid: Relation(relation.name, relation.template) for pid, relation in RELATIONS.items()})


def write(folder: Path) -> None:
    shards.write_json(folder / FILE, msgspec.to_builtins(current()))


def read(folder: Path) -> Schema:
    """What a release's folder says of itself; the current one where it has no schema.json, as the first ones."""
    file = folder / FILE
    if not file.is_file():
        return current()
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Schema)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LongtailError(f"{file}: not a schema ({error}), expected tables and relations; get it again") from None
    names = [*found.tables, *(name for table in found.tables.values() for name in (*table.key, *table.types))]
    if odd := [name for name in names if not re.fullmatch(r"[a-z_]\w*", name)]:  # they become part of SQL
        raise LongtailError(f"{file}: {odd[0]!r} is no name of a table or column; get it again")
    return found
