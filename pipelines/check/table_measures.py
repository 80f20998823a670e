"""Measure tables by their expectations, with DuckDB over the Parquet files.

A table of measures has a row for each value that was measured (MEASURES). What is compared with
earlier runs are these rows alone, never the tables themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.check.expectations import Bounds, Expect, Expectation, Value
from pipelines.check.table_rules import TableRules, find_faults
from pipelines.storage import database
from pipelines.tables.answers import MEASURES


def measure_tables(
    expectations: Mapping[str, Expectation],
    data: Path,
    memory_gb: float,
    made: Sequence[Path] | None = None,
) -> pa.Table:
    """The measures (MEASURES) of all tables below `data` that an expectation is about.

    With `made`, only files that are one of these or below one. Other tables, and tables that a run
    does not have, are left out. Raises LongtailError where a file is damaged.
    """
    measures: list[dict[str, Any]] = []
    with database.connect(memory_gb, threads=1) as db:
        for name, expectation in expectations.items():
            for path in sorted(data.glob(expectation.table)):
                if made is None or any(path.is_relative_to(folder) for folder in made):
                    file = path.relative_to(data).as_posix()
                    measures += _measure_table(db, path, file, name, expectation.expect)
    return pa.Table.from_pylist(measures, schema=MEASURES.schema)


def _measure_table(
    db: duckdb.DuckDBPyConnection, path: Path, file: str, name: str, expect: Expect
) -> Iterator[dict[str, Any]]:
    """The measures of a table by the expectation called `name`."""
    database.view(db, "rows", path, numbered=True)
    detail = None
    try:
        if expect.measured:
            values = expect.measured.measure(db)
        else:
            count, first = find_faults(db, _rules(expect))
            values = [Value("faults", count)]
            detail = "; ".join(first) or None
    except duckdb.BinderException as error:
        values = [Value("faults", 1)]
        _, column, _ = str(error).split('"', 2)
        detail = f"no column {column}"

    bounds = expect.bounds
    for value in values:
        yield {
            "expectation": name,
            "file": file,
            "least": bounds.least,
            "most": bounds.most,
            "detail": detail,
            "holds": detail is None and _is_within(value.value, bounds),
        } | value._asdict()


def _rules(expect: Expect) -> TableRules:
    if expect.unique:
        return TableRules(unique=[expect.unique], named_by=expect.unique)
    return TableRules(required=expect.no_nulls or [])


def _is_within(value: float | None, bounds: Bounds) -> bool:
    """Whether a value lies within the bounds for one month; a table without rows has no shares."""
    if value is None:
        return True
    if bounds.least is not None and value < bounds.least:
        return False
    return bounds.most is None or value <= bounds.most
