"""The rows of the tables in data/analyses, as the stage `analyse` had them."""

from pathlib import Path

import pyarrow.parquet as pq

from pipelines.evaluation import tables


def read_analyses(folder: Path, name: str) -> list[dict]:
    """The rows that `tables.write_analyses` wrote of a table."""
    return tables.with_intervals(pq.read_table(folder / f"{name}.parquet").to_pylist())
