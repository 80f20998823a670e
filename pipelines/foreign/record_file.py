"""A file of records, whose fields have many spellings and may lie within objects."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.answer_lists import written_value

COLUMNS_SHOWN = 30  # in a message
WORD_INSIDE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # begins, as in actualOutput

Records = Iterator[dict[str, Any]]
Cells = dict[str, list[Any]]  # column -> its cells


@dataclass(frozen=True)
class RecordFile:
    """The records of a file, of which there is one at least."""

    kind: str  # in words, such as "JSON lines"
    records: Records
    columns: Sequence[str] = ()  # of a table, or of the first record
    notes: list[str] = field(default_factory=list)  # of what may surprise; whole after all records
    place: str = ""  # where the records are in a JSON file, as jq writes it; "" for no JSON
    shown: str = ""  # for a message: the columns, with the fields of objects in them


@lru_cache(maxsize=1 << 12)
def plain(name: str) -> str:
    """A column's name without capitals, with underscores between its words."""
    return re.sub(r"[\s-]+", "_", WORD_INSIDE.sub("_", name.strip()).lower())


def listed(names: Iterable[str]) -> str:
    """The names of columns, for a message."""
    shown = [name.strip() for name in names if name.strip()]
    text = ", ".join(shown[:COLUMNS_SHOWN])
    if len(shown) > COLUMNS_SHOWN:
        text += f" and {len(shown) - COLUMNS_SHOWN} more"
    return text


def known_fields(record: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The fields of a record that are known, by their plain names."""
    fields = {}
    for name, value in record.items():
        if plain(name) in known:
            fields[plain(name)] = value
    return fields


def field_paths(record: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """The fields of a record that are no objects, and those within objects as `vars.question`."""
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from field_paths(value, f"{place}{name}.")
        else:
            yield f"{place}{name}"


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """What stands at a path such as `output.pred`, `output.0` or `messages.-1`; None for nothing.

    A table may have an object as text. Fields are found by their plain names.
    """
    value = _inside(record, path)
    if value is not None:  # a column that is called so, as pandas.json_normalize does
        return value
    value = record
    for name in path.split("."):
        value = _inside(value, name)
    return value


def _inside(value: Any, name: str) -> Any:
    """What stands in a field of an object, or in a place of a list."""
    if isinstance(value, str):
        value = written_value(value)
    if isinstance(value, list):
        try:
            return value[int(name)]
        except (ValueError, IndexError):
            return None
    if not isinstance(value, dict):
        return None
    if name in value:
        return value[name]
    return known_fields(value, {plain(name)}).get(plain(name))


def rows_as_records(
    path: Path, names: list[str], rows: Iterable[tuple[int, list[Any]]], place: str = "line"
) -> Records:
    for number, cells in rows:
        n_cells = len(cells) if isinstance(cells, list) else 0
        if n_cells != len(names):
            raise LongtailError(
                f"{path}: {place} {number}: {n_cells} columns, expected {len(names)}; if each line "
                f"is a prediction: {jq_of_lines(path)}"
            )
        yield dict(zip(names, cells, strict=True))


def jq_of_lines(path: Path) -> str:
    """The command that makes records of lines of text."""
    return jq_command(path, "-R '{prediction: .}'")


def jq_command(path: Path, program: str) -> str:
    """The command that makes JSON lines of a file by a program of jq."""
    return f"jq {program} {shlex.quote(path.name)} > {shlex.quote(path.name + '.jsonl')}"
