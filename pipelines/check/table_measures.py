"""Measure tables by their expectations, with DuckDB over the Parquet files.

A table of measures has a row for each value that was measured (MEASURES). What is compared with
earlier runs are these rows alone, never the tables themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.check.expectations import Bounds, Expectation, Known, NotWorse, Titled
from pipelines.storage import database
from pipelines.tables.answers import MEASURES


@dataclass(frozen=True)
class Measure:
    """A row of MEASURES."""

    measure: str
    value: float | None
    low: float | None = None
    high: float | None = None
    detail: str | None = None
    expectation: str = ""
    file: str = ""
    least: float | None = None
    most: float | None = None
    holds: bool = True


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
    measures: list[Measure] = []
    with database.connect(memory_gb, threads=1) as db:
        for name, expectation in expectations.items():
            for path in sorted(data.glob(expectation.table)):
                if made is None or _is_below(path, made):
                    database.view(db, "rows", path)
                    table = Table(db, path.relative_to(data).as_posix())
                    measures += _measure_table(table, name, expectation)
    return pa.Table.from_pylist([asdict(measure) for measure in measures], schema=MEASURES.schema)


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@dataclass(frozen=True)
class Table:
    """A file that DuckDB has as the view `rows`."""

    db: duckdb.DuckDBPyConnection
    file: str  # below data/

    def types(self) -> dict[str, str]:
        """Column -> type."""
        view = self.db.view("rows")
        return dict(zip(view.columns, map(str, view.types), strict=True))

    def row(self, query: str) -> tuple:
        """The only row of a query."""
        return database.row(self.db, query)


def _measure_table(table: Table, name: str, expectation: Expectation) -> Iterator[Measure]:
    """The measures of a table, with the bounds of the expectation called `name`."""
    expect = expectation.expect
    bounds = expect.bounds
    missing = [column for column in expect.reads if column not in table.types()]
    if missing:
        measures = [Measure(column, None, detail=f"no column {column}") for column in missing]
    else:
        measures = KINDS[expect.kind](table, expect.settings)

    for measure in measures:
        yield replace(
            measure,
            expectation=name,
            file=table.file,
            least=bounds.least,
            most=bounds.most,
            holds=measure.detail is None and _is_within(measure.value, bounds),
        )


def _is_within(value: float | None, bounds: Bounds) -> bool:
    """Whether a value lies within the bounds for one month; a table without rows has no shares."""
    if value is None:
        return True
    if bounds.least is not None and value < bounds.least:
        return False
    return bounds.most is None or value <= bounds.most


def _count_rows(table: Table, _: Bounds) -> list[Measure]:
    (rows,) = table.row("SELECT count(*) FROM rows")
    return [Measure("rows", rows)]


def _count_nulls(table: Table, columns: list[str]) -> list[Measure]:
    counts = [f"count(*) - count({_quoted(column)})" for column in columns]
    nulls = table.row(f"SELECT {', '.join(counts)} FROM rows")
    measures = []
    for column, count in zip(columns, nulls, strict=True):
        measures.append(Measure(f"nulls in {column}", count))
    return measures


def _count_repeats(table: Table, columns: list[str]) -> list[Measure]:
    """How many rows have the key of an earlier row."""
    key = ", ".join(_quoted(column) for column in columns)
    (repeats,) = table.row(f"SELECT count(*) - count(DISTINCT row({key})) FROM rows")
    return [Measure(f"repeats of {', '.join(columns)}", repeats)]


def _measure_known(table: Table, known: Known) -> list[Measure]:
    column = _quoted(known.column)
    (share,) = table.row(f"SELECT count({column}) / nullif(count(*), 0) FROM rows")
    return [Measure(f"share of rows with {known.column}", share)]


def _measure_titled(table: Table, titled: Titled) -> list[Measure]:
    """The share of labels that are titles. Paris is the title Paris (Texas) too."""
    title = f"regexp_replace({_quoted(titled.title)}, ' [(].*[)]$', '')"
    is_title = f"lower({_quoted(titled.label)}) = lower({title})"
    (share,) = table.row(f"SELECT avg(CAST({is_title} AS INTEGER)) FROM rows")
    return [Measure(f"share of {titled.label} that is {titled.title}", share)]


def _read_figures(table: Table, wanted: NotWorse) -> list[Measure]:
    figure = ", ".join(_quoted(column) for column in wanted.interval)
    key = ", ".join(_quoted(column) for column in wanted.by)
    conditions = [f"{_quoted(wanted.figure)} IS NOT NULL"]
    conditions += [f"{_quoted(column)} = ?" for column in wanted.only]
    query = f"SELECT concat_ws(' ', {key}), {figure} FROM rows WHERE {' AND '.join(conditions)}"

    rows = table.db.sql(query, params=list(wanted.only.values())).fetchall()
    measures = []
    for whose, value, low, high in rows:
        measures.append(Measure(f"{wanted.figure} of {whose}", value, low, high))
    return measures


KINDS: dict[str, Callable[[Table, Any], list[Measure]]] = {  # a field of Expect -> what measures it
    "rows": _count_rows,
    "no_nulls": _count_nulls,
    "unique": _count_repeats,
    "known": _measure_known,
    "titled": _measure_titled,
    "not_worse": _read_figures,
}


def _quoted(column: str) -> str:
    """A column's name in SQL."""
    doubled = column.replace('"', '""')
    return f'"{doubled}"'
