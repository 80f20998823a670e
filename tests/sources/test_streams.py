"""Damaged files never pass for short ones."""

import tracemalloc
from collections import deque
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fetching import PACK as PACKED
from fetching import reasons
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import LongtailError
from pipelines.params import bounds
from pipelines.sources import rejects
from pipelines.sources.decompression import READ_BYTES
from pipelines.sources.json_rows import open_rows
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_blocks, open_lines, open_runs, open_text

PACK = PACKED | {"": bytes}
LINES = b"first\n\nthird \xc3\xa9\nlast without newline"


def saved(folder: Path, suffix: str, data: bytes) -> Path:
    path = folder / f"data.jsonl{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", PACK)
def test_lines_come_decompressed(tmp_path: Path, suffix: str) -> None:
    path = saved(tmp_path, suffix, PACK[suffix](LINES))
    assert list(open_lines(path)) == [b"first", b"", "third é".encode(), b"last without newline"]
    assert list(open_text(path))[2] == "third é"
    assert b"".join(open_blocks(path)) == LINES
    long = b"x" * (3 * READ_BYTES + 7)
    # streams that follow one another are one text
    pieces = [b"one\ntw", b"o\n", long + b"\nshort\n"]
    path = saved(tmp_path, suffix, b"".join(map(PACK[suffix], pieces)))
    assert list(open_lines(path)) == [b"one", b"two", long, b"short"]


LINE = st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))


@given(st.lists(LINE, min_size=1), st.integers(1, 60), st.integers(1, 9))
def test_runs_are_whole_lines_and_end_where_the_data_say(
    tmp_path_factory, lines, size, read_at_once
) -> None:
    data = b"begin\n" + b"\n".join(lines)
    path = saved(tmp_path_factory.mktemp("runs"), "", data)
    runs = [b"".join(run) for run in open_runs(path, size)]
    assert b"".join(runs) == data
    for run in runs[:-1]:
        assert run.endswith(b"\n")
        assert b"\n" not in run[size - 1 : -1], (
            "the first end of a line from `size` bytes on ends the run"
        )
        assert len(run) >= size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.sources.decompression.READ_BYTES", read_at_once)
        assert [b"".join(run) for run in open_runs(path, size)] == runs


def test_a_run_does_not_hold_a_line_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.params.bounds.RECORD", int(0.1 * 2**20))
    path = saved(tmp_path, "", b"a\n" + b"x" * 10_000_000)
    with pytest.raises(LongtailError, match="check what the file is"):
        deque(chain.from_iterable(open_runs(path, 10)), maxlen=0)


@pytest.mark.parametrize(
    ("suffix", "most"), [("", 10), (".bz2", 10), (".gz", 30), (".xz", 20), (".zst", 50)]
)
def test_lines_too_long_are_not_held(
    tmp_path: Path, suffix: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.params.bounds.RECORD", 3 * 2**20)
    pack = PACK[suffix]
    long = pack(b"x" * 10_000_000) * 10  # each format's streams may follow one another
    path = saved(
        tmp_path, suffix, pack(b"a\n") + long + pack(b"\n \n" + b"x" * 3_000_000 + b"\nb\n") + long
    )
    found = Rejects(1.0)
    tracemalloc.start()
    rows = [(number, len(line)) for number, line in open_rows(path, found)]
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == [(1, 1), (4, 3_000_000), (5, 1)]
    assert found.rows == [
        (path.name, row, "too_long", bounds.too_long("a line for each row")) for row in (2, 6)
    ]
    assert found.read == 5
    assert held < most * 1_000_000, "of a line of 100 MB"
    with pytest.raises(LongtailError, match=r"data\.jsonl.*: line 2: longer than"):
        list(open_lines(path))


@pytest.mark.parametrize("suffix", PACKED)
def test_a_cut_file_is_an_error_that_names_it(tmp_path: Path, suffix: str) -> None:
    """So is rubbish after a whole one."""
    whole = PACK[suffix](
        bytes(range(256)) * 40 + b"".join(bytes([i % 251, i % 241]) for i in range(60_000))
    )
    cut = [(whole[: int(len(whole) * keep)], "cut in the middle") for keep in (0.3, 0.9, 0.999)]
    for data, said in (
        *cut,
        (whole + b"these bytes are no stream at all, and long enough", "corrupt"),
    ):
        with pytest.raises(LongtailError, match=rf"data\.jsonl\{suffix}: {said}"):
            list(open_lines(saved(tmp_path, suffix, data)))


# Bad rows are counted all and kept up to a bound, whoever reads which part of an input


def of(rows: int, bad: int, reason: str = "bad", max_share: float = 1.0) -> Rejects:
    part = Rejects(max_share)
    part.read = rows
    for row in range(1, bad + 1):
        part.add("in/file", row, reason, "x" * 500)
    return part


def test_more_bad_rows_than_are_kept_are_still_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.sources.rejects.ROWS_KEPT", 5)
    whole = of(10, 3, "first")
    whole.take(of(20, 4, "second"), rows_before=10)
    expected = [*((row, "first") for row in (1, 2, 3)), (11, "second"), (12, "second")]
    assert reasons(whole) == expected
    assert whole.metrics() == {"rejected": 7, "rejected.first": 3, "rejected.second": 4}
    whole.write(tmp_path / "rejects.parquet")
    assert pq.read_table(tmp_path / "rejects.parquet").num_rows == 5
    again = Rejects.decoded(whole.encoded(), 1.0)
    assert (again.rows, again.bad, again.read) == (whole.rows, whole.bad, 30)


def test_rows_that_are_not_kept_count_towards_the_share(monkeypatch):
    """A long bad input is given up."""
    monkeypatch.setattr("pipelines.sources.rejects.ROWS_KEPT", 1)
    with pytest.raises(LongtailError, match=r"file: 6 of 10 rows rejected, expected at most 50%"):
        of(10, 6, max_share=0.5).check()
    of(10, 5, max_share=0.5).check()
    whole = Rejects(0.1)
    with pytest.raises(LongtailError, match=r"file: 6000 of 10000 rows rejected"):
        whole.take(of(rejects.ROWS_BEFORE_CHECK, 6000))
    part = of(rejects.ROWS_BEFORE_CHECK, 1000, max_share=0.1)
    with pytest.raises(LongtailError, match="1001 of 10000 rows rejected"):
        part.add("in/file", 1, "bad")
