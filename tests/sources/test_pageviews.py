"""Page views: an article's views are summed over access methods and files, whatever the spelling of its title."""

import bz2

import duckdb
import pyarrow as pa
import pytest

from pipelines.errors import LongtailError
from pipelines.sources.pageviews import read_views, sum_views
from pipelines.sources.rejects import Rejects

LINES = """en.wikipedia Ada_Lovelace 123 desktop 10 A1B9
en.wikipedia Ada_Lovelace 123 mobile-web 5 A5
en.wikipedia Ada_Lovelace 123 mobile-app 2 A2
en.wikipedia Ada_Lovelace null desktop 1 A1
en.wikipedia Ada_Lovelace desktop 1 A1
en.wikipedia AT%26T 9 desktop 3 A3
en.wikipedia AT&T 9 mobile-web 4 A4
en.wikipedia 100%_Wolf 7 desktop 6 A6
en.wikipedia %FF%FE 8 desktop 6 A6
en.wikipedia Caf%C3%A9 8 desktop 6 A6
en.wikipedia Café 8 desktop 1 A1
en.wikipedia Unasked 8 desktop 99 A99
en.wikipedia.m Ada_Lovelace 123 desktop 1000 A1
de.wikipedia Ada_Lovelace 123 desktop 1000 A1
"""


def views(paths, *titles: str, rejects: Rejects | None = None) -> dict[str, int]:
    db = duckdb.connect()
    db.register("titles", pa.table({"title": list(titles)}))
    sum_views(db, paths, rejects or Rejects(0.0))
    return dict(db.sql("SELECT title, views FROM views").fetchall())


def test_views_are_summed_over_access_methods_spellings_and_files(tmp_path):
    (tmp_path / "user.bz2").write_bytes(bz2.compress(LINES.encode()))
    (tmp_path / "spider.txt").write_text("en.wikipedia Ada_Lovelace 123 desktop 100 A100\n")
    paths = [tmp_path / "user.bz2", tmp_path / "spider.txt"]
    assert views(paths, "Ada Lovelace", "AT&T", "100% Wolf", "Café", "Never viewed") == {
        "Ada Lovelace": 119,
        "AT&T": 7,
        "100% Wolf": 6,
        "Café": 7,
    }


def test_bad_lines_are_named_and_the_rest_counts(tmp_path):
    bad = b"en.wikipedia Ada_Lovelace 123 desktop many A1\nen.wikipedia \xff\xfe 1 desktop 3 A3\nen.wikipedia Half"
    (tmp_path / "v.txt").write_bytes(LINES.encode() + bad)
    rejects = Rejects(1.0)
    assert views([tmp_path / "v.txt"], "Ada Lovelace", rejects=rejects) == {"Ada Lovelace": 19}
    assert sorted(row[:3] for row in rejects.rows) == [
        ("v.txt", 15, "bad_line"),
        ("v.txt", 16, "not_utf8"),
        ("v.txt", 17, "bad_line"),
    ]
    assert rejects.read == 15
    assert rejects.skipped["other_project_views"] == 2


def test_no_file_means_no_views():
    assert views([], "Ada Lovelace") == {}


@pytest.mark.parametrize("text", ["<html>Too many requests</html>", "", "title,views\nAda Lovelace,10\n"])
def test_what_is_no_page_view_dump_is_an_error(tmp_path, text):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(LongtailError, match=r"v\.txt"):
        views([tmp_path / "v.txt"], "Ada Lovelace")


def test_a_cut_dump_is_an_error(tmp_path):
    packed = bz2.compress(LINES.encode() * 50)
    (tmp_path / "v.bz2").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(LongtailError, match=r"v\.bz2"):
        views([tmp_path / "v.bz2"], "Ada Lovelace")


def test_real_lines_parse(real):
    rejects = Rejects(0.0)
    [table] = read_views(real / "pageviews/wp1_pageview_complete_lines.txt", rejects, "af.wikipedia")
    totals = table.group_by("title").aggregate([("views", "sum")]).to_pylist()
    assert {row["title"]: row["views_sum"] for row in totals}["1712"] == 22
    assert (len(table), len(totals), rejects.rows) == (24, 12, [])
