"""What differs between two versions of a table: columns, rows and values."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.storage import database

PAIRS = """CREATE OR REPLACE TEMP TABLE pairs AS
SELECT {key}, old_row, new_row,
    CASE WHEN old_row.there IS NULL THEN 'added' WHEN new_row.there IS NULL THEN 'gone'
        ELSE 'kept' END AS change
FROM (SELECT *, true AS there FROM old) AS old_row
    FULL JOIN (SELECT *, true AS there FROM new) AS new_row USING ({key})"""


@dataclass(frozen=True)
class Difference:
    """What changed from the old version of a table to the new one."""

    rows: int  # of the new one
    columns_added: list[str]
    columns_gone: list[str]  # or of another type
    rows_added: int
    rows_gone: int
    rows_changed: int
    values_changed: dict[str, int]  # column -> rows


def pair_rows(db: duckdb.DuckDBPyConnection, key: Sequence[str]) -> None:
    """Write the table `pairs`: the rows of the tables `old` and `new` that have the same key.

    `old_row` and `new_row` are structs of their columns; `change` is added, gone or kept.
    """
    db.execute(PAIRS.format(key=", ".join(key)))


def compare_files(
    db: duckdb.DuckDBPyConnection, key: Sequence[str], old: Path | None, new: Path
) -> Difference | None:
    """What differs between two files, whose rows have a key; None if there is neither of them.

    All columns and rows are added or gone if there is one of them, or if a column of the key is
    added or gone.
    """
    old_columns, old_rows = _view(db, "old", old)
    new_columns, new_rows = _view(db, "new", new)
    if not old_columns and not new_columns:
        return None

    added = [name for name in new_columns if name not in old_columns]
    gone = [name for name, kind in old_columns.items() if new_columns.get(name) != kind]
    kept = [name for name, kind in new_columns.items() if old_columns.get(name) == kind]
    if not set(key) <= set(kept):
        return Difference(new_rows, added, gone, new_rows, old_rows, 0, {})

    pair_rows(db, key)
    differs = {name: f"old_row.{name} IS DISTINCT FROM new_row.{name}" for name in kept}
    values_changed = {}
    for name, condition in differs.items():
        count = _count(db, f"change = 'kept' AND {condition}")
        if count:
            values_changed[name] = count
    return Difference(
        rows=new_rows,
        columns_added=added,
        columns_gone=gone,
        rows_added=_count(db, "change = 'added'"),
        rows_gone=_count(db, "change = 'gone'"),
        rows_changed=_count(db, f"change = 'kept' AND ({' OR '.join(differs.values())})"),
        values_changed=values_changed,
    )


def _count(db: duckdb.DuckDBPyConnection, condition: str) -> int:
    """The number of pairs for which a condition holds."""
    (count,) = database.row(db, f"SELECT count(*) FROM pairs WHERE {condition}")
    return count


def _view(
    db: duckdb.DuckDBPyConnection, name: str, file: Path | None
) -> tuple[dict[str, str], int]:
    """Make a file the view `name`; its columns with their types, and its number of rows."""
    if file is None or not file.is_file():
        return {}, 0
    database.view(db, name, file)
    (count,) = database.row(db, f"SELECT count(*) FROM {name}")
    return database.column_types(db, name), count
