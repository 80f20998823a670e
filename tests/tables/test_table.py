"""Tables are declared once, and what is written has the declared columns."""

import duckdb
import pyarrow as pa
import pytest

from pipelines.errors import LongtailError
from pipelines.storage import database, parquet
from pipelines.tables.answers import PREDICTIONS
from pipelines.tables.every_table import TABLES, table_of
from pipelines.tables.knowledge import CLAIMS
from pipelines.tables.questions import POPQA, QUESTIONS
from pipelines.tables.table import INTERVAL, Column, Table

FIGURES = Table(
    "figures/<lm>.parquet",
    "Figures.",
    [Column("lm, method", pa.string(), "key"), Column("gain", INTERVAL, "change")],
)


def test_a_column_may_stand_for_several():
    assert FIGURES.schema.names == ["lm", "method", "gain", "gain_low", "gain_high"]
    assert FIGURES.schema.types[2:] == [pa.float64()] * 3


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"s": [1], "p": [2]}, "no column o \\(int64\\)"),
        ({"s": [1], "p": [2], "o": ["Q3"]}, "o is string, expected int64"),
        ({"s": [1], "p": [2], "o": [3], "q": [4]}, "column q is not declared"),
    ],
)
def test_other_columns_are_not_written(tmp_path, columns, fault):
    rows = pa.table(columns)
    path = tmp_path / CLAIMS.name
    with pytest.raises(LongtailError, match=f"claims.parquet: {fault}; expected the columns of"):
        parquet.write_parquet(rows, path, CLAIMS)
    with duckdb.connect() as db:
        db.register("rows", rows)
        with pytest.raises(LongtailError, match=fault):
            database.write_query(db, "FROM rows ORDER BY ALL", path, declared=CLAIMS)
    assert not path.exists()


def test_a_declaration_leaves_no_trace_in_the_file(tmp_path):
    rows = {"s": [1], "p": [2], "o": [3]}
    plain = pa.schema([(name, pa.int64()) for name in rows])
    parquet.write_parquet(pa.table(rows, schema=plain), tmp_path / "plain")
    parquet.write_parquet(pa.table(rows, schema=CLAIMS.schema), tmp_path / "declared", CLAIMS)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "declared").read_bytes()


def test_a_file_finds_its_declaration():
    assert table_of("questions/popqa/popqa.parquet") is POPQA
    assert table_of("questions/museums/museums.parquet") is QUESTIONS
    assert table_of("questions/museums/other.parquet") is None
    assert table_of("imported/popqa/gpt-4/closed_book.parquet") is PREDICTIONS


def test_each_table_and_column_says_what_it_is():
    files = [file for table in TABLES for file in table.files]
    assert len(files) == len(set(files)) > 30
    assert [table.file for table in TABLES if not table.content] == []
    assert [column for table in TABLES for column in table.columns if not column.meaning] == []
