"""What the runs that landed measured: the last one, and the reference.

Runs are compared that have the same params, whatever their month: other params make other tables.
The reference has each value as it was when it was first measured in a run that landed, so that a
small loss each month adds up. Only an acceptance renews it, for the accepted expectation alone. A
run of a part of the pipeline replaces the values of its own tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.storage.atomic import SCRATCH, atomic

# DuckDB is imported where it is needed: it complains on standard error when a run is interrupted.
if TYPE_CHECKING:
    import pyarrow as pa

LANDED = SCRATCH / "landed"  # <profile>/<hash of params>/
LAST = "last.parquet"
REFERENCE = "reference.parquet"
HASH_BYTES = 4  # of params
# Sections of params.yaml that may differ between runs whose tables are compared.
OF_THE_MACHINE = ("compute", "contact", "fetch", "plan")
NAMES = {LAST: "the last landed run", REFERENCE: "the reference"}

KEY = ("expectation", "file", "measure")
# A value without an interval is exact.
CHANGES = """
    SELECT expectation, file, measure,
        new_row.value, coalesce(new_row.low, new_row.value) AS low,
        coalesce(new_row.high, new_row.value) AS high,
        old_row.value AS old_value, coalesce(old_row.low, old_row.value) AS old_low,
        coalesce(old_row.high, old_row.value) AS old_high
    FROM pairs
    WHERE change = 'kept' AND new_row.value IS NOT NULL AND old_row.value IS NOT NULL
    ORDER BY ALL
"""
# What is kept of earlier runs, less what is renewed, and what else was measured now.
NEXT = """
    WITH kept AS (
        FROM before
        WHERE NOT (list_contains($renewed, expectation) AND file IN (SELECT file FROM now))
    )
    FROM kept UNION ALL BY NAME (FROM now ANTI JOIN kept USING (expectation, file, measure))
    ORDER BY ALL
"""


def name_history(values: Mapping[str, Any]) -> str:
    """The name of the runs that a run with these values of params.yaml is compared with.

    It has the profile, and a hash of all params but the month and OF_THE_MACHINE.
    """
    compared = {name: value for name, value in values.items() if name not in OF_THE_MACHINE}
    compared["popularity"] = values["popularity"] | {"month": None}
    text = json.dumps(compared, sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).hexdigest()
    return f"{values['profile']}/{digest}"


def has_landed(history: str) -> bool:
    """Whether one of the runs with this name landed here."""
    return (LANDED / history / LAST).is_file()


def read_changes(history: str, now: pa.Table) -> Iterator[dict[str, Any]]:
    """What was measured before and now: a row for each value, with the name of the earlier `run`.

    `now` are the measures (MEASURES) of a run. A value that one of the runs lacks has no row, and a
    value that the reference shares with the last landed run has one.
    """
    import duckdb

    from pipelines.check.table_difference import pair_rows
    from pipelines.storage import database

    told = set()
    for file, run in NAMES.items():
        before = LANDED / history / file
        if not before.is_file():
            continue
        with duckdb.connect() as db:
            database.view(db, "old", before)
            db.register("new", now)
            pair_rows(db, KEY)
            changes = database.read_rows(db, CHANGES).to_pylist()
        for change in changes:
            text = str(change)
            if text not in told:
                told.add(text)
                yield change | {"run": run}


def keep_measures(history: str, now: pa.Table, accepted: Collection[str]) -> None:
    """Keep the measures of a run that landed, which had these `accepted` expectations."""
    folder = LANDED / history
    folder.mkdir(parents=True, exist_ok=True)
    _keep(folder / LAST, now, now["expectation"].unique().to_pylist())
    _keep(folder / REFERENCE, now, list(accepted))


def _keep(path: Path, now: pa.Table, renewed: list[str]) -> None:
    """Add what was measured now to a file, in which the values of some expectations are renewed."""
    import duckdb

    from pipelines.storage import database, parquet

    before = parquet.read_parquet(path) if path.is_file() else now[:0]
    with duckdb.connect() as db, atomic(path) as temporary:
        db.register("now", now)
        db.register("before", before)
        database.write_query(db, NEXT, temporary, {"renewed": renewed})


def mark_stopped(profile: str, part: str, stopped: bool) -> None:
    """Keep whether the gate stopped the last run of this part of the pipeline."""
    mark = _mark(profile, part)
    if stopped:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


def is_stopped(profile: str, part: str) -> bool:
    """Whether the gate stopped the last run of this part, which so has not landed."""
    return _mark(profile, part).is_file()


def _mark(profile: str, part: str) -> Path:
    return LANDED / profile / f"stopped-{part}"
