"""Popularity: the same facts give the same file, from dumps or from the API, and nothing is read or asked for twice."""

import bz2
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wikimedia_server import Wikimedia

from pipelines import shards
from pipelines.errors import LongtailError
from pipelines.knowledge import popularity
from pipelines.knowledge.popularity import count_views
from pipelines.params import Compute, Ingest, Popularity
from pipelines.sources import bz2_blocks, pageviews
from pipelines.sources.rejects import SCHEMA as REJECTS

FACTS = {  # title -> views by people and by spiders
    "Ada Lovelace": (17, 3),
    "AC/DC": (6, 0),
    "Café, 100% \U0001f600": (0, 5),
    "What? (film)": (40, 2),
    "Analytical engine": (1, 0),
}
TITLES = [*FACTS, "Never viewed"]
REDIRECTS = r"INSERT INTO `redirect` VALUES (9001,0,'Ada_Lovelace','',''),(9002,0,'AC/DC','','Line\'s');"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with entities and the month's dumps in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("pageviews", "redirects"):
        (tmp_path / "raw" / name).mkdir(parents=True)
        (tmp_path / "raw" / name / ".about.md").write_text("# About\n")
    write_entities(TITLES)
    for agents, column in (("user", 0), ("spider", 1)):
        lines = [f"en.wikipedia {title.replace(' ', '_')} {i} {access} {views} A{views}\n"
            for i, (title, both) in enumerate(FACTS.items())
            for access, views in (("desktop", both[column] // 2), ("mobile-web", both[column] - both[column] // 2))
            if views]  # fmt: skip
        lines += [f"en.wikipedia {name} {number} desktop 1000 A1000\n" for name, number in (("Ada", 9001), ("X", 9003))]
        text = "de.wikipedia Ada_Lovelace 5 desktop 99 A99\n" + "".join(lines)
        (tmp_path / f"raw/pageviews/pageviews-202110-{agents}.bz2").write_bytes(bz2.compress(text.encode()))
    return tmp_path


def write_entities(titles: list[str | None]) -> None:
    titles = [None, *titles, titles[0]]
    pq.write_table(pa.table({"qid": range(len(titles)), "wiki_title": pa.array(titles, pa.string())}), "e.parquet")


def count(out: str = "out", *, contact: str | None = None, threads=1, workers=1, rejected=0.0, **settings) -> dict:
    api = settings.get("api", "http://127.0.0.1:9")
    given = {
        "source": "dump",
        "api": api,
        "redirects_api": f"{api}/w/api.php",
        "month": "2021-10",
        "agents": "all-agents",
    } | settings
    params = SimpleNamespace(
        popularity=Popularity(**given),
        contact=contact,
        language="en",
        ingest=Ingest(max_reject_share=rejected, memory_gb=1.0, record_mb=64.0, rejects_kept=100_000),
        compute=Compute(threads=threads, workers=workers, executor="local", dask=None, device="cpu"),
    )
    return count_views(params, Path("e.parquet"), Path("raw"), Path(out))


def views(out: str = "out") -> dict[str, int]:
    return {row["title"]: row["views"] for row in pq.read_table(f"{out}/views.parquet").to_pylist()}


def serve(server: Wikimedia, titles: dict[str, int], agents: str = "all-agents") -> None:
    for title, number in titles.items():
        article = title.replace(" ", "_")
        item = {"project": "en.wikipedia", "article": article, "granularity": "monthly", "timestamp": "2021100100"}
        body = {"items": [item | {"access": "all-access", "agent": agents, "views": number}]}
        path = f"/metrics/pageviews/per-article/en.wikipedia/all-access/{agents}/{quote(article, safe='')}/monthly"
        server.pages[f"{path}/2021100100/2021103100"] = json.dumps(body).encode()


MONTHS = {  # title -> views in August, September and October
    "Ada Lovelace": (3, 0, 17),
    "AC/DC": (6, 6, 6),
    "Café, 100% \U0001f600": (100, 10, 0),
    "Analytical engine": (0, 9, 99),
}


def write_months() -> None:
    for column, month in enumerate(("202108", "202109", "202110")):
        lines = [
            f"en.wikipedia {title.replace(' ', '_')} {i} desktop {of_months[column]} A1\n"
            for i, (title, of_months) in enumerate(MONTHS.items())
            if of_months[column]
        ]
        text = "".join([*lines, f"en.wikipedia Ada 9001 desktop {column + 1} A1\n"])  # redirects to Ada Lovelace
        Path(f"raw/pageviews/pageviews-{month}-user.bz2").write_bytes(bz2.compress(text.encode()))
    Path("raw/pageviews/pageviews-202110-spider.bz2").unlink(missing_ok=True)
    Path("raw/redirects/enwiki-redirect.sql.gz").write_bytes(gzip.compress(REDIRECTS.encode()))


def serve_months(server: Wikimedia) -> None:
    of_titles = MONTHS | {"Ada": (1, 2, 3)}
    for title, of_months in of_titles.items():
        article = title.replace(" ", "_")
        item = {"project": "en.wikipedia", "article": article, "granularity": "monthly", "agent": "user"}
        items = [
            item | {"access": "all-access", "timestamp": f"{month}0100", "views": views}
            for month, views in zip(("202108", "202109", "202110"), of_months, strict=True)
            if views
        ]
        path = f"/metrics/pageviews/per-article/en.wikipedia/all-access/user/{quote(article, safe='')}/monthly"
        server.pages[f"{path}/2021080100/2021103100"] = json.dumps({"items": items}).encode()
    serve_redirects(server, {"Ada Lovelace": ["Ada"]})


def serve_redirects(server: Wikimedia, redirects: dict[str, list[str]]) -> None:
    """The API's answers about articles; those that are not named have no redirects."""

    def api(params: dict[str, str]) -> bytes:
        names = [{"ns": 0, "title": name} for name in redirects.get(params["titles"], [])]
        page = {"title": params["titles"]} | ({"redirects": names} if names else {})
        return json.dumps({"batchcomplete": True, "query": {"pages": [page]}}).encode()

    server.pages["/w/api.php"] = api


def test_several_months_have_a_mean_and_a_spread_beside_the_months_views(place, wikimedia):
    write_months()
    counts = count("dump", months=3, agents="user")
    rows = {row["title"]: row for row in pq.read_table("dump/views.parquet").to_pylist()}
    expected = MONTHS | {"Ada Lovelace": (4, 2, 20)}
    assert [*rows] == sorted(expected)
    for title, of_months in expected.items():
        assert rows[title]["views"] == (of_months[-1] or None)
        assert rows[title]["mean"] == pytest.approx(np.mean(of_months))
        assert rows[title]["sd_log10"] == pytest.approx(np.log10(1 + np.array(of_months)).std())
    assert rows["AC/DC"]["sd_log10"] == 0
    assert (counts["files.pageviews"], counts["titles_with_views"], counts["views"]) == (3, 3, 125)
    serve_months(wikimedia)
    count("api", source="api", api=wikimedia.address, contact="someone@example.org", months=3, agents="user")
    assert Path("dump/views.parquet").read_bytes() == Path("api/views.parquet").read_bytes()
    asked = [path for path, _ in wikimedia.requests if "per-article" in path]
    assert len(asked) == len(TITLES) + 1, "one request for all months"
    count("threads", months=3, agents="user", threads=4, workers=2)
    assert Path("dump/views.parquet").read_bytes() == Path("threads/views.parquet").read_bytes()


def test_a_month_without_files_is_named_before_any_is_read(place):
    write_months()
    Path("raw/pageviews/pageviews-202109-user.bz2").unlink()
    with pytest.raises(LongtailError, match=r"^no page views of 2021-09, expected files of 2021-08 to 2021-10 .*$"):
        count(months=3, agents="user")
    assert not Path("out").exists()


def test_the_files_of_a_month_are_summed_for_the_articles_of_entities(place):
    counts = count()
    assert views() == {title: sum(both) for title, both in FACTS.items()}
    assert list(views()) == sorted(FACTS)
    columns = {"title": pa.string(), "views": pa.int64(), "mean": pa.float64(), "sd_log10": pa.float64()}
    assert pq.read_schema("out/views.parquet") == pa.schema(columns)
    assert pq.read_table("out/views.parquet", columns=["mean", "sd_log10"]).drop_null().num_rows == 0, "of one month"
    assert pq.read_table("out/rejects.parquet") == REJECTS.empty_table()
    assert counts == {
        "files.pageviews": 2,
        "files.redirects": 0,
        "redirects": 0,
        "pages": 0,
        "lines": 17,
        "titles": 6,
        "titles_with_views": 5,
        "titles_without_views": 1,
        "views": 74,
        "skipped.other_project_views": 2,
        "rejected": 0,
    }


@pytest.mark.parametrize("agents", ["all-agents", "user"])
def test_dump_and_api_of_the_same_facts_give_the_same_bytes(place, wikimedia, agents):
    facts = {title: both[0] if agents == "user" else sum(both) for title, both in FACTS.items()}
    serve(wikimedia, facts, agents)
    serve_redirects(wikimedia, {})
    counts = count("dump", agents=agents)
    of_api = count("api", source="api", api=wikimedia.address, agents=agents, contact="someone@example.org")
    assert Path("dump/views.parquet").read_bytes() == Path("api/views.parquet").read_bytes()
    assert views("api") == {title: number for title, number in facts.items() if number}
    assert of_api["views"] == counts["views"]
    assert (of_api["articles_asked_for"], of_api["articles_not_found"]) == (6, 1)
    assert wikimedia.most <= 3


def test_redirects_count_for_their_target_where_there_is_a_table(place):
    Path("raw/redirects/enwiki-20211101-redirect.sql.gz").write_bytes(gzip.compress(REDIRECTS.encode()))
    counts = count()
    assert views()["Ada Lovelace"] == 20 + 2 * 1000
    assert (counts["views"], counts["redirects"], counts["files.redirects"]) == (2074, 2, 1)


def test_a_moved_article_is_found_by_the_tables_of_pages_and_redirects(place):
    moved = ["Analytical engine (1837)" if title == "Analytical engine" else title for title in TITLES]
    write_entities(moved)
    assert "Analytical engine (1837)" not in (count() and views())
    tables = {
        "page": "INSERT INTO `page` VALUES (4,0,'Analytical_engine_(1837)',0),(9009,0,'Analytical_engine',1);\n",
        "redirect": "INSERT INTO `redirect` VALUES (9009,0,'Analytical_engine_(1837)','','');\n",
    }
    for name, text in tables.items():
        Path(f"raw/redirects/enwiki-20261101-{name}.sql.gz").write_bytes(gzip.compress(text.encode()))
    counts = count()
    assert views() == {title: sum(FACTS.get(title, (1, 0))) for title in moved if title != "Never viewed"}
    assert (counts["redirects"], counts["pages"], counts["titles_without_views"]) == (1, 2, 1)


def test_a_moved_article_is_found_by_the_api_of_redirects(place, wikimedia):
    """Under its new title it has no views, or the few of a redirect that was there. No view counts twice."""
    write_entities(["X (social network)", "Meta Platforms", "Twttr", "Ada Lovelace"])
    serve(wikimedia, {"Ada Lovelace": 20, "Twitter": 900, "Facebook, Inc.": 700, "Meta Platforms": 3, "Twttr": 4})
    serve_redirects(
        wikimedia,
        {"X (social network)": ["Twitter", "Twttr", "Tweeter"], "Meta Platforms": ["Facebook, Inc."]},
    )
    counts = count(source="api", api=wikimedia.address, contact="someone@example.org")
    assert views() == {"Ada Lovelace": 20, "Meta Platforms": 703, "Twttr": 4, "X (social network)": 900}
    assert (counts["articles_not_found"], counts["redirects"], counts["titles_without_views"]) == (1, 3, 0)


@pytest.mark.parametrize("name", ["redirect", "page"])
def test_two_dumps_of_a_table_are_an_error_as_views_would_count_twice(place, name):
    for month in ("20211101", "20211201"):
        text = f"INSERT INTO `{name}` VALUES (9001,0,'Ada_Lovelace','','');\n"
        Path(f"raw/redirects/enwiki-{month}-{name}.sql.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(LongtailError, match=r"raw/redirects: two tables of (redirects|pages) are in it, expected one"):
        count()


def test_threads_and_processes_make_no_difference(place):
    Path("raw/redirects/enwiki-20211101-redirect.sql.gz").write_bytes(gzip.compress(REDIRECTS.encode()))
    count("one")
    count("two", threads=2, workers=2)
    for name in ("views", "rejects"):
        assert Path(f"one/{name}.parquet").read_bytes() == Path(f"two/{name}.parquet").read_bytes()


def test_no_dump_is_no_views_and_the_metrics_say_so(place):
    for file in Path("raw/pageviews").glob("*.bz2"):
        file.unlink()
    counts = count()
    assert views() == {}
    assert (counts["files.pageviews"], counts["views"], counts["titles"]) == (0, 0, 6)


def test_a_damaged_file_leaves_no_output(place):
    file = Path("raw/pageviews/pageviews-202110-user.bz2")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(LongtailError, match=r"pageviews-202110-user\.bz2: cut"):
        count()
    assert not Path("out").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_of_a_file_give_what_the_whole_gives(place, monkeypatch, workers):
    words = [f"en.wikipedia {title.replace(' ', '_')} {n} desktop {n} A{n}" for n in range(40_000) for title in FACTS]
    words[123_456] = "en.wikipedia two words 1 desktop 1 A1"
    text = "\n".join(words) + "\nen.wikipedia Ada_Lovelace 1 desk"
    Path("raw/pageviews/pageviews-202110-user.bz2").write_bytes(bz2.compress(text.encode(), 1))
    counts, (whole, rejects) = count(rejected=0.01), written()
    monkeypatch.setattr(pageviews, "PART", 50_000)
    assert len(bz2_blocks.parts(Path("raw/pageviews/pageviews-202110-user.bz2"), pageviews.PART)) > 5
    assert count(rejected=0.01, workers=workers) == counts
    assert written() == (whole, rejects)
    rows = pq.read_table("out/rejects.parquet").to_pylist()
    assert [(row["row"], row["reason"]) for row in rows] == [(123_457, "bad_line"), (200_001, "cut_line")]


def written() -> tuple[bytes, bytes]:
    return Path("out/views.parquet").read_bytes(), Path("out/rejects.parquet").read_bytes()


def test_what_a_killed_run_read_is_not_read_again(place, monkeypatch):
    read, first = [], pageviews.read_views

    def stops(path, rejects, *part):
        read.append(path.name)
        if "user" in path.name and len(read) == 2:
            raise KeyboardInterrupt
        return first(path, rejects, *part)

    monkeypatch.setattr(pageviews, "read_views", stops)
    with pytest.raises(KeyboardInterrupt):
        count()
    count()
    assert read == [f"pageviews-202110-{agents}.bz2" for agents in ("spider", "user", "user")]
    assert views() == {title: sum(both) for title, both in FACTS.items()}


@pytest.mark.parametrize("change", ["content", "time"])
def test_what_a_killed_run_read_of_another_dump_does_not_count(place, monkeypatch, change):
    file = Path("raw/pageviews/pageviews-202110-user.bz2")
    with monkeypatch.context() as killed:
        killed.setattr(shards, "forget", lambda *_: None)  # as after a kill, what was read stays
        count()
    before, status, read = views(), file.stat(), []
    if change == "content":
        text = bz2.decompress(file.read_bytes())
        file.write_bytes(bz2.compress(text.replace(b" 8 A8", b" 9 A9")))
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(file, ns=(0, 0))
    first = pageviews.read_views
    monkeypatch.setattr(pageviews, "read_views", lambda path, *rest: read.append(path.name) or first(path, *rest))
    count()
    assert file.name in read
    assert (views() == before) == (change == "time")


def test_no_contact_is_an_error(place):
    with pytest.raises(LongtailError, match=r"contact is null"):
        count(source="api")


def test_an_api_that_knows_no_article_is_an_error_and_is_asked_again(place, wikimedia):
    settings = {"source": "api", "api": wikimedia.address, "contact": "someone@example.org"}
    with pytest.raises(LongtailError, match=r"knows none of the 6 articles in 2021-10"):
        count(**settings)
    serve(wikimedia, {"Ada Lovelace": 20})
    serve_redirects(wikimedia, {})
    count(**settings)
    assert views() == {"Ada Lovelace": 20}


KILLED = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from knowledge.test_popularity import count
count(source="api", api={api!r}, contact="someone@example.org")
"""


def test_what_a_killed_run_was_told_is_not_asked_for_again(place, wikimedia, root):
    titles = {f"Title {i:03d}": i for i in range(1, 101)}
    write_entities(list(titles))
    serve(wikimedia, titles)
    serve_redirects(wikimedia, {})
    wikimedia.stalls_after = 39
    code = KILLED.format(tests=str(root / "tests"), root=str(root), api=wikimedia.address)
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(wikimedia.requests) < 40:
        assert run.poll() is None
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    wikimedia.stalls_after, before = None, len(wikimedia.requests)
    of_redirects = len(titles)  # a request each
    count(source="api", api=wikimedia.address, contact="someone@example.org")
    assert views() == titles
    different = {(path, *sorted(params.items())) for path, params in wikimedia.requests}
    assert len(wikimedia.requests) - len(different) <= 3  # those under way then
    assert len(wikimedia.requests) - before <= 100 - 40 + 3 + of_redirects
    after = len(wikimedia.requests)
    count(source="api", api=wikimedia.address, contact="someone@example.org")
    assert len(wikimedia.requests) == after
    assert popularity.ANSWERS.is_dir()
