"""Documents by position: what a search found, as ids, titles and texts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import LongtailError


class Documents(NamedTuple):
    """Arrays of str, in the shape of the positions asked for."""

    ids: np.ndarray
    titles: np.ndarray
    texts: np.ndarray


def count(docs: Path) -> int:
    """Rows of a docs.parquet. Raises LongtailError if it is missing or empty."""
    if not Path(docs).is_file():
        raise LongtailError(f"{docs}: no such file; run the stage `chunk` first")
    rows = pq.read_metadata(docs).num_rows
    if not rows:
        raise LongtailError(f"{docs}: no documents, expected at least one; see the rejects beside it")
    return rows


def read(docs: Path, positions: np.ndarray) -> Documents:
    """The documents at `positions` (any shape) of docs.parquet; each distinct one is read once.

    Raises LongtailError for a position that the file does not have.
    """
    positions = np.asarray(positions, np.int64)
    wanted, places = np.unique(positions, return_inverse=True)
    asked = pa.table({"position": wanted})
    with duckdb.connect() as connection:
        connection.register("asked", asked)
        found = connection.sql(
            """SELECT id, coalesce(title, '') AS title, text FROM read_parquet(?, file_row_number = true) AS docs
               JOIN asked ON docs.file_row_number = asked.position ORDER BY asked.position""",
            params=[str(docs)],
        ).to_arrow_table()
    if found.num_rows != len(wanted):
        raise LongtailError(
            f"{docs}: has {count(docs)} documents, but position {wanted.max()} was asked for; run `index` again"
        )
    columns = (found[name].to_numpy(zero_copy_only=False).astype(object) for name in ("id", "title", "text"))
    return Documents(*(column[places].reshape(positions.shape) for column in columns))
