"""WikiText's files are cut into articles at their titles, without a byte lost, in either layout."""

import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.errors import LongtailError
from pipelines.sources.rejects import Rejects
from pipelines.sources.text_documents import read_wikitext

ONE = " \n = One ( song ) = \n \n A , \n = none = \n \n = nor this = \n <unk> . \n \n = = Charts = = \n \n 5 . \n"
TWO = " \n = Two @-@ Three = \n \n Text . \n \n = = = Deep = = = \n \n More . \n"


def saved(folder: Path, data: str | bytes) -> Path:
    path = folder / "wiki.train.tokens"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def as_rows(path: Path) -> Path:
    """The Hub's layout: a line in each row, a blank one without its space."""
    rows = [line if line.strip() else "" for line in path.read_text(encoding="utf-8").splitlines(keepends=True)]
    pq.write_table(pa.table({"text": rows}), path.with_suffix(".parquet"), row_group_size=7)
    return path.with_suffix(".parquet")


def test_an_article_reaches_from_the_blank_line_before_its_title_to_the_next_ones(tmp_path: Path) -> None:
    rejects = Rejects(0.0)
    articles = list(read_wikitext(saved(tmp_path, ONE + TWO), rejects))
    assert [article[1:] for article in articles] == [("One ( song )", ONE, 2), ("Two @-@ Three", TWO, 14)]
    assert rejects.read == 2
    assert list(read_wikitext(as_rows(tmp_path / "wiki.train.tokens"), Rejects(0.0))) == articles, "in the Hub's layout"
    windows = saved(tmp_path, (ONE + TWO).replace("\n", "\r\n"))
    assert [article.text for article in read_wikitext(windows, Rejects(0.0))] == [ONE, TWO]


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.sampled_from([" ", "", " = A = ", " = = B = = ", " text ", "= C =", " = = ", "\x85\u2028"])))
def test_articles_and_what_is_before_them_are_the_file(tmp_path: Path, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in [*lines, "", " = Last = "])
    rejects = Rejects(1.0)
    articles = list(read_wikitext(saved(tmp_path, text), rejects))
    joined = "".join(article.text for article in articles)
    assert text.endswith(joined)
    before = text.removesuffix(joined)
    assert rejects.reasons() == ({"no_title": 1} if before.strip(" \n") else {})
    assert articles[-1].title == "Last"
    assert all(article.text.strip("\n ").startswith(f"= {article.title} =") for article in articles)


def test_bad_articles_are_named_and_the_others_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_RECORD_MB", "0.01")
    line, lines = f" \n = Line = \n \n {'x' * 20_000} \n", " \n = Lines = \n \n" + f" {'x' * 90} \n" * 200
    data = f" lost . \n{ONE}{line}{lines}".encode() + b" \n = Caf\xe9 = \n \n . \n" + TWO.encode()
    rejects = Rejects(1.0)
    assert [article.text for article in read_wikitext(saved(tmp_path, data), rejects)] == [ONE, TWO]
    assert [row[:3] for row in rejects.rows] == [
        ("wiki.train.tokens", 1, "no_title"),
        ("wiki.train.tokens", 15, "too_long"),
        ("wiki.train.tokens", 19, "too_long"),
        ("wiki.train.tokens", 222, "not_utf8"),
    ]
    assert rejects.read == 6


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"page": ["x"]}), tmp_path / "train.parquet")
    with pytest.raises(LongtailError, match=r"train\.parquet: columns page, expected a column `text`"):
        list(read_wikitext(tmp_path / "train.parquet", Rejects(1.0)))
    pq.write_table(pa.table({"text": pa.array([None, None], pa.string())}), tmp_path / "train.parquet")
    with pytest.raises(LongtailError, match=r"train\.parquet: no article, expected lines ' = Title = '"):
        list(read_wikitext(tmp_path / "train.parquet", Rejects(1.0)))


@pytest.mark.parametrize(("split", "words"), [("valid", 217_646), ("test", 245_569)])
def test_the_real_files_have_the_articles_and_words_that_were_published(real: Path, split: str, words: int) -> None:
    path, rejects = real / f"wikitext-2/wikitext-2.{split}.txt", Rejects(0.0)
    texts = [article.text for article in read_wikitext(path, rejects)]
    assert len(texts) == rejects.read == 60
    assert "".join(texts).encode() == path.read_bytes()
    assert sum(len(text.split()) + text.count("\n") for text in texts) == words  # a line's end is a word, <eos>


def test_blank_lines_without_end_are_an_article_that_is_too_long(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LONGTAIL_RECORD_MB", "0.01")
    path, rejects = saved(tmp_path, ONE.encode() + b"\n" * 300_000), Rejects(1.0)
    tracemalloc.start()
    assert list(read_wikitext(path, rejects)) == []
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rejects.reasons() == {"too_long": 1}
    assert held < 2_000_000
