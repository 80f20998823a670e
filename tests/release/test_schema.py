"""A release is judged by the schema that it was made with, whatever the code has become since."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pyarrow.parquet as pq
import pytest
from releases import INGEST, release, write_data

from pipelines.errors import LongtailError
from pipelines.relations import RELATIONS
from pipelines.release import contents, dataset, schema, validate


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A release, since which a column came, another one's type changed, and a relation is asked about otherwise."""
    monkeypatch.chdir(tmp_path)
    made = release(write_data(tmp_path / "data"), tmp_path / "out")
    columns = contents.POPQA.columns | {"month": (contents.INTEGER, "a number now"), "era": (contents.TEXT, "new")}
    monkeypatch.setattr(contents, "TABLES", (replace(contents.POPQA, columns=columns), *contents.TABLES[1:]))
    monkeypatch.setitem(validate.ROWS, "popqa", [*validate.ROWS["popqa"], ("era = ''", "'it has no era'")])
    monkeypatch.setattr(schema, "RELATIONS", {"P106": replace(RELATIONS["P106"], template="What did {} do?")})
    return made


def changed(folder, sql):
    table = duckdb.sql(f"{sql} FROM '{folder}/popqa.parquet'").to_arrow_table()
    pq.write_table(table, folder / "popqa.parquet")
    contents.write_sums(folder)


def test_an_old_release_is_held_to_its_own_columns_and_relations(old):
    assert dataset.check_release(old, ingest=INGEST, threads=1) == 20
    (old / schema.FILE).unlink()
    contents.write_sums(old)
    with pytest.raises(LongtailError, match="its columns have month VARCHAR where month BIGINT is expected"):
        dataset.check_release(old, ingest=INGEST, threads=1)


def test_its_bad_rows_are_found_all_the_same(old):
    changed(old, "SELECT * REPLACE (if(obj_id = 21, 'What did Bob do?', question) AS question)")
    with pytest.raises(LongtailError, match=r"row 3 \(Q2-P106-Q21\): its question is What did Bob do\?, expected What"):
        dataset.check_release(old, ingest=INGEST, threads=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "not a schema"),
        ('{"tables": {}}', "not a schema .*relations"),
        ('{"tables": {"a": {"key": ["b; DROP"], "columns": []}}, "relations": {}}', "'b; DROP'"),
    ],
)
def test_what_is_no_schema_is_named(old, text, why):
    (old / schema.FILE).write_text(text)
    with pytest.raises(LongtailError, match=rf"schema\.json: {why}"):
        schema.read(old)
