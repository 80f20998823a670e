"""`latest` is the last whole dump by the end of the month; what the server still states is not
fetched twice.
"""

import hashlib
import shutil
from datetime import date
from pathlib import Path

import pytest
from fetching import RAW, manifest, settings
from fetching import run as run_fetch
from wikimedia_server import Dumps, Wikimedia

from pipelines.errors import LongtailError
from pipelines.sources import raw_files, snapshots
from pipelines.sources.snapshots import Gone, Late
from pipelines.sources.wikimedia_client import Client

pytestmark = pytest.mark.usefixtures("workplace")
MONTH, AFTER = "2026-09", date(2026, 10, 8)
PAGES = "pages-articles.xml.bz2"
ALL = [f"enwiki-20260920-{PAGES}", "pageviews-202609-user.bz2", "wikidata-20260928-all.json.gz"]


@pytest.fixture
def dumps(wikimedia: Wikimedia) -> Dumps:
    """Dumps of August, September and October, all whole, and September's page views."""
    played = Dumps(wikimedia)
    for day in ("20260824", "20260907", "20260928", "20261005"):
        played.entities(day, f"entities of {day}".encode())
    for day in ("20260820", "20260901", "20260920", "20261001"):
        played.wiki(day, {PAGES: f"pages of {day}".encode(), "redirect.sql.gz": b"redirects"})
    played.views(MONTH, b"views of September")
    return played


@pytest.fixture
def resolve(wikimedia: Wikimedia, client: Client, monkeypatch: pytest.MonkeyPatch):
    def resolve(urls: list[str], month: str = MONTH, now: date = AFTER) -> list[str]:
        monkeypatch.setattr(snapshots, "today", lambda: now)
        asked = snapshots.resolve(urls, month, 31, Path("pins"), client)
        return [asked[url].removeprefix(wikimedia.address) for url in urls]

    return resolve


def latest(dumps: Dumps) -> list[str]:
    return [url for name in ("wikidata", "wikipedia") for url in dumps.addresses(MONTH)[name]]


def test_latest_is_the_last_dump_by_the_end_of_the_month(dumps, resolve, wikimedia):
    """It is resolved once."""
    first = resolve(latest(dumps))
    assert first == [
        "/wikidatawiki/entities/20260928/wikidata-20260928-all.json.gz",
        f"/enwiki/20260920/enwiki-20260920-{PAGES}",
    ]
    dumps.entities("20260929", b"later")
    asked = len(wikimedia.requests)
    assert resolve(latest(dumps)) == first
    assert len(wikimedia.requests) == asked
    assert "20261005" in resolve(latest(dumps), "2026-10", date(2026, 11, 8))[0]


def test_a_dump_that_is_not_whole_is_waited_for(dumps, resolve):
    """Then the one before is taken."""
    dumps.entities("20260928", b"half", whole=False)
    with pytest.raises(
        Late, match=r"entities/20260928/wikidata-20260928-all\.json\.gz: not whole yet"
    ):
        resolve(latest(dumps), now=date(2026, 10, 31))
    assert "20260907" in resolve(latest(dumps), now=date(2026, 11, 1))[0]
    shutil.rmtree("pins")
    for day in ("20260907", "20260928"):
        dumps.drop("/wikidatawiki/entities", day)
    with pytest.raises(
        Late, match=r"entities/: no dump of 2026-09 yet, the last one is of 20260824"
    ):
        resolve(latest(dumps))


def test_a_wikis_files_are_of_one_dump_that_is_whole(dumps, resolve):
    """Its list of checksums says so."""
    urls = [*latest(dumps)[1:], latest(dumps)[1].replace(PAGES, "redirect.sql.gz")]
    dumps.wiki("20260920", {PAGES: b"half"}, whole=False)
    with pytest.raises(Late, match=rf"enwiki/20260920/enwiki-20260920-{PAGES}: not whole yet"):
        resolve(urls)
    dumps.wiki("20260920", {PAGES: b"the other table is missing yet"})
    with pytest.raises(Late, match=r"enwiki-20260920-redirect\.sql\.gz: not whole yet"):
        resolve(urls)
    assert [url.split("/")[2] for url in resolve(urls, now=date(2026, 11, 8))] == [
        "20260901",
        "20260901",
    ]


def test_a_month_that_is_gone_has_no_dump(dumps, resolve, wikimedia, client, monkeypatch):
    """Nor has one that is not over."""
    with pytest.raises(
        LongtailError, match=r"popularity\.month is 2026-10, expected a month that is over"
    ):
        resolve(latest(dumps), "2026-10")
    assert not wikimedia.requests
    with pytest.raises(
        Gone, match=r"no whole dump by the end of 2026-05, the server .* of 20260824 to 20261005"
    ):
        resolve(latest(dumps), "2026-05")

    def check_there(urls: list[str], month: str, now: date) -> None:
        monkeypatch.setattr(snapshots, "today", lambda: now)
        snapshots.check_there(urls, month, 31, client)

    later = dumps.addresses("2026-10")["pageviews"]
    with pytest.raises(Late, match=r"pageviews-202610-user\.bz2: not there yet"):
        check_there(later, "2026-10", date(2026, 11, 8))
    with pytest.raises(
        Gone, match=r"pageviews-202610-user\.bz2: not on the server; choose another month"
    ):
        check_there(later, "2026-10", date(2026, 12, 8))
    check_there(dumps.addresses(MONTH)["pageviews"], MONTH, AFTER)


def run(dumps: Dumps, month: str = MONTH, **change) -> list[dict]:
    files = change.pop("files", dumps.addresses(month))
    run_fetch(settings(files, **{"root": None} | change), month=month)
    return list(manifest().values())


@pytest.fixture
def fetched(dumps: Dumps, wikimedia: Wikimedia) -> list[dict]:
    """A month that has been fetched: its manifest."""
    wikimedia.version = '"one"'
    entries = run(dumps)
    assert gets(wikimedia) == ALL
    dates = {entry["dataset"]: entry.get("date") for entry in entries}
    assert dates == {"wikidata": "2026-09-28", "wikipedia": "2026-09-20", "pageviews": None}
    return entries


def gets(wikimedia: Wikimedia) -> list[str]:
    """The data files that were fetched since the last call, without lists."""
    fetched = [
        path.rsplit("/", 1)[-1]
        for (method, _), (path, _) in zip(wikimedia.ranges, wikimedia.requests, strict=True)
        if method == "GET" and path.endswith((".gz", ".bz2"))
    ]
    wikimedia.requests.clear()
    wikimedia.ranges.clear()
    return sorted(fetched)


def test_a_version_still_stated_is_not_fetched_twice(dumps, wikimedia, fetched):
    assert run(dumps) == fetched
    Path("a.jsonl").write_text("1")
    run(dumps, files={"nq": ["a.jsonl"]}, source="files", root=".")
    assert run(dumps) == fetched, "a fetch without downloads keeps those of the last one"
    assert gets(wikimedia) == []


def test_a_checksum_still_stated_is_not_fetched_twice(dumps, wikimedia):
    """Though the server names another version, as another machine behind the same address does."""
    wikimedia.version = '"one"'
    (views,) = dumps.addresses(MONTH)["pageviews"]
    wikimedia.pages[f"{views.removeprefix(wikimedia.address)}.sha1"] = (
        hashlib.sha1(b"views of September").hexdigest().encode()
    )
    first = run(dumps)
    assert gets(wikimedia) == ALL
    wikimedia.version = '"two"'
    assert run(dumps) == first
    assert gets(wikimedia) == []


@pytest.mark.parametrize(
    ("views", "version", "again"),
    [
        (b"views of September, corrected", '"one"', ALL[1:2]),
        # not the dumps, whose checksums the server still states
        (b"VIEWS OF SEPTEMBER", '"two"', ALL[1:2]),
    ],
)
def test_a_file_that_the_server_has_changed_is_fetched_again(
    dumps, wikimedia, fetched, views, version, again
):
    wikimedia.version = version
    dumps.views(MONTH, views)
    run(dumps)
    assert gets(wikimedia) == again
    assert (RAW / "pageviews" / ALL[1]).read_bytes() == views


def test_a_dump_that_is_late_ends_a_fetch(dumps, fetched, capsys, monkeypatch):
    """One that left the server does not."""
    dumps.drop("/wikidatawiki/entities", "20260928")
    assert run(dumps) == fetched
    assert "wikidata-20260928-all.json.gz: the server has it no longer" in capsys.readouterr().out
    monkeypatch.setattr(snapshots, "today", lambda: date(2026, 11, 8))
    dumps.entities("20261026", b"half", whole=False)
    with pytest.raises(
        LongtailError, match=r"not whole yet; run again another day, or name a date in place of"
    ):
        run(dumps, "2026-10")
    assert list(manifest().values()) == fetched


def file(dataset: str, day: str | None = None) -> dict:
    return {"dataset": dataset} | ({"date": day} if day else {})


def test_dates_too_far_apart_are_warned_about():
    """So are several months."""
    of = raw_files.dates(
        [file("wikidata", "2026-09-28"), file("wikipedia", "2026-08-01"), file("nq")], [MONTH]
    )
    assert of == {"Wikidata": ["2026-09-28"], "Wikipedia": ["2026-08-01"], "page views": [MONTH]}
    assert raw_files.warning(of, 58) == "", "from 1 August to 28 September"
    assert "up to 58 days apart, more than fetch.days_apart allows (57)" in raw_files.warning(
        of, 57
    )
    assert raw_files.dates([file("wikidata"), file("nq")], [MONTH]) == {}, (
        "a snapshot without a date says nothing"
    )
    assert raw_files.warning({}, 0) == ""
    months = raw_files.dates([file("wikidata")], [MONTH, "2021-10"])
    assert months == {"page views": ["2021-10", MONTH]}
    assert "thresholds mix popularities of several months" in raw_files.warning(months, 31)
    for day, apart in (("2026-09-28", 0), ("2026-10-02", 2), ("2026-08-30", 2)):
        of = {"Wikidata": [day], "page views": [MONTH]}
        assert raw_files.warning(of, apart) == "", "within the month is not apart"
        assert apart == 0 or f"up to {apart} days apart" in raw_files.warning(of, apart - 1)
    assert raw_files.day_of("wikidata/wikidata-20261109-all.json.gz") == "2026-11-09"
    assert raw_files.day_of("https://archive.example/enwiki/20181220/pages.xml") == "2018-12-20"
    assert raw_files.day_of("generated: sample world, seed 20261301") is None
    assert snapshots.months_until("2021-02", 4) == ["2020-11", "2020-12", "2021-01", "2021-02"]
    base = "https://dumps.wikimedia.org/other/pageview_complete/monthly"
    address = f"{base}/2021/2021-01/pageviews-202101-user.bz2"
    before = f"{base}/2020/2020-12/pageviews-202012-user.bz2"
    assert snapshots.with_month(address, "2021-01", "2020-12") == before
    assert snapshots.with_month("views/*202101*.bz2", "2021-01", "2020-12") == "views/*202012*.bz2"
    assert snapshots.with_month("other/*.bz2", "2021-01", "2020-12") == "other/*.bz2"
