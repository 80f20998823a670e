"""Bad rows are counted all and kept up to a bound, whoever reads which part of an input."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.sources import rejects
from pipelines.sources.rejects import Rejects


def of(rows: int, bad: int, reason: str = "bad", max_share: float = 1.0) -> Rejects:
    part = Rejects(max_share)
    part.read = rows
    for row in range(1, bad + 1):
        part.add("in/file", row, reason, "x" * 500)
    return part


def test_more_bad_rows_than_are_kept_are_still_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("LONGTAIL_REJECTS_KEPT", "5")
    whole = of(10, 3, "first")
    whole.take(of(20, 4, "second"), rows_before=10)
    assert [(row, reason) for _, row, reason, _ in whole.rows] == [
        (1, "first"), (2, "first"), (3, "first"), (11, "second"), (12, "second")
    ]  # fmt: skip
    assert whole.metrics() == {"rejected": 7, "rejected.first": 3, "rejected.second": 4}
    whole.write(tmp_path / "rejects.parquet")
    assert pq.read_table(tmp_path / "rejects.parquet").num_rows == 5
    again = Rejects.decoded(whole.encoded(), 1.0)
    assert (again.rows, again.bad, again.read) == (whole.rows, whole.bad, 30)


def test_rows_that_are_not_kept_count_towards_the_share(monkeypatch):
    monkeypatch.setenv("LONGTAIL_REJECTS_KEPT", "1")
    with pytest.raises(LongtailError, match=r"file: 6 of 10 rows rejected, expected at most 50%"):
        of(10, 6, max_share=0.5).check()
    of(10, 5, max_share=0.5).check()


def test_a_long_input_is_given_up_once_too_much_of_it_is_bad():
    whole = Rejects(0.1)
    with pytest.raises(LongtailError, match=r"file: 6000 of 10000 rows rejected"):
        whole.take(of(rejects.FIRST_CHECK, 6000))
    part = of(rejects.FIRST_CHECK, 1000, max_share=0.1)
    with pytest.raises(LongtailError, match="1001 of 10000 rows rejected"):
        part.add("in/file", 1, "bad")
