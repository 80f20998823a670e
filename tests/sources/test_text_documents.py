"""Texts of the Pile and C4, DPR's passages and WikiText's articles: each with its place, and
what is bad is named.
"""

import csv
import io
import json
import tracemalloc
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fetching import reasons, saved

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.sources import c4_sample
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import Raw, read_documents, read_wikipedia, text_id
from pipelines.sources.wikitext import read_joined_lines, read_wikitext


def read(reader, path: Path, max_share: float = 1.0) -> tuple[list, Rejects]:
    rejects = Rejects(max_share)
    return list(reader("x", Part(path), rejects)), rejects


# The Pile and C4


def line(text: str, **other: object) -> bytes:
    return json.dumps({"text": text, **other}).encode()


def lines(folder: Path, *of: bytes, name: str = "00.jsonl.zst") -> Path:
    return saved(folder / name, b"\n".join(of) + b"\n")


def test_documents_carry_an_id_that_the_text_decides(tmp_path: Path) -> None:
    first = lines(
        tmp_path, line("a b", meta={"pile_set_name": "Github"}), line("c", url="x", timestamp="y")
    )
    second = lines(
        tmp_path,
        line("c", subset="S"),
        line("a b", meta={"url": 1}),
        line("d", meta="x"),
        name="01.json",
    )
    (one, _), (two, _) = (read(read_documents, path, 0.0) for path in (first, second))
    assert [(d.text, d.source, d.row) for d in one] == [("a b", "Github", 1), ("c", "x", 2)]
    expected = [("c", "S", 1), ("a b", "x", 2), ("d", "x", 3)]
    assert [(d.text, d.source, d.row) for d in two] == expected
    assert (
        [d.source_document for d in one]
        == [two[1].source_document, two[0].source_document]
        == [text_id("a b"), text_id("c")]
    )


def test_bad_lines_and_bad_parquet_are_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("pipelines.params.bounds.RECORD", int(0.2 * 2**20))
    bad = (
        b"{cut",
        b'{"text": 3}',
        b'{"texts": "x"}',
        line(" \n"),
        b'{"text": "caf\xe9"}',
        line("x" * 300_000),
    )
    documents, rejects = read(read_documents, lines(tmp_path, line("good"), *bad, b"", line("too")))
    assert [(d.text, d.row) for d in documents] == [("good", 1), ("too", 9)]
    expected = [
        "bad_json",
        "unexpected_layout",
        "unexpected_layout",
        "no_text",
        "not_utf8",
        "too_long",
    ]
    assert reasons(rejects) == list(enumerate(expected, start=2))
    assert rejects.read == 8
    path = tmp_path / "a.parquet"
    offsets = pa.array([0, 1, 3], pa.int32()).buffers()[1]
    pq.write_table(
        pa.table({"text": pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"a\xff\xfe"))}),
        path,
    )
    with pytest.raises(
        LongtailError, match=r"a\.parquet: damaged .*utf-8.*expected a Parquet file"
    ):
        read(read_documents, path)
    for columns, names, reader, said in (
        ([["x"], ["y"]], ["text", "text"], read_documents, "two columns 'text', expected one of each name"),
        ([[1], ["x"]], ["text", "content"], read_documents, "columns text, content, expected a column `text`"),
        ([["x"]], ["page"], read_wikitext, "columns page, expected a column `text`"),
        ([pa.nulls(2, pa.string())], ["text"], read_wikitext, "no article, expected lines ' = Title = '"),
    ):  # fmt: skip
        pq.write_table(pa.table(columns, names=names), path)
        with pytest.raises(LongtailError, match=rf"a\.parquet: {said}"):
            read(reader, path)


TEXTS = ["a", "b c", None, " "]
PARQUET = [
    ({"text": TEXTS}, ["", ""]),
    ({"n": [1] * 4, "text": TEXTS, "subset": ["S", None, "T", "T"]}, ["S", ""]),
    ({"meta": [{"pile_set_name": "S"}, None, None, None], "text": TEXTS}, ["S", ""]),
    ({"meta": [{"url": "S"}] * 4, "text": pa.array(TEXTS, pa.large_string())}, ["", ""]),
]


@pytest.mark.parametrize(("columns", "subsets"), PARQUET, ids=range(len(PARQUET)))
def test_parquet_gives_the_same_documents_as_json_lines(
    tmp_path: Path, columns: dict, subsets: list[str]
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2)
    documents, rejects = read(read_documents, tmp_path / "a.parquet")
    rows = [
        (text, subset or "x", row)
        for text, subset, row in zip(("a", "b c"), subsets, (1, 2), strict=True)
    ]
    assert documents == [
        Raw(text_id(text), source, "", text, "a.parquet", row) for text, source, row in rows
    ]
    assert reasons(rejects) == [(3, "no_text"), (4, "no_text")]
    assert rejects.read == 4


# DPR's passages

ROWS = [
    ("id", "text", "title"),
    (1, 'Aaron ( or ; "Ahärôn") is a prophet', "Aaron"),
    (2, "and\tthe brother", "Aaron"),
    (3, '"Quoted" whole', '"Heroes"'),
    (4, "Another.", "Aaron"),
]


@pytest.mark.parametrize("name", ["psgs_w100.tsv", "psgs_w100.tsv.gz"])
def test_passages_are_read_one_by_one(tmp_path: Path, name: str) -> None:
    """As DPR's authors wrote them: by Python's csv, tabs between the columns."""
    csv.writer(out := io.StringIO(), delimiter="\t", lineterminator="\n").writerows(ROWS)
    path = saved(tmp_path / name, out.getvalue())
    passages, rejects = read(read_wikipedia, path, 0.0)
    assert passages == [
        Raw(f"psgs-{n}", "x", title, text, name, n + 1, whole=True) for n, text, title in ROWS[1:]
    ]
    assert rejects.read == 4


def test_bad_passages_are_named_and_the_others_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.params.bounds.RECORD", int(0.3 * 2**20))
    bad = [
        b"2\tonly two",
        b'3\t"never closed\tA',
        b"4\tcaf\xe9\tA",
        b"5\t \tA",
        b"6\t" + b"x" * 400_000 + b"\tA",
    ]
    bad += [b'7\t"a" b\tA', b"8\t" + b"x" * 200_000 + b"\tA", b"9\ta\tA\tB"]
    rows = [b"id\ttext\ttitle\r", b"1\tfirst\tA", *bad, b"", b"10\tlast\tA\r"]
    passages, rejects = read(read_wikipedia, saved(tmp_path / "psgs_w100.tsv", b"\n".join(rows)))
    found = [
        (passage.source_document, passage.title, passage.text, passage.row) for passage in passages
    ]
    assert found == [("psgs-1", "A", "first", 2), ("psgs-10", "A", "last", 12)]
    expected = ["unexpected_layout", "unexpected_layout", "not_utf8", "no_text", "too_long"] + [
        "unexpected_layout"
    ] * 3
    assert reasons(rejects) == list(enumerate(expected, start=3))
    assert rejects.read == 10


@pytest.mark.parametrize("data", ["1\ta word\tName\n", "id,text,title\n", "\n\n"])
def test_a_table_that_holds_no_passages_is_an_error(tmp_path: Path, data: str) -> None:
    with pytest.raises(
        LongtailError, match=r"psgs_w100\.tsv: begins with .*expected a MediaWiki dump, or fields"
    ):
        read(read_wikipedia, saved(tmp_path / "psgs_w100.tsv", data))


# WikiText

ONE = " \n = One ( song ) = \n \n A , \n = none = \n \n = nor this = \n <unk> . \n \n = = Charts = = \n \n 5 . \n"
TWO = " \n = Two @-@ Three = \n \n Text . \n \n = = = Deep = = = \n \n More . \n"


def tokens(folder: Path, data: str | bytes) -> Path:
    return saved(folder / "wiki.train.tokens", data)


def test_an_article_reaches_to_the_next_ones_title(tmp_path: Path) -> None:
    """It begins with the blank line before its title."""
    path = tokens(tmp_path, ONE + TWO)
    articles, rejects = read(read_wikitext, path)
    found = [(article.title, article.text, article.row) for article in articles]
    assert found == [("One ( song )", ONE, 2), ("Two @-@ Three", TWO, 14)]
    assert rejects.read == 2
    # The Hub's layout: a line in each row, a blank one without its space
    rows = [
        line if line.strip() else ""
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True)
    ]
    pq.write_table(pa.table({"text": rows}), path.with_suffix(".parquet"), row_group_size=7)
    of_parquet = read(read_wikitext, path.with_suffix(".parquet"))[0]
    assert [article._replace(file=path.name) for article in of_parquet] == articles
    windows = tokens(tmp_path, (ONE + TWO).replace("\n", "\r\n"))
    assert [article.text for article in read(read_wikitext, windows)[0]] == [ONE, TWO]


def test_bad_articles_are_named_and_the_others_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.params.bounds.RECORD", int(0.01 * 2**20))
    line = f" \n = Line = \n \n {'x' * 20_000} \n"
    lines = " \n = Lines = \n \n" + f" {'x' * 99} \n" * 200
    data = f" lost . \n{ONE}{line}{lines}".encode() + b" \n = Caf\xe9 = \n \n . \n" + TWO.encode()
    path = tokens(tmp_path, data)
    texts, rejects = read(partial(read_joined_lines, n_lines=14), path)
    assert reasons(rejects) == [(15, "too_long"), (211, "not_utf8")]
    assert [text.row for text in texts] == [1, *range(29, 211, 14), 225]
    assert len({text.source_document for text in texts}) == len({text.text for text in texts})
    _, rejects = read(partial(read_joined_lines, n_lines=114), path)
    assert reasons(rejects) == [(1, "too_long"), (115, "too_long")], "a line, and many together"
    assert rejects.read == 3
    articles, rejects = read(read_wikitext, path)
    assert [article.text for article in articles] == [ONE, TWO]
    expected = [(1, "no_title"), (15, "too_long"), (19, "too_long"), (222, "not_utf8")]
    assert reasons(rejects) == expected
    assert rejects.read == 6
    # blank lines belong to the article before them
    endless = tokens(tmp_path, ONE + "\n" * 300_000)
    tracemalloc.start()
    articles, rejects = read(read_wikitext, endless)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (articles, rejects.reasons()) == ([], {"too_long": 1})
    assert held < 2_000_000


@pytest.mark.parametrize(("split", "words"), [("valid", 217_646), ("test", 245_569)])
def test_the_real_files_have_the_published_articles(real: Path, split: str, words: int) -> None:
    path = real / f"wikitext-2/wikitext-2.{split}.txt"
    articles, rejects = read(read_wikitext, path, 0.0)
    texts = [article.text for article in articles]
    assert len(texts) == rejects.read == 60
    assert "".join(texts).encode() == path.read_bytes()
    # a line's end is a word, <eos>
    assert sum(len(text.split()) + text.count("\n") for text in texts) == words


# C4's sample: a draw by hash of its texts, whatever their files


def shard(path: Path, *texts: str) -> Path:
    return saved(path, "\n".join(json.dumps({"text": text}) for text in texts))


def test_a_sample_is_drawn_from_all_files_text_by_text(tmp_path):
    texts = [f"{number} " + "é" * 500 for number in range(4000)]  # 4 MB
    paths = [shard(tmp_path / f"{i}.json.gz", *texts[i::4]) for i in range(4)]
    sample = c4_sample.draw_c4_sample(paths, 1, 0, Rejects(0.0))
    drawn = list(c4_sample.read_c4_sample(paths, sample))
    assert len(drawn) == sample.texts
    assert sum(len(text.encode()) for text in drawn) == sample.size
    assert 1_000_000 <= sample.size < 1_003_000
    of_files = [sum(text in set(texts[i::4]) for text in drawn) for i in range(4)]
    assert min(of_files) > 200  # of some 250 each
    by_hash = sorted(texts, key=lambda text: draws.uniform(0, "c4", text))
    assert set(drawn) == set(by_hash[: len(drawn)])
    again = c4_sample.draw_c4_sample(paths[::-1], 1, 0, Rejects(0.0))
    assert set(c4_sample.read_c4_sample(paths[::-1], again)) == set(drawn)
    assert set(
        c4_sample.read_c4_sample(paths, c4_sample.draw_c4_sample(paths, 1, 1, Rejects(0.0)))
    ) != set(drawn)
