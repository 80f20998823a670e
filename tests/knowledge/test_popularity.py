"""Popularity: the same facts give the same file, from dumps or from the API, and nothing is
read or asked for twice.
"""

import bz2
import gzip
import json
import os
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from knowledge_tables import chosen, write_rows
from wikimedia_server import Wikimedia

from pipelines.errors import LongtailError
from pipelines.knowledge.popularity import ANSWERS, count_views
from pipelines.params.params import Popularity
from pipelines.sources import bz2_blocks, pageviews
from pipelines.tables.corpora import REJECTS

FACTS = {  # title -> views by people and by spiders
    "Ada Lovelace": (17, 3),
    "AC/DC": (6, 0),
    "Café, 100% \U0001f600": (0, 5),
    "What? (film)": (40, 2),
    "Analytical engine": (1, 0),
}
TITLES = [*FACTS, "Never viewed"]
USERS = Path("raw/pageviews/pageviews-202110-user.bz2")


@pytest.fixture(autouse=True)
def place(workplace) -> None:
    """The working folder has entities and the month's dumps in it."""
    for name in ("pageviews", "redirects"):
        Path("raw", name).mkdir(parents=True)
        Path("raw", name, ".about.md").write_text("# About\n")
    write_entities(TITLES)
    for agents, column in (("user", 0), ("spider", 1)):
        lines = ["de.wikipedia Ada_Lovelace 5 desktop 99 A99\n"]
        for i, (title, both) in enumerate(FACTS.items()):
            half = both[column] // 2
            of_access = {"desktop": half, "mobile-web": both[column] - half}
            lines += [line(title, i, views, access) for access, views in of_access.items() if views]
        lines += [line("Ada", 9001, 1000), line("X", 9003, 1000)]
        write_dump(lines, agents=agents)


def line(title: str, page: int, views: int, access: str = "desktop") -> str:
    return f"en.wikipedia {title.replace(' ', '_')} {page} {access} {views} A{views}\n"


def write_dump(lines: list[str], month: str = "202110", agents: str = "user") -> None:
    Path(f"raw/pageviews/pageviews-{month}-{agents}.bz2").write_bytes(
        bz2.compress("".join(lines).encode(), 1)
    )


def write_table(text: str, name: str) -> None:
    Path(f"raw/redirects/enwiki-{name}.sql.gz").write_bytes(gzip.compress(text.encode()))


def write_entities(titles: list[str]) -> None:
    schema = pa.schema({"qid": pa.int64(), "wiki_title": pa.string()})
    write_rows(enumerate([None, *titles, titles[0]]), schema, Path("e.parquet"))


def count(
    out: str = "out", *, contact: str | None = "someone@example.org", compute=None, **settings
) -> dict:
    api = settings.get("api", "http://127.0.0.1:9")
    given = {"source": "dump", "api": api, "redirects_api": f"{api}/w/api.php", "month": "2021-10"}
    popularity = Popularity(**given | {"agents": "all-agents"} | settings)
    params = chosen(popularity=popularity, contact=contact, **{"max_share": 0.0} | (compute or {}))
    return count_views(params, Path("e.parquet"), Path("raw"), Path(out))


def written(out: str = "out") -> bytes:
    return Path(out, "views.parquet").read_bytes()


def views(out: str = "out") -> dict[str, int]:
    return {row["title"]: row["views"] for row in pq.read_table(f"{out}/views.parquet").to_pylist()}


def serve(server: Wikimedia, titles: dict[str, int], agents: str = "all-agents") -> None:
    """The API's answers: views of each title in October; titles without views are not in them."""
    for title, views in titles.items():
        if not views:
            continue
        article = title.replace(" ", "_")
        item = {
            "project": "en.wikipedia",
            "article": article,
            "granularity": "monthly",
            "timestamp": "2021100100",
            "access": "all-access",
            "agent": agents,
            "views": views,
        }
        path = f"/metrics/pageviews/per-article/en.wikipedia/all-access/{agents}/{quote(article, safe='')}/monthly"
        server.pages[f"{path}/2021100100/2021103100"] = json.dumps({"items": [item]}).encode()


def serve_redirects(server: Wikimedia, redirects: dict[str, list[str]]) -> None:
    """The API's answers about articles; those that are not named have no redirects."""

    def api(params: dict[str, str]) -> bytes:
        names = [{"ns": 0, "title": name} for name in redirects.get(params["titles"], [])]
        page = {"title": params["titles"]} | ({"redirects": names} if names else {})
        return json.dumps({"batchcomplete": True, "query": {"pages": [page]}}).encode()

    server.pages["/w/api.php"] = api


def test_the_files_of_a_month_are_summed():
    """No dump means no views."""
    counts = count()
    assert views() == {title: sum(both) for title, both in FACTS.items()}
    assert list(views()) == sorted(FACTS)
    columns = {"title": pa.string(), "views": pa.int64()}
    assert pq.read_schema("out/views.parquet") == pa.schema(columns)
    assert pq.read_table("out/rejects.parquet") == REJECTS.schema.empty_table()
    of_files = {
        "files.pageviews": 2,
        "files.redirects": 0,
        "redirects": 0,
        "pages": 0,
        "lines_of_project": 17,
        "rejected": 0,
    }
    of_titles = {"titles": 6, "titles_with_views": 5, "titles_without_views": 1, "views": 74}
    assert counts == of_files | of_titles | {"skipped.lines_of_other_projects": 2}
    for file in Path("raw/pageviews").glob("*.bz2"):
        file.unlink()
    counts = count()
    assert (views(), counts["files.pageviews"], counts["views"], counts["titles"]) == ({}, 0, 0, 6)


def test_a_month_in_files_of_days_says_which_are_missing(capsys):
    for file in Path("raw/pageviews").glob("*.bz2"):
        file.unlink()
    for day in range(1, 30):
        write_dump([line("Ada Lovelace", 0, day)], f"202110{day:02}")
    counts = count(agents="user")
    assert views() == {"Ada Lovelace": 435}
    assert (counts["files.pageviews"], counts["days_missing"]) == (29, 2)
    said = "warning: popularity: 2021-10: no file of its days 30, 31; popularity lacks their views"
    assert said in capsys.readouterr().out
    write_dump([line("Ada Lovelace", 0, 500)])
    counts = count(agents="user")
    assert views() == {"Ada Lovelace": 500}
    assert "days_missing" not in counts
    said = "user.bz2 has the whole month, and 29 files of its days are left out"
    assert said in capsys.readouterr().out


def test_views_of_no_page_are_counted_and_said(capsys):
    write_entities(["-"])
    write_dump([line("-", 7, 5), "en.wikipedia - null desktop 5000 A5000\n"])
    counts = count()
    assert views() == {}
    assert counts["skipped.lines_of_no_page"] == 1
    assert "popularity: 1 lines have views of no known page" in capsys.readouterr().out


def test_the_api_is_not_asked_for_views_of_no_page(wikimedia):
    """They are listed as those of the title "-"."""
    write_entities(["Hyphen-minus", "-"])
    serve(wikimedia, {"-": 5000, "Hyphen-minus": 3})
    serve_redirects(wikimedia, {"Hyphen-minus": ["-"]})
    count(source="api", api=wikimedia.address)
    assert views() == {"Hyphen-minus": 3}


@pytest.mark.parametrize("agents", ["all-agents", "user"])
def test_dump_and_api_give_the_same_bytes(wikimedia, agents):
    """No answer is asked for twice."""
    facts = {title: both[0] if agents == "user" else sum(both) for title, both in FACTS.items()}
    serve(wikimedia, facts, agents)
    serve_redirects(wikimedia, {})
    counts = count("dump", agents=agents)
    of_api = count("api", source="api", api=wikimedia.address, agents=agents)
    assert written("dump") == written("api")
    assert views("api") == {title: number for title, number in facts.items() if number}
    assert of_api["views"] == counts["views"]
    assert (of_api["articles_asked_for"], of_api["articles_not_found"]) == (
        6,
        1 + list(facts.values()).count(0),
    )
    assert wikimedia.most <= 3
    asked = len(wikimedia.requests)
    assert count("again", source="api", api=wikimedia.address, agents=agents) == of_api
    assert len(wikimedia.requests) == asked
    assert ANSWERS.is_dir()


def test_a_moved_article_is_found_by_the_tables():
    moved = [
        "Analytical engine (1837)" if title == "Analytical engine" else title for title in TITLES
    ]
    write_entities(moved)
    assert "Analytical engine (1837)" not in (count() and views())
    page = "INSERT INTO `page` VALUES (4,0,'Analytical_engine_(1837)',0),(9009,0,'Analytical_engine',1);\n"
    write_table(page, "20261101-page")
    write_table(
        "INSERT INTO `redirect` VALUES (9009,0,'Analytical_engine_(1837)','','');\n",
        "20261101-redirect",
    )
    counts = count()
    assert views() == {
        title: sum(FACTS.get(title, (1, 0))) for title in moved if title != "Never viewed"
    }
    assert (counts["redirects"], counts["pages"], counts["titles_without_views"]) == (1, 2, 1)


def test_a_moved_article_is_found_by_the_api_of_redirects(wikimedia):
    """Under its new title it has no views, or the few of a redirect that was there.

    No view counts twice.
    """
    write_entities(["X (social network)", "Meta Platforms", "Twttr", "Ada Lovelace"])
    seen = {
        "Ada Lovelace": 20,
        "Twitter": 900,
        "Facebook, Inc.": 700,
        "Meta Platforms": 3,
        "Twttr": 4,
    }
    serve(wikimedia, seen)
    of_titles = {
        "X (social network)": ["Twitter", "Twttr", "Tweeter"],
        "Meta Platforms": ["Facebook, Inc."],
    }
    serve_redirects(wikimedia, of_titles)
    counts = count(source="api", api=wikimedia.address)
    expected = {"Ada Lovelace": 20, "Meta Platforms": 703, "Twttr": 4, "X (social network)": 900}
    assert views() == expected
    assert (counts["articles_not_found"], counts["redirects"], counts["titles_without_views"]) == (
        1,
        3,
        0,
    )


@pytest.mark.parametrize("name", ["redirect", "page"])
def test_two_dumps_of_a_table_are_an_error(name):
    """Views would count twice."""
    for month in ("20211101", "20211201"):
        write_table(
            f"INSERT INTO `{name}` VALUES (9001,0,'Ada_Lovelace','','');\n", f"{month}-{name}"
        )
    with pytest.raises(LongtailError, match=rf"raw/redirects: two tables of {name}s, expected one"):
        count()


def test_parts_of_a_file_give_what_the_whole_gives(monkeypatch):
    lines = [line(title, n, n) for n in range(10_000) for title in FACTS]
    lines[23_456] = "en.wikipedia two words 1 desktop 1 A1\n"
    write_dump([*lines, "en.wikipedia Ada_Lovelace 1 desk"])
    whole = count("whole", compute={"max_share": 0.01})
    monkeypatch.setattr(pageviews, "PART_BYTES", USERS.stat().st_size // 6)
    assert len(bz2_blocks.bz2_parts(USERS, pageviews.PART_BYTES)) > 5
    assert count(compute={"max_share": 0.01}) == whole
    assert written() == written("whole")
    assert Path("out/rejects.parquet").read_bytes() == Path("whole/rejects.parquet").read_bytes()
    rows = pq.read_table("out/rejects.parquet").to_pylist()
    assert [(row["row"], row["reason"]) for row in rows] == [
        (23_457, "bad_line"),
        (50_001, "cut_line"),
    ]


@pytest.mark.parametrize("changed", [False, True])
def test_what_a_killed_run_read_is_not_read_again(monkeypatch, changed):
    read, first = [], pageviews.read_views

    def stops(part, rejects, project):
        read.append(part.file.stem.rpartition("-")[2])
        if len(read) == 2:
            raise KeyboardInterrupt
        return first(part, rejects, project)

    monkeypatch.setattr(pageviews, "read_views", stops)
    with pytest.raises(KeyboardInterrupt):
        count()
    if changed:  # another file as long and, it says, as old
        file, status = Path("raw/pageviews/pageviews-202110-spider.bz2"), USERS.stat()
        file.write_bytes(
            bz2.compress(bz2.decompress(file.read_bytes()).replace(b" 3 A3", b" 2 A2"), 1)
        )
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    count()
    assert read == ["spider", "user", *["spider"] * changed, "user"]
    assert views()["Café, 100% \U0001f600"] == 5 - changed
    assert views()["Ada Lovelace"] == 20


def test_no_contact_is_an_error(wikimedia):
    """So is an API that knows no article, and it is asked again."""
    with pytest.raises(LongtailError, match=r"contact is null"):
        count(source="api", contact=None)
    with pytest.raises(LongtailError, match=r"knows none of the 6 articles in 2021-10"):
        count(source="api", api=wikimedia.address)
    serve(wikimedia, {"Ada Lovelace": 20})
    serve_redirects(wikimedia, {})
    count(source="api", api=wikimedia.address)
    assert views() == {"Ada Lovelace": 20}
