"""Parquet files: a flipped bit in a stored page is an error that names the file, whoever reads it."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import database, parquet
from pipelines.errors import LongtailError

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
    parquet._checked.clear()
    return tmp_path


def through_duckdb(path: Path) -> pa.Table:
    with database.connect(1.0, 1) as db:
        database.view(db, "rows", path)
        return database.read(db, "SELECT * FROM rows ORDER BY n")


READERS = {
    "read": parquet.read,
    "batches": lambda path: pa.Table.from_batches(parquet.batches(path, 100)),
    "row groups": lambda path: pa.concat_tables(parquet.row_groups(path)),
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


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_file_as_it_was_written_is_read(file, reader):
    assert reader(file).to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_flipped_bit_in_a_page_gives_no_other_text(file, reader):
    """In a page's header, which has no checksum, a bit may mean nothing."""
    whole, draw = file.read_bytes(), random.Random(0)
    end, refused = len(whole) - pq.read_metadata(file).serialized_size - 8, 0
    for _ in range(40):
        file.write_bytes(whole)
        flip(file, draw.randrange(4, end), draw.randrange(8))
        parquet._checked.clear()
        try:
            rows, said = reader(file).to_pylist(), ""
        except LongtailError as error:
            rows, said = [], str(error)
        assert rows == TABLE.to_pylist() or re.match(DAMAGED, said), said
        refused += bool(said)
    assert refused >= 36


def test_files_without_checksums_are_read_as_they_are(here):
    pq.write_table(TABLE, "data.parquet")
    assert through_duckdb(Path("data.parquet")).equals(TABLE)


def test_only_the_columns_and_row_groups_that_are_read_are_compared(file):
    last = pq.read_metadata(file).row_group(1).column(1)
    flip(file, last.dictionary_page_offset + last.total_compressed_size - 20)
    parquet.check(file, ["n", "kind"])
    parquet.check(file, groups=[0])
    for part in ({"columns": ["text"]}, {"groups": [1]}, {}):
        with pytest.raises(LongtailError, match=DAMAGED):
            parquet.check(file, **part)


def test_a_file_is_compared_as_a_whole_only_once_until_it_changes(file, monkeypatch):
    pages = []
    monkeypatch.setattr(parquet, "_pages", lambda *_: pages.append(1) or [])
    for _ in range(3):
        parquet.check(file)
    assert len(pages) == 1
    parquet.write(TABLE.slice(1), file)
    parquet.check(file)
    assert len(pages) == 2


@pytest.mark.parametrize("reader", [parquet.metadata, parquet.schema_of, *READERS.values()])
def test_missing_and_cut_files_are_one_line(file, reader):
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(LongtailError, match=DAMAGED):
        reader(file)
    with pytest.raises(LongtailError, match=r"^none\.parquet: no such file; `longtail run` makes it$"):
        reader(Path("none.parquet"))


def test_a_schema_orders_and_types_the_columns_and_fills_those_that_are_not_there(file):
    schema = pa.schema([("kind", pa.large_string()), ("n", pa.int32()), ("more", pa.list_(pa.string()))])
    table = parquet.read(file, schema=schema)
    assert table.schema == schema
    assert table["n"].to_pylist() == TABLE["n"].to_pylist()
    assert table["more"].null_count == ROWS
    with pytest.raises(LongtailError, match=DAMAGED):
        parquet.read(file, schema=pa.schema([("text", pa.int64())]))


def test_a_folder_may_have_any_name(here):
    folder = here / "o'br\"ien ü; --"
    folder.mkdir()
    parquet.write(TABLE, folder / "rows.parquet")
    with database.connect(1.0, 1) as db:
        database.view(db, "rows", folder / "rows.parquet", named=True, numbered=True)
        database.write(db, "SELECT n FROM rows WHERE n < ? ORDER BY n", folder / "written.parquet", [3])
        assert database.row(db, "SELECT min(filename), max(file_row_number) FROM rows") == (
            str(folder / "rows.parquet"),
            ROWS - 1,
        )
    assert parquet.read(folder / "written.parquet")["n"].to_pylist() == [0, 1, 2]


# Files from elsewhere: what is small on disk may be large in memory.

MOST = 700  # MB in memory beyond what a fresh process has: twice `bounds.whole`, and what the libraries keep
READ = """
import resource, sys
from functools import partial
from pathlib import Path
from pipelines import errors
from pipelines.sources.rejects import Rejects
from pipelines.sources.question_files import read_records
from pipelines.sources.text_documents import read_documents, read_wikitext
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rejects = Rejects(1.0)
readers = {"documents": read_documents, "wikitext": read_wikitext}
read = readers.get(sys.argv[1], lambda path, rejects: read_records(path, ["text"], rejects))
try:
    rows = sum(1 for _ in read(Path(sys.argv[2]), rejects))
    print(rows, rejects.read, *rejects.reasons().items())
except errors.LongtailError as error:
    print("error:", error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def read_in_bounded_memory(reader: str, file: Path) -> str:
    """What a process says that reads the file."""
    words = [sys.executable, "-c", READ, reader, str(file)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(words, capture_output=True, text=True, env={"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-500:]
    *said, megabytes = done.stdout.splitlines()
    assert int(megabytes) < MOST
    return "\n".join(said)


@pytest.mark.parametrize("reader", ["documents", "records", "wikitext"])
def test_a_small_file_with_a_huge_value_is_refused_by_name(here, reader):
    pq.write_table(pa.table({"text": ["x" * (300 << 20)]}), "bomb.parquet", compression="zstd")
    assert Path("bomb.parquet").stat().st_size < 200_000
    said = read_in_bounded_memory(reader, Path("bomb.parquet"))
    assert re.match(r"error: bomb\.parquet: the page at byte 4: more than 256 MB .*ingest\.record_mb", said)


@pytest.mark.parametrize("reader", ["documents", "records"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_many_rows_with_one_long_value_are_never_all_in_memory(here, reader, dictionary):
    long = "x" * (20 << 20)
    options = {"compression": "zstd", "use_dictionary": dictionary, "dictionary_pagesize_limit": 1 << 30}
    with pq.ParquetWriter("many.parquet", pa.schema([("text", pa.string())]), **options) as writer:
        for _ in range(10):
            writer.write_table(pa.table({"text": [long] * 10}))
    assert read_in_bounded_memory(reader, Path("many.parquet")) == "100 100"


def test_a_document_beyond_the_bound_is_a_reject_and_the_others_are_read(here):
    pq.write_table(pa.table({"text": ["one", "x" * (65 << 20), "two"]}), "long.parquet", compression="zstd")
    assert read_in_bounded_memory("documents", Path("long.parquet")) == "2 3 ('too_long', 1)"
