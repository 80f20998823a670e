"""Parquet files: the same rows give the same row groups, however they are handed over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import database
from pipelines.errors import LongtailError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(database, "ROW_GROUP", 1000)
    return tmp_path


@pytest.mark.parametrize(("rows", "groups"), [(0, [0]), (999, [999]), (2000, [1000, 1000]), (2001, [1000, 1000, 1])])
def test_row_groups_are_full_but_for_the_last(here, rows, groups):
    with database.connect(1.0, 2) as db:
        database.write(db, f"SELECT range AS n FROM range({rows}) ORDER BY n", here / "t.parquet")
    written = pq.ParquetFile(here / "t.parquet").metadata
    assert [written.row_group(i).num_rows for i in range(written.num_row_groups)] == groups
    assert pq.read_table(here / "t.parquet")["n"].to_pylist() == list(range(rows))


def test_threads_change_no_byte(here):
    query = "SELECT range AS n, repeat('x', range % 50) AS text FROM range(500_000) ORDER BY hash(n), n"
    for threads in (1, 4):
        with database.connect(1.0, threads) as db:
            database.write(db, query, here / f"{threads}.parquet")
    assert (here / "1.parquet").read_bytes() == (here / "4.parquet").read_bytes()


def test_what_spills_leaves_nothing_behind(here):
    with database.connect(0.05, 1) as db:
        database.write(db, "SELECT repeat('x', 200) || range AS t FROM range(500_000) ORDER BY t", here / "t.parquet")
    assert pq.read_metadata(here / "t.parquet").num_rows == 500_000
    assert not any((here / ".longtail/tmp").iterdir())


def test_too_little_memory_is_one_line_that_names_the_param(here):
    query = "SELECT list(repeat('x', 100) || range) AS one FROM range(1_000_000)"
    named = r"^ingest\.memory_gb: 0\.05 is not enough \(.*\); raise it, or lower compute\.threads$"
    with pytest.raises(LongtailError, match=named), database.connect(0.05, 1) as db:
        database.write(db, query, here / "t.parquet")
    assert not any((here / ".longtail/tmp").iterdir())


@pytest.mark.parametrize(("rows", "groups"), [([], []), ([3], [3]), ([3, 3, 3, 3, 1], [6, 6, 1]), ([12, 5], [12, 5])])
def test_a_table_is_written_in_row_groups_while_its_parts_are_made(here, monkeypatch, rows, groups):
    monkeypatch.setattr(database, "ROW_GROUP", 5)
    parts = [pa.table({"row": np.arange(n)}) for n in rows]
    with database.row_group_writer(here / "table.parquet", pa.schema([("row", pa.int64())])) as add:
        for part in parts:
            add(part)
    written = pq.ParquetFile(here / "table.parquet")
    assert [written.metadata.row_group(i).num_rows for i in range(written.num_row_groups)] == groups
    assert written.read()["row"].to_pylist() == [row for part in parts for row in part["row"].to_pylist()]


def test_the_error_of_a_stream_that_is_read_stays_one_line(here):
    schema = pa.schema([("n", pa.int64())])

    def batches():
        yield pa.record_batch([[1]], schema=schema)
        raise LongtailError("data/raw/c4/a.json: empty, expected data; fetch it again")

    def read():
        with database.connect(1, 1) as db:
            db.register("numbers", pa.RecordBatchReader.from_batches(schema, batches()))
            db.sql("SELECT sum(n) FROM numbers").fetchall()

    with pytest.raises(LongtailError, match=r"^data/raw/c4/a.json: empty, expected data; fetch it again$"):
        read()
