"""Pile and C4-like lines become documents whose id is their text's."""

import json
from pathlib import Path

import fetching
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.text_documents import read_documents, text_id


def saved(folder: Path, *lines: bytes, name: str = "00.jsonl.zst") -> Path:
    return fetching.saved(folder / name, b"\n".join(lines) + b"\n")


def line(text: str, **other: object) -> bytes:
    return json.dumps({"text": text, **other}).encode()


def test_documents_carry_subset_row_and_an_id_that_only_the_text_decides(tmp_path: Path) -> None:
    first = saved(tmp_path, line("a b", meta={"pile_set_name": "Github"}), line("c", url="x", timestamp="y"))
    second = saved(tmp_path, line("c"), line("a b", meta={"pile_set_name": "Books3"}), name="01.json")
    one, two = (list(read_documents(path, Rejects(0.0))) for path in (first, second))
    assert [(d.text, d.subset, d.row) for d in one] == [("a b", "Github", 1), ("c", "", 2)]
    assert [d.id for d in one] == [d.id for d in reversed(two)] == [text_id("a b"), text_id("c")]


def test_bad_rows_are_named_and_the_rest_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_RECORD_MB", "0.2")
    rejects = Rejects(1.0)
    bad = (b"{cut", b'{"text": 3}', b'{"texts": "x"}', line(" \n"), b'{"text": "caf\xe9"}', line("x" * 300_000))
    path = saved(tmp_path, line("good"), *bad, b"", line("too"))
    assert [(d.text, d.row) for d in read_documents(path, rejects)] == [("good", 1), ("too", 9)]
    reasons = ["bad_json", "unexpected_layout", "unexpected_layout", "no_text", "not_utf8", "too_long"]
    assert [row[:3] for row in rejects.rows] == [(path.name, row, why) for row, why in enumerate(reasons, start=2)]
    assert rejects.read == 8


def test_other_layouts_of_meta_are_no_subset(tmp_path: Path) -> None:
    path = saved(tmp_path, line("a", meta=None), line("b", meta="x"), line("c", meta={"url": 1}), line("d", subset="S"))
    documents = [(document.text, document.subset) for document in read_documents(path, Rejects(0.0))]
    assert documents == [("a", ""), ("b", ""), ("c", ""), ("d", "S")]


TEXTS = ["a", "b c", None, " "]
PARQUET = [
    ({"text": TEXTS}, ["", ""]),
    ({"n": [1] * 4, "text": TEXTS, "subset": ["S", None, "T", "T"]}, ["S", ""]),
    ({"meta": [{"pile_set_name": "S"}, None, None, None], "text": TEXTS}, ["S", ""]),
    ({"meta": [{"url": "S"}] * 4, "text": pa.array(TEXTS, pa.large_string())}, ["", ""]),
]


@pytest.mark.parametrize(("columns", "subsets"), PARQUET, ids=range(len(PARQUET)))
def test_parquet_gives_the_same_documents_as_json_lines(tmp_path: Path, columns: dict, subsets: list[str]) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2)
    rejects = Rejects(0.9)
    expected = [(text_id("a"), "a", subsets[0], 1, ""), (text_id("b c"), "b c", subsets[1], 2, "")]
    assert list(read_documents(path, rejects)) == expected
    assert [row[:3] for row in rejects.rows] == [("a.parquet", 3, "no_text"), ("a.parquet", 4, "no_text")]
    assert rejects.read == 4


def test_bad_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    buffers = [None, pa.array([0, 1, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff\xfe")]
    pq.write_table(pa.table({"text": pa.StringArray.from_buffers(2, buffers[1], buffers[2])}), path)
    rejects = Rejects(1.0)
    assert [d.text for d in read_documents(path, rejects)] == ["a"]
    assert [row[:3] for row in rejects.rows] == [("a.parquet", 2, "not_utf8")]
    pq.write_table(pa.table([["x"], ["y"]], names=["text", "text"]), path)
    with pytest.raises(LongtailError, match=r"a\.parquet: two columns 'text', expected one of each name"):
        list(read_documents(path, Rejects(1.0)))
    pq.write_table(pa.table({"text": [1], "content": ["x"]}), path)
    with pytest.raises(LongtailError, match=r"a\.parquet: columns text, content, expected a column `text`"):
        list(read_documents(path, Rejects(1.0)))


def test_the_real_excerpt(real: Path) -> None:
    rejects = Rejects(0.0)
    documents = list(read_documents(real / "pile/pile_sample.jsonl.zst", rejects))
    assert (len(documents), len({d.id for d in documents}), len({d.subset for d in documents})) == (547, 547, 10)
    assert not rejects.rows
    c4 = [d for path in sorted((real / "c4").glob("*.gz")) for d in read_documents(path, rejects)]
    assert (len(c4), {d.subset for d in c4}) == (30, {""})
