"""Derive a release's version from what changed since the release before, and write CHANGELOG.md.

The change is major where columns or tables are gone or have another type. It is minor where rows are added or gone, or
columns or tables are new. It is a patch where only values changed. Without a change there is no release.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from pipelines.errors import LongtailError
from pipelines.release import card, contents
from pipelines.storage import database, parquet

FIRST = "1.0.0"
CHANGELOG, HEAD = "CHANGELOG.md", "# Changelog\n"
LEVELS = ("major", "minor", "patch")
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version: (1, 10, 0) for 1.10.0. Raises LongtailError for any other text."""
    if not VERSION.fullmatch(version):
        raise LongtailError(f"{version}: no version, expected three numbers as 1.0.0")
    return tuple(map(int, version.split(".")))


def latest(out: Path) -> Path | None:
    """The folder of the highest version below `out`, if there is any."""
    releases = [path for path in out.glob("*") if VERSION.fullmatch(path.name) and (path / contents.SUMS).is_file()]
    return max(releases, key=lambda path: numbers(path.name), default=None)


def changes(db: duckdb.DuckDBPyConnection, old: Path | None, new: Path) -> dict[str, Any]:
    """What changed from the release `old`, or None for the first release, to the tables in `new`.

    "previous" is a version or None. "level" is one of LEVELS, or None without a change or a previous release. "tables"
    has for each table "rows", "columns_added", "columns_gone", "rows_added", "rows_gone", "rows_changed", and
    "values_changed" by column. All columns and rows of a table that only one release has are added or gone.
    """
    changed = {table.name: _table_changes(db, table, old, new) for table in contents.TABLES}
    changed = {name: entry for name, entry in changed.items() if entry}
    kinds = {kind for entry in changed.values() for kind, amount in entry.items() if amount}
    level = None
    if "columns_gone" in kinds:
        level = "major"
    elif kinds & {"columns_added", "rows_added", "rows_gone"}:
        level = "minor"
    elif "rows_changed" in kinds:
        level = "patch"
    return {"previous": old and old.name, "level": old and level, "tables": changed}


def next_version(changes: dict[str, Any], wanted: str | None) -> str:
    """The version that the changes call for, or `wanted`.

    Raises LongtailError where `wanted` is below what they call for.
    """
    if not changes["previous"]:
        return wanted or FIRST
    parts, place = list(numbers(changes["previous"])), LEVELS.index(changes["level"])
    derived = ".".join(map(str, [*parts[:place], parts[place] + 1, *(0 for _ in parts[place + 1 :])]))
    if wanted and numbers(wanted) < numbers(derived):
        raise LongtailError(
            f"{wanted}: too low a version for the {changes['level']} change since {changes['previous']}, expected "
            f"{derived} or above"
        )
    return wanted or derived


def write_changelog(
    folder: Path, previous: Path | None, date: str, changes: Mapping[str, Any], moved: Sequence[str]
) -> str:
    """Write CHANGELOG.md, the newest version first, carried on from the release before; returns the newest one's part.

    `moved` are the lines of `difference.write_difference`, which stand there as a block of text.
    """
    facts = {"version": folder.name, "date": date, "changes": changes, "moved": moved}
    newest = card.render("changelog.md.j2", facts).strip()
    kept = previous / CHANGELOG if previous else None
    earlier = kept.read_text(encoding="utf-8").removeprefix(HEAD) if kept and kept.is_file() else ""
    (folder / CHANGELOG).write_text(f"{HEAD}\n{newest}\n{earlier}", encoding="utf-8")
    return newest


def _table_changes(
    db: duckdb.DuckDBPyConnection, table: contents.Table, old: Path | None, new: Path
) -> dict[str, Any] | None:
    """The entry of one table in `changes`; None where neither release has the table."""
    files = [folder and folder / table.parquet for folder in (old, new)]
    files = [file if file and file.is_file() else None for file in files]
    before, after = (contents.column_types(file) if file else {} for file in files)
    if not before and not after:
        return None
    rows = [parquet.metadata(file).num_rows if file else 0 for file in files]
    entry = {
        "rows": rows[1],
        "columns_added": [name for name in after if name not in before],
        "columns_gone": [name for name in before if before[name] != after.get(name)],
        "rows_added": rows[1],
        "rows_gone": rows[0],
        "rows_changed": 0,
        "values_changed": {},
    }
    if before and after and set(table.key) <= before.keys() & after.keys():
        compared = [name for name in after if before.get(name) == after[name] and name not in table.key]
        differs = [f"old.{name} IS DISTINCT FROM new.{name}" for name in compared] or ["false"]
        for name, file in zip(("old_rows", "new_rows"), files, strict=True):
            database.view(db, name, file, numbered=True)
        added, gone, changed, *values = db.sql(
            f"""SELECT count(*) FILTER (old.row IS NULL), count(*) FILTER (new.row IS NULL),
                count(*) FILTER (old.row + new.row IS NOT NULL AND ({" OR ".join(differs)})),
                {", ".join(f"count(*) FILTER (old.row + new.row IS NOT NULL AND {differing})" for differing in differs)}
            FROM (SELECT *, file_row_number AS row FROM old_rows) AS old
            FULL JOIN (SELECT *, file_row_number AS row FROM new_rows) AS new USING ({", ".join(table.key)})"""
        ).fetchall()[0]
        entry |= {"rows_added": added, "rows_gone": gone, "rows_changed": changed}
        entry["values_changed"] = {name: n for name, n in zip(compared, values, strict=False) if n}
    return entry
