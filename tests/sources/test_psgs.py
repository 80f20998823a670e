"""DPR's passages are read one by one, with their titles, and bad rows are named."""

import csv
import io
from pathlib import Path

import pytest
from fetching import saved

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.text_documents import Article, is_psgs, read_psgs

ROWS = [
    (1, 'Aaron ( or ; "Ahärôn") is a prophet', "Aaron"),
    (2, "and\tthe brother", "Aaron"),
    (3, '"Quoted" whole', '"Heroes"'),
    (4, "Another.", "Aaron"),
]


def written(rows: list[tuple]) -> bytes:
    """As DPR's authors wrote them: by Python's csv, tabs between the columns."""
    out = io.StringIO()
    csv.writer(out, delimiter="\t", lineterminator="\n").writerows([("id", "text", "title"), *rows])
    return out.getvalue().encode()


@pytest.mark.parametrize("name", ["psgs_w100.tsv", "psgs_w100.tsv.gz"])
def test_passages_are_read_one_by_one(tmp_path: Path, name: str) -> None:
    rejects = Rejects(0.0)
    path = saved(tmp_path / name, written(ROWS))
    assert is_psgs(path)
    assert list(read_psgs(path, rejects)) == [
        Article("1", "Aaron", 'Aaron ( or ; "Ahärôn") is a prophet', 2),
        Article("2", "Aaron", "and\tthe brother", 3),
        Article("3", '"Heroes"', '"Quoted" whole', 4),
        Article("4", "Aaron", "Another.", 5),
    ]
    assert rejects.read == 4


def test_bad_rows_are_named_and_the_others_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_RECORD_MB", "0.3")
    bad = [b"2\tonly two", b'3\t"never closed\tA', b"4\tcaf\xe9\tA", b"5\t \tA", b"6\t" + b"x" * 400_000 + b"\tA"]
    bad += [b'7\t"a" b\tA', b"8\t" + b"x" * 200_000 + b"\tA", b"9\ta\tA\tB"]
    path = saved(
        tmp_path / "psgs_w100.tsv", b"\n".join([b"id\ttext\ttitle\r", b"1\tfirst\tA", *bad, b"", b"10\tlast\tA\r"])
    )
    rejects = Rejects(1.0)
    assert list(read_psgs(path, rejects)) == [Article("1", "A", "first", 2), Article("10", "A", "last", 12)]
    reasons = ["unexpected_layout", "unexpected_layout", "not_utf8", "no_text", "too_long"] + ["unexpected_layout"] * 3
    assert [row[:3] for row in rejects.rows] == [(path.name, 3 + i, reason) for i, reason in enumerate(reasons)]
    assert rejects.read == 10


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1\ttext\ttitle\n", "expected the header id, text, title"),
        (b"id,text,title\n", "expected the header"),
        (b"\n\n", "expected the header"),
    ],
)
def test_other_files_are_errors(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(LongtailError, match=rf"psgs_w100\.tsv: .*{problem}"):
        list(read_psgs(saved(tmp_path / "psgs_w100.tsv", data), Rejects(0.0)))
