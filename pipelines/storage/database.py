"""Join tables that may exceed memory with DuckDB, and write Parquet files whose bytes repeat."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.storage import parquet
from pipelines.storage.atomic import SCRATCH, scratch_folder
from pipelines.tables.table import Table

ROWS_PER_GROUP = 100_000  # rows of a Parquet row group

Values = Mapping[str, Any] | Sequence[Any] | None  # the values of a query's parameters


@contextmanager
def connect(memory_gb: float, threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB in memory that spills to the disk beyond `memory_gb`.

    Raises LongtailError where that much memory, or the disk, is too small.
    """
    with scratch_folder() as folder:
        memory = f"{memory_gb} GB"
        config = {"memory_limit": memory, "threads": threads, "temp_directory": folder}
        with duckdb.connect(config=config) as db:
            db.execute("SET enable_progress_bar = false")
            try:
                yield db
            except duckdb.InvalidInputException as error:
                # A stream that DuckDB reads raised an error. Its traceback is this error's text.
                ours = re.search(r"^pipelines\.errors\.\w+: (.*)", str(error), re.MULTILINE)
                if ours:
                    raise LongtailError(ours[1]) from None
                raise
            except duckdb.OutOfMemoryException as error:
                reason = str(error).partition("\n")[0]
                raise LongtailError(
                    f"ingest.memory_gb: {memory_gb:g} is not enough ({reason}); raise it, lower "
                    f"compute.threads, or free space at {SCRATCH}/tmp"
                ) from None


def view(
    db: duckdb.DuckDBPyConnection,
    name: str,
    *paths: Path,
    numbered: bool = False,
    named: bool = False,
) -> None:
    """Make Parquet files a view called `name` in SQL.

    A view that is `numbered` has the column file_row_number, one that is `named` has filename.
    Raises LongtailError if a file is missing or damaged.
    """
    for path in paths:
        parquet.metadata(path)
    rows = db.read_parquet([str(path) for path in paths], file_row_number=numbered, filename=named)
    rows.create_view(name)


def ask(query: str, values: Values = None, **files: Path) -> duckdb.DuckDBPyRelation:
    """The rows of a query, which can be fetched once.

    Each keyword is a table of the query: the Parquet file that it names (see `view`).
    """
    db = _shared().cursor()
    for name, path in files.items():
        parquet.metadata(path)
        db.register(name, db.read_parquet([str(path)]))  # a view of this cursor alone
    return db.sql(query, params=values)


@cache
def _shared() -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory for all small queries of this process, since to start one takes 30 ms."""
    return duckdb.connect(config={"enable_external_file_cache": False})


def column_types(db: duckdb.DuckDBPyConnection, view: str) -> dict[str, str]:
    """Column -> DuckDB's type."""
    columns = db.view(view)
    return dict(zip(columns.columns, map(str, columns.types), strict=True))


def row(db: duckdb.DuckDBPyConnection, query: str) -> tuple:
    """The only row of a query."""
    (only_row,) = db.sql(query).fetchall()
    return only_row


def read_rows(db: duckdb.DuckDBPyConnection, query: str, values: Values = None) -> pa.Table:
    """The rows of a query, in memory."""
    return db.sql(query, params=values).to_arrow_table()


def insert(db: duckdb.DuckDBPyConnection, table: str, batches: Iterable[pa.Table]) -> None:
    """Add the rows of all batches to a table of the same columns."""
    for batch in batches:
        db.register("batch", batch)
        db.execute(f"INSERT INTO {table} FROM batch")


def write_query(
    db: duckdb.DuckDBPyConnection,
    query: str,
    path: Path,
    values: Values = None,
    declared: Table | None = None,
) -> None:
    """Write a query's rows to Parquet in full row groups, with one of them in memory at a time.

    The query must ORDER BY a unique key. If the table is `declared`, it has to have these columns.
    """
    reader = db.sql(query, params=values).to_arrow_reader(ROWS_PER_GROUP)
    if declared:
        declared.check(reader.schema)
    with row_group_writer(path, reader.schema) as add:
        for batch in reader:  # batches may have any size, which does not show in the file
            add(pa.Table.from_batches([batch]))


@contextmanager
def row_group_writer(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that adds rows to a Parquet file.

    All row groups but the last are full. One of them is in memory.
    """
    waiting = schema.empty_table()  # rows that do not fill a group yet
    groups = 0

    def add(rows: pa.Table) -> None:
        nonlocal waiting, groups
        waiting = pa.concat_tables([waiting, rows])
        while waiting.num_rows >= ROWS_PER_GROUP:
            file.write_table(waiting.slice(0, ROWS_PER_GROUP).combine_chunks())
            waiting = waiting.slice(ROWS_PER_GROUP)
            groups += 1

    with parquet.writer(path, schema) as file:
        yield add
        if waiting.num_rows or groups == 0:
            file.write_table(waiting.combine_chunks())


def mapped(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Write record batches to the file `path`, and map it into memory as a table.

    Only the rows that are looked at come into memory.
    """
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
