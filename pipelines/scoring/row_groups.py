"""A Parquet file that is written while its rows are made: its row groups are full, however few rows come at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import database


@contextmanager
def written(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Yield what adds rows to a Parquet file, in row groups of at least database.ROW_GROUP; one is in memory."""
    held: list[pa.Table] = []
    with pq.ParquetWriter(path, schema, compression="zstd") as file:

        def add(rows: pa.Table) -> None:
            held.append(rows)
            if sum(map(len, held)) >= database.ROW_GROUP:
                file.write_table(pa.concat_tables(held))
                held.clear()

        yield add
        if held:
            file.write_table(pa.concat_tables(held))
