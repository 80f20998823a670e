"""Page views: an article's views are summed over access methods and files, whatever the spelling of
its title.

Redirects and pages, which say what a title leads to, come from MediaWiki's tables as MySQL dumps
them.
"""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fetching import reasons, saved

from pipelines.errors import LongtailError
from pipelines.sources import pageviews
from pipelines.sources.bz2_blocks import Part
from pipelines.sources.mediawiki_tables import PAGE_FILE, read_titles
from pipelines.sources.pageview_files import ChosenFiles, choose_files
from pipelines.sources.pageviews import SCHEMA, read_views, sum_views
from pipelines.sources.rejects import Rejects

LINES = """en.wikipedia Ada_Lovelace 123 desktop 10 A1B9
en.wikipedia Ada_Lovelace 123 mobile-web 5 A5
en.wikipedia Ada_Lovelace 123 mobile-app 2 A2
en.wikipedia Ada_Lovelace null desktop 1 A1
en.wikipedia Ada_Lovelace desktop 1 A1
en.wikipedia AT%26T 9 desktop 3 A3
en.wikipedia AT&T 9 mobile-web 4 A4
en.wikipedia 100%_Wolf 7 desktop 6 A6
en.wikipedia C++ 7 desktop 5 A5
en.wikipedia %FF%FE 8 desktop 6 A6
en.wikipedia Caf%C3%A9 8 desktop 6 A6
en.wikipedia Café 8 desktop 1 A1
en.wikipedia Unasked 8 desktop 99 A99
en.wikipedia.m Ada_Lovelace 123 desktop 1000 A1
de.wikipedia Ada_Lovelace 123 desktop 1000 A1
"""


def views(
    paths, *titles: str, rejects: Rejects | None = None, redirects=(), pages=()
) -> dict[str, int]:
    db = duckdb.connect()
    db.register("titles", pa.table({"title": list(titles)}))
    for name, column, rows in (("redirects", "target", redirects), ("pages", "title", pages)):
        ids, texts = zip(*rows, strict=True) if rows else ((), ())
        db.register(
            name,
            pa.table({"page_id": pa.array(ids, pa.int64()), column: pa.array(texts, pa.string())}),
        )
    rejects = rejects or Rejects(0.0)
    parts = [path.with_suffix(".parquet") for path in paths]
    for path, part in zip(paths, parts, strict=True):
        pq.write_table(
            pa.concat_tables([SCHEMA.empty_table(), *read_views(Part(path), rejects)]), part
        )
        rejects.check()
    sum_views(db, parts)
    return dict(db.sql("SELECT title, views FROM views").fetchall())


def test_views_are_summed_over_spellings_and_files(tmp_path):
    more = "en.wikipedia Ada_Lovelace 123 desktop 100 A100\nen.wikipedia Unviewed 1 desktop 0 A0\n"
    paths = [saved(tmp_path / "user.bz2", LINES), saved(tmp_path / "spider.txt", more)]
    asked = ("Ada Lovelace", "AT&T", "100% Wolf", "C++", "Café", "Never viewed", "Unviewed")
    expected = {"Ada Lovelace": 119, "AT&T": 7, "100% Wolf": 6, "C++": 5, "Café": 7}
    assert views(paths, *asked) == expected
    assert views([], "Ada Lovelace") == {}, "no file means no views"


@pytest.mark.parametrize("block", [60, 61, 97, 150, 1 << 24])
def test_blocks_and_the_order_of_projects_do_not_matter(tmp_path, monkeypatch, block):
    monkeypatch.setattr(pageviews, "BLOCK_BYTES", block)
    lines = LINES.splitlines()
    mixed = [line for pair in zip(lines, reversed(lines), strict=True) for line in pair]
    saved(tmp_path / "v.txt", "\n".join([*mixed, ""]))
    rejects = Rejects(0.0)
    counts = views([tmp_path / "v.txt"], "Ada Lovelace", "AT&T", "Café", "Unasked", rejects=rejects)
    assert counts == {"Ada Lovelace": 38, "AT&T": 14, "Café": 14, "Unasked": 198}
    assert (rejects.read, rejects.skipped["lines_of_other_projects"]) == (26, 4)


@pytest.mark.parametrize("block", [80, 1 << 24])
def test_bad_lines_are_named_and_the_rest_counts(tmp_path, monkeypatch, block):
    monkeypatch.setattr(pageviews, "BLOCK_BYTES", block)
    bad = b"en.wikipedia Ada_Lovelace 123 desktop many A1\nen.wikipedia \xff\xfe 1 desktop 3 A3\nen.wikipedia Half"
    saved(tmp_path / "v.txt", b"aa.wikibooks A 1 desktop 1 A1\n" * 3 + LINES.encode() + bad)
    rejects = Rejects(1.0)
    assert views([tmp_path / "v.txt"], "Ada Lovelace", rejects=rejects) == {"Ada Lovelace": 19}
    assert sorted(reasons(rejects)) == [(19, "bad_line"), (20, "not_utf8"), (21, "cut_line")]
    assert rejects.rows[0][3] in bad.decode("utf-8", "replace")
    assert rejects.read == 16
    assert rejects.skipped["lines_of_other_projects"] == 5


def test_a_number_cut_at_the_files_end_is_no_number(tmp_path):
    """Bad lines are bounded."""
    for cut in range(1, 5):
        path = saved(
            tmp_path / "v.txt", LINES + "en.wikipedia Ada_Lovelace 123 desktop 4567\n"[:-cut]
        )
        rejects = Rejects(1.0)
        assert views([path], "Ada Lovelace", rejects=rejects) == {"Ada Lovelace": 19}
        assert [row[2] for row in rejects.rows] == ["cut_line"]
    with pytest.raises(LongtailError, match=r"v\.txt: 1 of 14 rows.*row 16, bad_line"):
        views([saved(tmp_path / "v.txt", LINES + "en.wikipedia Ada_Lovelace\n")], "Ada Lovelace")


def test_what_is_no_page_view_dump_is_an_error(tmp_path, monkeypatch):
    """It is not read to its end."""

    def blocks(_):
        yield b"x" * 256
        pytest.fail("read further than needed")

    monkeypatch.setattr(pageviews, "open_blocks", blocks)
    with pytest.raises(LongtailError, match=r"v\.txt: none of its first lines"):
        views([tmp_path / "v.txt"], "Ada Lovelace")


REQUESTS = """en.wikipedia Ada_Lovelace 123 desktop 10 A10
en.wikipedia Countess_of_Lovelace 124 desktop 3 A3
en.wikipedia Lady_Lovelace 300 desktop 1 A1
en.wikipedia Lady_Lovelace 123 mobile-web 2 A2
en.wikipedia Enchantress_of_Numbers 125 desktop 70 A70
en.wikipedia Charles_Babbage 200 desktop 5 A5
en.wikipedia Babbage,_Charles 200 desktop 1 A1
en.wikipedia Analytical_engine 124 desktop 4 A4
en.wikipedia Nobody null desktop 9 A9
"""
REDIRECTS = [
    (124, "Ada Lovelace"),
    (125, "Countess of Lovelace"),
    (126, "Not asked for"),
    (127, "Analytical engine"),
]


def test_requests_of_redirects_count_for_their_target_once(tmp_path):
    """By the redirect's page id (124) or the target's (123); not where nothing is known to redirect
    (200), nor over two steps (125); and what is asked for under a name of its own keeps its
    views."""
    saved(tmp_path / "v.txt", REQUESTS)
    titles = ["Ada Lovelace", "Charles Babbage", "Analytical engine"]
    counts = views([tmp_path / "v.txt"], *titles, redirects=REDIRECTS)
    assert counts == {"Ada Lovelace": 15, "Charles Babbage": 5, "Analytical engine": 4}
    unresolved = views([tmp_path / "v.txt"], "Ada Lovelace", "Charles Babbage")
    assert unresolved == {"Ada Lovelace": 10, "Charles Babbage": 5}


X = "X (social network)"
OLD_TITLE = """en.wikipedia Twitter 9988187 desktop 800 A800
en.wikipedia Twitter null mobile-app 90 A90
en.wikipedia Twttr 9988187 desktop 7 A7
en.wikipedia Twitter_Inc 71 desktop 5 A5
en.wikipedia X 34 desktop 60 A60
"""
PAGES = [(9988187, X), (70, "Twitter"), (71, "Twitter Inc"), (34, "X")]  # after Twitter was moved
MOVED = [(70, X), (71, X)]


def test_a_later_moved_article_is_found_by_its_page_id(tmp_path):
    for tables, expected in [
        ({"pages": PAGES, "redirects": MOVED}, 902),
        ({"pages": PAGES}, 807),  # by its page id
        ({"redirects": MOVED}, 5),  # nothing says which title has which id
        # by its old titles, which redirect to it now
        ({"pages": PAGES[1:], "redirects": MOVED}, 895),
        ({}, None),
    ]:
        saved(tmp_path / "v.txt", OLD_TITLE)
        counts = views([tmp_path / "v.txt"], X, "X", **tables)
        assert counts == {"X": 60} | ({X: expected} if expected else {})


def test_views_count_for_the_page_that_was_there(tmp_path):
    """Its title may since be another article's or a redirect."""
    path = saved(
        tmp_path / "v.txt",
        "en.wikipedia Mercury 5 desktop 900 A900\nen.wikipedia Mercury 6 desktop 1 A1\n",
    )
    counts = views(
        [path], "Mercury", "Mercury (planet)", pages=[(5, "Mercury (planet)"), (6, "Mercury")]
    )
    assert counts == {"Mercury": 1, "Mercury (planet)": 900}
    lines = "en.wikipedia Bonnie_Parker 1 desktop 3 A3\nen.wikipedia Bonnie_Parker 2 desktop 4 A4\n"
    saved(path, lines + "en.wikipedia Bonnie_and_Clyde 1 desktop 50 A50\n")
    pages = [(1, "Bonnie and Clyde"), (2, "Bonnie Parker")]
    for target in ("Bonnie and Clyde", "Unasked"):
        counts = views(
            [path], "Bonnie Parker", "Bonnie and Clyde", pages=pages, redirects=[(2, target)]
        )
        assert sum(counts.values()) == 57
        assert target == "Unasked" or counts == {"Bonnie Parker": 7, "Bonnie and Clyde": 50}


OCTOBER = "2021-10"


def test_each_month_needs_files_named_after_it(tmp_path):
    """And after who viewed the pages."""
    files = [
        tmp_path / f"pageviews-202110-{agents}.bz2" for agents in ("automated", "spider", "user")
    ]
    unnamed = tmp_path / "views.bz2"
    assert choose_files(files, OCTOBER, "all-agents").files == files
    assert choose_files(files, OCTOBER, "user").files == files[2:]
    assert choose_files([unnamed], OCTOBER, "all-agents").files == [unnamed]
    for kept, month, agents, said in (
        ([*files, unnamed], OCTOBER, "user", "views.bz2: its name doesn't tell"),
        ([*files, unnamed], OCTOBER, "all-agents", "views.bz2: its name doesn't tell"),
        (
            files[2:],
            "2021-11",
            "user",
            "202110-user.bz2: named after another month, expected 2021-11",
        ),
    ):
        with pytest.raises(LongtailError, match=said) as raised:
            choose_files(kept, month, agents)
        assert "\n" not in str(raised.value)


def views_file(folder: Path, name: str, views: int = 1) -> Path:
    return saved(folder / name, f"en.wikipedia Ada_Lovelace 123 desktop {views} A{views}\n")


def test_a_months_file_counts_and_not_those_of_its_days(tmp_path):
    month = views_file(tmp_path, "monthly/pageviews-202110-user.bz2", 31)
    days = [
        views_file(tmp_path, f"2021-10/pageviews-202110{day:02}-user.bz2") for day in range(1, 32)
    ]
    chosen = choose_files([*days, month], OCTOBER, "user")
    assert chosen.files == [month]
    assert chosen.notes == [f"{month} has the whole month, and 31 files of its days are left out"]
    chosen = choose_files(days, OCTOBER, "user")
    assert chosen == ChosenFiles(days), "all days are a month"
    spiders = views_file(tmp_path, "monthly/pageviews-202110-spider.bz2", 9)
    chosen = choose_files([*days[:30], month, spiders], OCTOBER, "all-agents")
    assert chosen.files == [spiders, month]
    assert chosen.days_missing == 0


def test_missing_days_and_agents_are_said(tmp_path):
    days = [views_file(tmp_path, f"pageviews-202110{day:02}-user.bz2") for day in range(1, 30)]
    spiders = [views_file(tmp_path, f"pageviews-202110{day:02}-spider.bz2") for day in range(3, 32)]
    chosen = choose_files([*days, *spiders], OCTOBER, "all-agents")
    assert chosen.files == [*spiders, *days]
    assert chosen.days_missing == 4
    assert [line.partition(";")[0] for line in chosen.missing] == [
        "2021-10: no file of its days 1, 2, 30, 31",
        "2021-10: no file of views by automated",
    ]
    assert choose_files(days, OCTOBER, "user").days_missing == 2
    chosen = choose_files(spiders, OCTOBER, "user")
    assert chosen.files == []
    assert chosen.missing == [
        "2021-10: no file of views by user; popularity lacks them (popularity.agents: user)"
    ]


def test_of_copies_of_a_file_one_counts(tmp_path):
    """Other files of one name's views are refused: they may be parts."""
    packed = views_file(tmp_path, "a/pageviews-202110-user.bz2")
    copies = [
        views_file(tmp_path, f"b/pageviews-202110-user{rest}")
        for rest in (".gz", ".bz2", "(1).bz2", "")
    ]
    chosen = choose_files([packed, *copies], OCTOBER, "user")
    assert chosen.files == [copies[3]]
    assert len(chosen.notes) == 4
    assert chosen.notes[0] == f"{copies[0]} is a copy of {copies[3]}, and is left out"
    part = views_file(tmp_path, "pageviews-202110-user.part2.bz2", 2)
    with pytest.raises(LongtailError, match=r"part2\.bz2: by its name .* leave one out"):
        choose_files([packed, part], OCTOBER, "user")


def test_views_of_no_known_page_count_for_no_article(tmp_path):
    """A page id that is there still counts."""
    lines = """en.wikipedia - null desktop 5000 A5000
en.wikipedia - desktop 300 A300
en.wikipedia - 123 desktop 7 A7
en.wikipedia Ada_Lovelace 123 desktop 10 A10
"""
    path = saved(tmp_path / "pageviews-202110-user.bz2", lines)
    rejects = Rejects(0.0)
    counts = views(
        [path],
        "-",
        "Hyphen-minus",
        "Ada Lovelace",
        rejects=rejects,
        pages=[(45, "-"), (123, "Ada Lovelace")],
        redirects=[(45, "Hyphen-minus")],
    )
    assert counts == {"Ada Lovelace": 17}
    assert rejects.skipped["lines_of_no_page"] == 2


# MediaWiki's tables

HEAD = """-- MySQL dump 10.19
DROP TABLE IF EXISTS `redirect`;
CREATE TABLE `redirect` (
  `rd_from` int(8) unsigned NOT NULL DEFAULT 0,
  PRIMARY KEY (`rd_from`)
) ENGINE=InnoDB;
"""
INTO_REDIRECT, INTO_PAGE = "INSERT INTO `redirect` VALUES ", "INSERT INTO `page` VALUES "
ROWS = [
    r"(10,0,'Computer_accessibility','',''),(13,0,'History_of_Afghanistan','',''),(14,4,'Village_pump','','')",
    r"(20,0,'Ain\'t_I_a_Woman?','','Speech'),(21,0,'\"Weird_Al\"_Yankovic',NULL,NULL)",
    r"(22,0,'Elsewhere','wikt',''),(23,0,'Sets_((a),(b))','','see_(a),(b)'),(24,0,'AC\\DC','','')",
    r"(25,0,'Comma,_Texas','',''),(26,-1,'Search','',''),(27,0,'NULL','','')",
]
SQL = f"{HEAD}{INTO_REDIRECT}{','.join(ROWS)};\n/*!40000 ALTER TABLE */;\n-- Dump completed\n"
TITLES = [
    "Computer accessibility",
    "History of Afghanistan",
    "Ain't I a Woman?",
    '"Weird Al" Yankovic',
]
TITLES += ["Sets ((a),(b))", "AC\\DC", "Comma, Texas", "NULL"]


def table(path, text: str | bytes) -> dict[int, str]:
    """Page id -> the title of a page or of what it redirects to."""
    name = "page" if PAGE_FILE.search(path.name) else "redirect"
    return dict(
        tuple(row.values())
        for part in read_titles(saved(path, text), name)
        for row in part.to_pylist()
    )


def test_redirects_are_read_from_tables_of_any_year(tmp_path):
    """Titles are, too; one line or many hold them."""
    expected = dict(zip((10, 13, 20, 21, 23, 24, 25, 27), TITLES, strict=True))
    assert table(tmp_path / "enwiki-20211101-redirect.sql.gz", SQL) == expected
    lines = "".join(f"{INTO_REDIRECT}{row};\n" for row in ROWS)
    assert table(tmp_path / "redirect.sql.gz", HEAD + lines) == expected
    cut_within_a_character = (
        f"{INTO_REDIRECT}(1,0,'Caf\xe9','','cut_".encode() + b"\xc3'),(2,0,'B','','');\n"
    )
    assert table(tmp_path / "redirect.sql.gz", cut_within_a_character) == {1: "Café", 2: "B"}
    of_2023 = [
        r"(10,0,'AccessibleComputing',1,0,0.33,'20231019064200','20231019064200',1002250816,111,'wikitext',NULL)",
        r"(12,0,'Ain\'t_I_(a),(b)',0,0,0.5,'20231019064200',NULL,7,9,'wikitext','en')",
        r"(13,1,'Talk_of_it',0,0,0.5,'20231019064200',NULL,7,9,'wikitext',NULL)",
        r"(14,0,'NULL',0,0,0.5,'20231019064200',NULL,7,9,'wikitext',NULL)",
    ]
    expected = {10: "AccessibleComputing", 12: "Ain't I (a),(b)", 14: "NULL"}
    assert (
        table(
            tmp_path / "enwiki-20231101-page.sql.gz", f"{HEAD}{INTO_PAGE}{','.join(of_2023)};\n--\n"
        )
        == expected
    )
    of_2020 = r"(15,0,'X_(social_network)','edit=a:move=b',0,0,0.9,'20200101000000',NULL,7,9,'wikitext',NULL)"
    assert table(tmp_path / "page.sql.gz", f"{INTO_PAGE}{of_2020};\n") == {15: "X (social network)"}


def test_a_damaged_table_or_another_is_an_error_of_one_line(tmp_path):
    for name, text in [
        ("redirect", HEAD),
        ("redirect", f"{INTO_PAGE}(10,0,'AccessibleComputing','',1);\n"),
        ("redirect", f"{INTO_REDIRECT}(10,0,'A','','');\n{INTO_REDIRECT}(11,0,'B','',''),(12,0,'C'\n"),
        ("redirect", f"{INTO_REDIRECT}(10,0,'A',''),(11,0,'B','');\n"),
        ("redirect", f"{INTO_REDIRECT}(10,0,'".encode() + b"\xff','','');\n"),
        ("redirect", f"{INTO_REDIRECT}({'9' * 20},0,'A','','');\n"),
        ("redirect", f"{INTO_REDIRECT}(1,0,'A','','');\nN{INTO_REDIRECT}(10,0,'B','','');\n"),
        ("page", SQL),
        ("page", f"{INTO_PAGE}(10,0);\n"),
    ]:  # fmt: skip
        with pytest.raises(LongtailError, match=rf"{name}\.sql\.gz: .*expected") as error:
            table(tmp_path / f"{name}.sql.gz", text)
        assert "\n" not in str(error.value)
