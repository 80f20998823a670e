"""A table written part by part has full row groups, whatever came at once."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import database
from pipelines.scoring import row_groups


@pytest.mark.parametrize(("rows", "groups"), [([], []), ([3], [3]), ([3, 3, 3, 3, 1], [6, 6, 1]), ([12, 5], [12, 5])])
def test_a_table_is_written_in_row_groups_while_its_parts_are_made(tmp_path, monkeypatch, rows, groups):
    monkeypatch.setattr(database, "ROW_GROUP", 5)
    parts = [pa.table({"row": np.arange(n)}) for n in rows]
    with row_groups.written(tmp_path / "table.parquet", pa.schema([("row", pa.int64())])) as add:
        for part in parts:
            add(part)
    found = pq.ParquetFile(tmp_path / "table.parquet")
    assert [found.metadata.row_group(i).num_rows for i in range(found.num_row_groups)] == groups
    assert found.read()["row"].to_pylist() == [row for part in parts for row in part["row"].to_pylist()]
