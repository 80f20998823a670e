"""Damaged files never pass for short ones."""

import bz2
import gzip
import os
import tracemalloc
from collections import deque
from itertools import chain
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import bounds
from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import (
    BLOCK,
    fingerprint,
    line_spans,
    open_blocks,
    open_lines,
    open_rows,
    open_runs,
    open_text,
    source_files,
)

PACK = {".bz2": bz2.compress, ".gz": gzip.compress, ".zst": zstandard.compress, "": bytes}
PACKED = [suffix for suffix in PACK if suffix]
LINES = b"first\n\nthird \xc3\xa9\nlast without newline"


def saved(folder: Path, suffix: str, data: bytes) -> Path:
    path = folder / f"data.jsonl{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", PACK)
def test_lines_come_decompressed_by_suffix(tmp_path: Path, suffix: str) -> None:
    path = saved(tmp_path, suffix, PACK[suffix](LINES))
    assert list(open_lines(path)) == [b"first", b"", "third é".encode(), b"last without newline"]
    assert list(open_text(path))[2] == "third é"
    assert b"".join(open_blocks(path)) == LINES
    long = b"x" * (3 * BLOCK + 7)
    pieces = [b"one\ntw", b"o\n", long + b"\nshort\n"]  # streams that follow one another are one text
    path = saved(tmp_path, suffix, b"".join(map(PACK[suffix], pieces)))
    assert list(open_lines(path)) == [b"one", b"two", long, b"short"]


LINE = st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))


@settings(deadline=None)
@given(st.lists(LINE, min_size=1), st.integers(1, 60), st.integers(1, 9))
def test_runs_are_whole_lines_and_end_where_the_data_say(tmp_path_factory, lines, size, read_at_once) -> None:
    data = b"begin\n" + b"\n".join(lines)
    path = saved(tmp_path_factory.mktemp("runs"), "", data)
    runs = [b"".join(run) for run in open_runs(path, size)]
    assert b"".join(runs) == data
    for run in runs[:-1]:
        assert run.endswith(b"\n")
        assert b"\n" not in run[size - 1 : -1], "the first end of a line from `size` bytes on ends the run"
        assert len(run) >= size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.sources.streams.BLOCK", read_at_once)
        patch.setattr("pipelines.sources.streams.HTML", (b"none",))
        assert [b"".join(run) for run in open_runs(path, size)] == runs


def test_a_run_does_not_hold_a_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_RECORD_MB", "0.1")
    path = saved(tmp_path, "", b"a\n" + b"x" * 10_000_000)
    with pytest.raises(LongtailError, match="check what the file is"):
        deque(chain.from_iterable(open_runs(path, 10)), maxlen=0)


@given(st.lists(st.lists(LINE, min_size=1).map(b"\n".join), min_size=1))
def test_spans_of_a_text_in_pieces_are_its_lines(pieces: list[bytes]) -> None:
    spans = [text[start:end] for text, start, end in line_spans(pieces)]
    text = b"".join(pieces)
    assert spans == text.removesuffix(b"\n").split(b"\n") if text else not spans


@pytest.mark.parametrize(("suffix", "most"), [("", 10), (".bz2", 10), (".gz", 30), (".zst", 50)])
def test_lines_too_long_are_not_held(tmp_path: Path, suffix: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_RECORD_MB", "3")
    pack = PACK[suffix]
    long = pack(b"x" * 10_000_000) * 10  # each format's streams may follow one another
    path = saved(tmp_path, suffix, pack(b"a\n") + long + pack(b"\n \n" + b"x" * 3_000_000 + b"\nb\n") + long)
    rejects = Rejects(1.0)
    tracemalloc.start()
    rows = [(number, len(line)) for number, line in open_rows(path, rejects)]
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == [(1, 1), (4, 3_000_000), (5, 1)]
    assert rejects.rows == [(path.name, row, "too_long", bounds.too_long("a line for each row")) for row in (2, 6)]
    assert rejects.read == 5
    assert held < most * 1_000_000, "of a line of 100 MB"
    with pytest.raises(LongtailError, match=r"data\.jsonl.*: line 2: longer than"):
        list(open_lines(path))


@pytest.mark.parametrize("suffix", PACKED)
def test_streams_can_be_read_by_their_place(tmp_path: Path, suffix: str) -> None:
    one, two, three = (PACK[suffix](data) for data in (b"one\n", b"two\n", b"three\n"))
    path = saved(tmp_path, suffix, one + two + three)
    assert b"".join(open_blocks(path, len(one), len(one + two))) == b"two\n"
    assert b"".join(open_blocks(path, len(one))) == b"two\nthree\n"
    for begin, end, said in ((len(one), len(one + two) - 1, "cut in the middle"), (len(one) + 1, None, "corrupt")):
        with pytest.raises(LongtailError, match=said):
            list(open_blocks(path, begin, end))


@pytest.mark.parametrize("suffix", PACKED)
def test_a_cut_file_and_rubbish_after_a_whole_one_are_errors_that_name_it(tmp_path: Path, suffix: str) -> None:
    whole = PACK[suffix](bytes(range(256)) * 40 + b"".join(bytes([i % 251, i % 241]) for i in range(60_000)))
    cut = [(whole[: int(len(whole) * keep)], "cut in the middle") for keep in (0.3, 0.9, 0.999)]
    for data, said in (*cut, (whole + b"these bytes are no stream at all, and long enough", "corrupt")):
        with pytest.raises(LongtailError, match=rf"data\.jsonl\{suffix}: {said}"):
            list(open_lines(saved(tmp_path, suffix, data)))


@pytest.mark.parametrize("page", [b"<!DOCTYPE html>\n<title>429</title>", b" \n<HTML lang=en>", b"\xef\xbb\xbf<html>"])
def test_an_error_page_is_no_data(tmp_path: Path, page: bytes) -> None:
    """tests/sources/test_spoilt_files.py has every reader before what is missing, empty, cut or a page."""
    with pytest.raises(LongtailError, match="an HTML page, expected data"):
        list(open_lines(saved(tmp_path, "", page)))


def test_bytes_that_are_no_utf8_name_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match=r"data\.jsonl: line 2: not UTF-8 at byte 3 \(0xff\)"):
        list(open_text(saved(tmp_path, "", b"good\nbad\xff\n")))


def test_a_folder_of_hidden_files_holds_no_data(tmp_path: Path) -> None:
    (tmp_path / ".about.md").write_text("# Nothing")
    with pytest.raises(LongtailError, match="no files"):
        source_files(tmp_path)
    (tmp_path / "b.txt").touch()
    (tmp_path / "a.txt").touch()
    assert [file.name for file in source_files(tmp_path)] == ["a.txt", "b.txt"]


def test_a_dump_is_told_from_another_of_its_name_size_and_time_by_its_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.sources.streams.ENDS", 4)
    path, seen = tmp_path / "dump.json", set()
    for data in (b"head middle tail", b"Head middle tail", b"head middle taiL"):
        path.write_bytes(data)
        os.utime(path, (1, 1))
        seen.add(fingerprint(path))
    assert len(seen) == 3
