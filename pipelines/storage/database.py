"""DuckDB for joins that may exceed memory, and Parquet files whose bytes repeat. Paths come by `view` and `ask`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.storage import parquet
from pipelines.storage.atomic import SCRATCH, scratch_folder

ROW_GROUP = 100_000  # rows

Values = Mapping[str, Any] | Sequence[Any] | None  # of a query's parameters


@contextmanager
def connect(memory_gb: float, threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB in memory that spills beyond `memory_gb`; LongtailError where that, or the disk, is too small."""
    with (
        scratch_folder() as spill,
        duckdb.connect(
            config={"memory_limit": f"{memory_gb} GB", "threads": threads, "temp_directory": spill}
        ) as db,
    ):
        db.execute("SET enable_progress_bar = false")
        try:
            yield db
        except (
            duckdb.InvalidInputException
        ) as error:  # what a stream raised, with a traceback as its text
            if said := re.search(r"^pipelines\.errors\.\w+: (.*)", str(error), re.MULTILINE):
                raise LongtailError(said[1]) from None
            raise
        except duckdb.OutOfMemoryException as error:
            said = str(error).partition("\n")[0]
            mend = f"raise it, lower compute.threads, or free space at {SCRATCH}/tmp"
            raise LongtailError(
                f"ingest.memory_gb: {memory_gb:g} is not enough ({said}); {mend}"
            ) from None


def view(
    db: duckdb.DuckDBPyConnection,
    name: str,
    *paths: Path,
    columns: Sequence[str] = (),
    numbered: bool = False,
    named: bool = False,
) -> None:
    """Let `name` be some or all columns of Parquet files in SQL; LongtailError if a file is missing or damaged."""
    for path in paths:
        parquet.metadata(path)
    rows = db.read_parquet([str(path) for path in paths], file_row_number=numbered, filename=named)
    kept = [*columns, *["file_row_number"] * numbered, *["filename"] * named] if columns else ["*"]
    rows.project(", ".join(kept)).create_view(name)


def ask(query: str, values: Values = None, **files: Path) -> duckdb.DuckDBPyRelation:
    """The rows of a query, to be fetched once; each Parquet file is a table called by its keyword (`view`)."""
    db = duckdb.connect()
    for name, path in files.items():
        view(db, name, path)
    return db.sql(query, params=values)


def row(db: duckdb.DuckDBPyConnection, query: str, values: Values = None) -> tuple:
    (only,) = db.sql(query, params=values).fetchall()
    return only


def read_rows(db: duckdb.DuckDBPyConnection, query: str, values: Values = None) -> pa.Table:
    return db.sql(query, params=values).to_arrow_table()


def write_query(
    db: duckdb.DuckDBPyConnection, query: str, path: Path, values: Values = None
) -> None:
    """Write a query's rows to Parquet in full row groups, one in memory at a time; it must ORDER BY a unique key."""
    reader = db.sql(query, params=values).to_arrow_reader(ROW_GROUP)
    with row_group_writer(path, reader.schema) as add:
        for batch in reader:  # of any size, which must not show in the file
            add(pa.Table.from_batches([batch]))


@contextmanager
def row_group_writer(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that adds rows to a Parquet file, in full row groups but for the last; one is in memory."""
    held, whole = schema.empty_table(), 0

    def add(rows: pa.Table) -> None:
        nonlocal held, whole
        held = pa.concat_tables([held, rows])
        while held.num_rows >= ROW_GROUP:
            file.write_table(held.slice(0, ROW_GROUP).combine_chunks())
            held, whole = held.slice(ROW_GROUP), whole + 1

    with parquet.writer(path, schema) as file:
        yield add
        if held.num_rows or not whole:
            file.write_table(held.combine_chunks())


def mapped(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Record batches as a table in the file `path`; only the rows that are looked at come into memory."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
