"""Parquet files: the same rows give the same bytes, and a flipped bit is an error that names the
file."""

import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.storage import database, parquet

ROWS = 2000
TABLE = pa.table(
    {
        "n": range(ROWS),
        "text": [f"the text of row {row}" if row % 7 else None for row in range(ROWS)],
        "kind": [f"kind {row % 5}" for row in range(ROWS)],
        "aliases": [[f"alias {i}" for i in range(row % 4)] for row in range(ROWS)],
    }
)
DAMAGED = r"^data\.parquet: damaged \(.+\), expected a Parquet file as it was written; remove it, and `longtail run` .+"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def through_duckdb(path: Path) -> pa.Table:
    with database.connect(1.0, 1) as db:
        database.view(db, "rows", path)
        return database.read_rows(db, "SELECT * FROM rows ORDER BY n")


OF_PYARROW = {
    "read": parquet.read_parquet,
    "batches": lambda path: pa.Table.from_batches(parquet.batches(path, 100)),
    "row groups": lambda path: pa.concat_tables(parquet.row_groups(path)),
}
READERS = OF_PYARROW | {
    "DuckDB": through_duckdb,
    "ask": lambda path: database.ask("FROM rows ORDER BY n", rows=path).to_arrow_table(),
}


@pytest.fixture
def file(here) -> Path:
    with parquet.writer(Path("data.parquet"), TABLE.schema) as writer:
        writer.write_table(TABLE.slice(0, 1500))
        writer.write_table(TABLE.slice(1500))
    return Path("data.parquet")


def flip(file: Path, place: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1 << bit
    file.write_bytes(data)


@pytest.mark.parametrize("reader", OF_PYARROW.values(), ids=OF_PYARROW)
def test_a_flipped_bit_in_a_page_gives_no_other_text(file, reader):
    """In a page's header, which has no checksum, a bit may mean nothing."""
    assert reader(file).to_pylist() == TABLE.to_pylist()
    whole, draw = file.read_bytes(), random.Random(0)
    end, refused = len(whole) - pq.read_metadata(file).serialized_size - 8, 0
    for _ in range(20):
        file.write_bytes(whole)
        flip(file, draw.randrange(4, end), draw.randrange(8))
        try:
            rows, said = reader(file).to_pylist(), ""
        except LongtailError as error:
            rows, said = [], str(error)
        assert rows == TABLE.to_pylist() or re.match(DAMAGED, said), said
        refused += bool(said)
    assert refused >= 18


def test_files_without_checksums_are_read_as_they_are(here):
    folder = here / "o'br\"ien ü; --"
    folder.mkdir()
    pq.write_table(TABLE, folder / "rows.parquet")
    assert through_duckdb(folder / "rows.parquet").equals(TABLE)
    with database.connect(1.0, 1) as db:
        database.view(db, "rows", folder / "rows.parquet", named=True, numbered=True)
        database.write_query(
            db, "SELECT n FROM rows WHERE n < ? ORDER BY n", folder / "written.parquet", [3]
        )
        last = database.row(db, "SELECT min(filename), max(file_row_number) FROM rows")
    assert last == (str(folder / "rows.parquet"), ROWS - 1)
    assert parquet.read_parquet(folder / "written.parquet")["n"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("reader", [parquet.metadata, parquet.schema_of, *READERS.values()])
def test_missing_and_cut_files_are_one_line(file, reader):
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(LongtailError, match=DAMAGED):
        reader(file)
    with pytest.raises(
        LongtailError, match=r"^none\.parquet: no such file; `longtail run` makes it$"
    ):
        reader(Path("none.parquet"))


def test_a_schema_orders_and_types_the_columns(file):
    """It fills those that are not there."""
    schema = pa.schema(
        [("kind", pa.large_string()), ("n", pa.int32()), ("more", pa.list_(pa.string()))]
    )
    table = parquet.read_parquet(file, schema=schema)
    assert table.schema == schema
    assert table["n"].to_pylist() == TABLE["n"].to_pylist()
    assert table["more"].null_count == ROWS
    with pytest.raises(LongtailError, match=DAMAGED):
        parquet.read_parquet(file, schema=pa.schema([("text", pa.int64())]))


def groups(file: str) -> tuple[list[int], list[int]]:
    """The numbers of rows of the file's row groups, and its first column."""
    written = pq.ParquetFile(file)
    sizes = [written.metadata.row_group(i).num_rows for i in range(written.num_row_groups)]
    return sizes, written.read()[0].to_pylist()


def test_row_groups_are_full_but_for_the_last(monkeypatch):
    """Threads change no byte."""
    monkeypatch.setattr(database, "ROWS_PER_GROUP", 1000)
    for rows, full in ((0, [0]), (999, [999]), (2000, [1000, 1000]), (2001, [1000, 1000, 1])):
        with database.connect(1.0, 2) as db:
            database.write_query(
                db, f"SELECT range AS n FROM range({rows}) ORDER BY n", "t.parquet"
            )
        assert groups("t.parquet") == (full, list(range(rows)))
    query = (
        "SELECT range AS n, repeat('x', range % 50) AS text FROM range(200_000) ORDER BY hash(n), n"
    )
    for threads in (1, 4):
        with database.connect(1.0, threads) as db:
            database.write_query(db, query, f"{threads}.parquet")
    assert Path("1.parquet").read_bytes() == Path("4.parquet").read_bytes()
    monkeypatch.setattr(database, "ROWS_PER_GROUP", 5)
    for rows, full in (
        ([], [0]),
        ([3], [3]),
        ([3, 3, 3, 3, 1], [5, 5, 3]),
        ([12, 5], [5, 5, 5, 2]),
    ):
        parts = [pa.table({"row": np.arange(n)}) for n in rows]
        with database.row_group_writer(
            Path("table.parquet"), pa.schema([("row", pa.int64())])
        ) as add:
            for part in parts:
                add(part)
        assert groups("table.parquet") == (
            full,
            [row for part in parts for row in part["row"].to_pylist()],
        )


def test_what_spills_leaves_nothing_behind():
    """Too little memory is one line that names the param."""
    with database.connect(0.05, 1) as db:
        database.write_query(
            db, "SELECT repeat('x', 200) || range AS t FROM range(500_000) ORDER BY t", "t.parquet"
        )
    assert pq.read_metadata("t.parquet").num_rows == 500_000
    query = "SELECT list(repeat('x', 100) || range) AS one FROM range(1_000_000)"
    named = r"^ingest\.memory_gb: 0\.05 is not enough \(.*\); raise it, lower compute\.threads, or free "
    with pytest.raises(LongtailError, match=named), database.connect(0.05, 1) as db:
        database.write_query(db, query, "t.parquet")
    assert not any(Path(".longtail/tmp").iterdir())


def test_the_error_of_a_stream_that_is_read_stays_one_line():
    schema = pa.schema([("n", pa.int64())])
    said = "data/raw/c4/a.json: empty, expected data; fetch it again"

    def batches():
        yield pa.record_batch([[1]], schema=schema)
        raise LongtailError(said)

    def read():
        with database.connect(1, 1) as db:
            db.register("numbers", pa.RecordBatchReader.from_batches(schema, batches()))
            db.sql("SELECT sum(n) FROM numbers").fetchall()

    with pytest.raises(LongtailError, match=f"^{said}$"):
        read()


# Files from elsewhere: what is small on disk may be large in memory.

RECORD = 8  # MB of a record, and a quarter of what may be in one piece
MOST = 250  # MB in memory beyond what a fresh process has: some times what may be in one piece
READ = """
import re, sys
from pathlib import Path
from pipelines import errors
from pipelines.params import bounds
from pipelines.sources.rejects import Rejects
from pipelines.sources.question_files import read_records
from pipelines.sources.source_documents import read_documents
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.wikitext import read_wikitext
def peak():  # not getrusage's, which begins with that of the process that started this one
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024
before = peak()
bounds.RECORD = int(sys.argv[1]) << 20
bounds.WHOLE = 4 * bounds.RECORD
readers = {"documents": lambda path, rejects: read_documents("x", Part(path), rejects)}
readers["wikitext"] = lambda path, rejects: read_wikitext("x", Part(path), rejects)
readers["records"] = lambda path, rejects: read_records(path, ["text"], rejects)
for name, file in zip(sys.argv[2::2], sys.argv[3::2]):
    rejects = Rejects(1.0)
    try:
        rows = sum(1 for _ in readers[name](Path(file), rejects))
        print(rows, rejects.read, *rejects.reasons().items())
    except errors.LongtailError as error:
        print("error:", error)
print(peak() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="the peak of a process is read from Linux's /proc",
)
def test_files_large_in_memory_are_refused_or_read_in_parts(here, root):
    zstd = {"compression": "zstd"}
    pq.write_table(pa.table({"text": ["x" * (5 * RECORD << 20)]}), "bomb.parquet", **zstd)
    assert Path("bomb.parquet").stat().st_size < 200_000
    for dictionary in (True, False):
        options = zstd | {"use_dictionary": dictionary, "dictionary_pagesize_limit": 1 << 30}
        with pq.ParquetWriter(
            f"many {dictionary}.parquet", pa.schema([("text", pa.string())]), **options
        ) as writer:
            for _ in range(10):
                writer.write_table(pa.table({"text": ["x" * (RECORD << 18)] * 10}))
    pq.write_table(
        pa.table({"text": ["one", "x" * ((RECORD << 20) + 1), "two"]}), "long.parquet", **zstd
    )
    bombs = [(reader, "bomb.parquet") for reader in ("documents", "records", "wikitext")]
    many = [
        (reader, f"many {kind}.parquet")
        for reader in ("documents", "records")
        for kind in (True, False)
    ]
    read = [*bombs, *many, ("documents", "long.parquet")]
    words = [sys.executable, "-c", READ, str(RECORD), *(word for pair in read for word in pair)]
    environment = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    *said, megabytes = done.stdout.splitlines()
    for line in said[:3]:
        assert re.match(
            r"error: bomb\.parquet: text in row group 0: more than 32 MB in one piece", line
        )
    assert said[3:] == ["100 100"] * 4 + ["2 3 ('too_long', 1)"]
    assert int(megabytes) < MOST
