"""Pile and C4-like lines become documents whose id is their text's."""

import json
from pathlib import Path

import pytest
import zstandard

from pipelines.errors import LongtailError
from pipelines.sources.pile import read_documents, text_id
from pipelines.sources.rejects import Rejects


def saved(folder: Path, *lines: bytes, name: str = "00.jsonl.zst") -> Path:
    path = folder / name
    data = b"\n".join(lines) + b"\n"
    path.write_bytes(zstandard.compress(data) if name.endswith(".zst") else data)
    return path


def line(text: str, **other: object) -> bytes:
    return json.dumps({"text": text, **other}).encode()


def test_documents_carry_subset_row_and_an_id_that_only_the_text_decides(tmp_path: Path) -> None:
    first = saved(tmp_path, line("a b", meta={"pile_set_name": "Github"}), line("c", url="x", timestamp="y"))
    second = saved(tmp_path, line("c"), line("a b", meta={"pile_set_name": "Books3"}), name="01.json")
    one, two = (list(read_documents(path, Rejects(0.0))) for path in (first, second))
    assert [(d.text, d.subset, d.row) for d in one] == [("a b", "Github", 1), ("c", "", 2)]
    assert [d.id for d in one] == [d.id for d in reversed(two)] == [text_id("a b"), text_id("c")]


def test_bad_rows_are_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    rejects = Rejects(0.9)
    bad = (b"{cut", b'{"text": 3}', b'{"texts": "x"}', line(" \n"), b'{"text": "\\ud800"}')
    path = saved(tmp_path, line("good"), *bad)
    assert [d.text for d in read_documents(path, rejects)] == ["good"]
    assert [row[:3] for row in rejects.rows] == [
        ("00.jsonl.zst", 2, "bad_json"),
        ("00.jsonl.zst", 3, "unexpected_layout"),
        ("00.jsonl.zst", 4, "unexpected_layout"),
        ("00.jsonl.zst", 5, "no_text"),
        ("00.jsonl.zst", 6, "bad_json"),
    ]
    assert rejects.read == 6


def test_bytes_that_are_no_utf8_stop_the_reading(tmp_path: Path) -> None:
    with pytest.raises(LongtailError, match=r"00\.jsonl\.zst: line 2: not UTF-8"):
        list(read_documents(saved(tmp_path, line("good"), b'{"text": "caf\xe9"}'), Rejects(1.0)))


def test_the_real_excerpt(real: Path) -> None:
    rejects = Rejects(0.0)
    documents = list(read_documents(real / "pile/pile_sample.jsonl.zst", rejects))
    assert (len(documents), len({d.id for d in documents}), len({d.subset for d in documents})) == (547, 547, 10)
    assert not rejects.rows
    c4 = [d for path in sorted((real / "c4").glob("*.gz")) for d in read_documents(path, rejects)]
    assert (len(c4), {d.subset for d in c4}) == (30, {""})
