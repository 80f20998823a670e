"""A release's schema.json: the columns and relations by which the release is checked, as they were when it was made."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.language.relations import RELATIONS, read_relations
from pipelines.release import contents
from pipelines.storage import shards

FILE = "schema.json"
NULLABLE = {
    "popqa": {"s_wiki_title", "o_wiki_title", "s_pop", "o_pop"},
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


def current(language: Language = ENGLISH) -> Schema:
    """The schema of a release that is made now, with questions in a language."""
    tables = {}
    for table in contents.TABLES:
        columns = [Column(name, kind, name in NULLABLE[table.name]) for name, (kind, _) in table.columns.items()]
        tables[table.name] = Table(table.key, columns)
    relations = RELATIONS if language == ENGLISH else read_relations(language=language)
    return Schema(tables, {pid: Relation(relation.name, relation.template) for pid, relation in relations.items()})


def write_schema(folder: Path, language: Language = ENGLISH) -> None:
    shards.write_json(folder / FILE, msgspec.to_builtins(current(language)))


def read_schema(folder: Path) -> Schema:
    """The schema in a release's folder. The first releases have no schema.json: they get the current one."""
    file = folder / FILE
    if not file.is_file():
        return current()
    try:
        schema = msgspec.json.decode(file.read_bytes(), type=Schema)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LongtailError(f"{file}: not a schema ({error}), expected tables and relations; get it again") from None
    names = [*schema.tables, *(name for table in schema.tables.values() for name in (*table.key, *table.types))]
    if odd := [name for name in names if not re.fullmatch(r"[a-z_]\w*", name)]:  # they become part of SQL
        raise LongtailError(f"{file}: {odd[0]!r} is no name of a table or column; get it again")
    return schema
