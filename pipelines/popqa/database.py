"""DuckDB for joins and aggregates that may exceed memory, and Parquet files whose bytes repeat."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from pipelines import shards

ROW_GROUP = 100_000  # rows


@contextmanager
def connect(memory_gb: float, threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB in memory that spills to disk beyond `memory_gb`; what it spilled is removed at the end."""
    holder = shards.SCRATCH / "tmp"
    holder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=holder) as spill, duckdb.connect() as db:
        db.execute(f"SET memory_limit = '{memory_gb} GB'")
        db.execute(f"SET threads = {threads}")
        db.execute(f"SET temp_directory = '{spill}'")
        db.execute("SET enable_progress_bar = false")
        yield db


def write(db: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    """Write a query's rows to Parquet through Arrow, a row group at a time; the query must ORDER BY a unique key."""
    reader = db.execute(query).to_arrow_reader(ROW_GROUP)
    with pq.ParquetWriter(path, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch, ROW_GROUP)
