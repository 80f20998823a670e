"""Parquet files: the same rows give the same row groups, however they are handed over."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import database
from pipelines.errors import LongtailError

pytestmark = pytest.mark.usefixtures("workplace")


def groups(file: str) -> tuple[list[int], list[int]]:
    """The numbers of rows of the file's row groups, and its first column."""
    written = pq.ParquetFile(file)
    sizes = [written.metadata.row_group(i).num_rows for i in range(written.num_row_groups)]
    return sizes, written.read()[0].to_pylist()


@pytest.mark.parametrize(("rows", "full"), [(0, [0]), (999, [999]), (2000, [1000, 1000]), (2001, [1000, 1000, 1])])
def test_row_groups_are_full_but_for_the_last(monkeypatch, rows, full):
    monkeypatch.setattr(database, "ROW_GROUP", 1000)
    with database.connect(1.0, 2) as db:
        database.write(db, f"SELECT range AS n FROM range({rows}) ORDER BY n", "t.parquet")
    assert groups("t.parquet") == (full, list(range(rows)))


@pytest.mark.parametrize(("rows", "full"), [([], []), ([3], [3]), ([3, 3, 3, 3, 1], [6, 6, 1]), ([12, 5], [12, 5])])
def test_a_table_is_written_in_row_groups_while_its_parts_are_made(monkeypatch, rows, full):
    monkeypatch.setattr(database, "ROW_GROUP", 5)
    parts = [pa.table({"row": np.arange(n)}) for n in rows]
    with database.row_group_writer(Path("table.parquet"), pa.schema([("row", pa.int64())])) as add:
        for part in parts:
            add(part)
    assert groups("table.parquet") == (full, [row for part in parts for row in part["row"].to_pylist()])


def test_threads_change_no_byte(monkeypatch):
    monkeypatch.setattr(database, "ROW_GROUP", 1000)
    query = "SELECT range AS n, repeat('x', range % 50) AS text FROM range(200_000) ORDER BY hash(n), n"
    for threads in (1, 4):
        with database.connect(1.0, threads) as db:
            database.write(db, query, f"{threads}.parquet")
    assert Path("1.parquet").read_bytes() == Path("4.parquet").read_bytes()


def test_what_spills_leaves_nothing_behind_and_too_little_memory_is_one_line_that_names_the_param():
    with database.connect(0.05, 1) as db:
        database.write(db, "SELECT repeat('x', 200) || range AS t FROM range(500_000) ORDER BY t", "t.parquet")
    assert pq.read_metadata("t.parquet").num_rows == 500_000
    query = "SELECT list(repeat('x', 100) || range) AS one FROM range(1_000_000)"
    named = r"^ingest\.memory_gb: 0\.05 is not enough \(.*\); raise it, or lower compute\.threads$"
    with pytest.raises(LongtailError, match=named), database.connect(0.05, 1) as db:
        database.write(db, query, "t.parquet")
    assert not any(Path(".longtail/tmp").iterdir())


def test_the_error_of_a_stream_that_is_read_stays_one_line():
    schema, said = pa.schema([("n", pa.int64())]), "data/raw/c4/a.json: empty, expected data; fetch it again"

    def batches():
        yield pa.record_batch([[1]], schema=schema)
        raise LongtailError(said)

    def read():
        with database.connect(1, 1) as db:
            db.register("numbers", pa.RecordBatchReader.from_batches(schema, batches()))
            db.sql("SELECT sum(n) FROM numbers").fetchall()

    with pytest.raises(LongtailError, match=f"^{said}$"):
        read()
