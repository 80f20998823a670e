"""Sources arrive whole, described and from where they should, or not at all."""

import gzip
import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fetching import DUMPS, RAW, manifest, run, saved, settings
from http_faults import Fault
from profile_values import values_of
from wikimedia_server import Wikidata, Wikimedia

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.sources import c4_sample, query_service, snapshots
from pipelines.sources.fetch import DATASETS, DOWNLOADS
from pipelines.sources.rejects import Rejects
from pipelines.work import http

pytestmark = pytest.mark.usefixtures("workplace")
HERE = {"source": "files"}


def in_root(name: str, data: bytes = b"data") -> Path:
    return saved(Path("root", name), data)


def names(dataset: str) -> set[str]:
    return {file.name for file in (RAW / dataset).glob("[!.]*")}


def test_globs_are_copied_by_data_set_and_described() -> None:
    for name, data in {
        "deep/somewhere/a.jsonl": b"1",
        "deep/b.jsonl": b"22",
        "deep/.DS_Store": b"2",
    }.items():
        in_root(name, data)
    in_root("mmlu/dev/x_dev.csv", b"333")
    assert run(settings({"nq": ["deep/**/*"], "mmlu/dev": ["mmlu/dev/*.csv"]}, **HERE)) == {
        "files": 3,
        "bytes": 6,
    }
    assert names("nq") == {"a.jsonl", "b.jsonl"}, "no hidden file, and no folder"
    assert (RAW / "nq/b.jsonl").read_bytes() == b"22"
    assert (RAW / "mmlu/dev/x_dev.csv").is_file()
    # or DVC's cache loses them
    assert all((RAW / name).is_dir() and any((RAW / name).iterdir()) for name in DATASETS)
    described = {"path": "nq/b.jsonl", "dataset": "nq", "source": "deep/b.jsonl", "bytes": 2}
    described |= {"licence": DATASETS["nq"].licence, "sha256": hashlib.sha256(b"22").hexdigest()}
    assert manifest()["nq/b.jsonl"] == described


def test_a_dump_in_another_language_is_said(capsys) -> None:
    for code in ("ru", "en"):
        in_root("dump.xml", f'<mediawiki version="0.11" xml:lang="{code}">'.encode())
        run(settings({"wikipedia": ["dump.xml"]}, **HERE))
        warning = "warning: dump.xml is in the language ru, and is read by the templates, words and"
        assert (warning in capsys.readouterr().out) == (code == "ru")
    in_root("20231101.simple/a.xml", b"<mediawiki>")
    run(settings({"wikipedia": ["20231101.simple/a.xml"]}, **HERE))
    assert "warning" not in capsys.readouterr().out, "which is English"


def test_files_of_one_name_in_several_folders_are_several_files() -> None:
    """As WikiExtractor writes them, and single subjects of MMLU on the Hub."""
    for name in (
        "wiki/AA/wiki_00",
        "wiki/AA/wiki_01",
        "wiki/AB/wiki_00",
        "a/test.parquet",
        "b/c/test.parquet",
    ):
        in_root(name, name.encode())
    files = {"wikipedia": ["wiki/A?/wiki_*", "wiki/AA/*"], "mmlu/test": ["*/test.parquet", "b/c/*"]}
    run(settings(files, **HERE))
    for place in ("wikipedia/AA/wiki_00", "wikipedia/AA/wiki_01", "wikipedia/AB/wiki_00"):
        assert (
            (RAW / place).read_text()
            == place.replace("wikipedia", "wiki")
            == manifest()[place]["source"]
        )
    assert sorted(file.read_text() for file in (RAW / "mmlu/test").rglob("*.parquet")) == [
        "a/test.parquet",
        "b/c/test.parquet",
    ]
    for month in ("a", "b"):  # of which each month has one
        in_root(f"{month}/pageviews-202110-user.bz2", month.encode())
    with pytest.raises(
        LongtailError, match=r"b/pageviews-202110-user\.bz2: would be data/raw/pageviews/pageviews"
    ):
        run(settings({"pageviews": ["*/pageviews-202110-user.bz2"]}, **HERE))


TEMPLATES = "entityquestions/relation_query_templates.json"


@pytest.fixture
def queried(wikimedia: Wikimedia, monkeypatch) -> params.Wikidata:
    """A played Wikidata: 40 people with an article and one without, jobs (PopQA's) and schools
    (EntityQuestions').
    """
    people = [f"Q{100 + n}" for n in range(41)]
    statements = {
        "P106": [(one, f"Q{i % 7 + 1}") for i, one in enumerate(people)],
        "P69": [("Q100", "Q50")],
    }
    world = Wikidata(statements, {one: f"Person {one}" for one in people[:-1]})
    wikimedia.pages |= {"/sparql": world.sparql, "/api": world.api}
    at = {"query_service": f"{wikimedia.address}/sparql", "api": f"{wikimedia.address}/api"}
    monkeypatch.setattr(query_service, "STATEMENTS_PER_PAGE", 10)
    return DUMPS.model_copy(update={"source": "query_service", **at})


def test_statements_come_from_the_query_service(
    wikimedia: Wikimedia, queried: params.Wikidata
) -> None:
    in_root(TEMPLATES, b'{"P69": "Where was [X] educated?", "P69_similar": "?"}')
    before = snapshots.today().isoformat()
    counts = run(settings({"entityquestions": [TEMPLATES]}), queried)
    assert names("wikidata") == {"query-service.json.gz"}
    assert (counts["statements"], counts["statements_not_of_items"], counts["items_missing"]) == (
        41,
        0,
        0,
    )
    entry = manifest()["wikidata/query-service.json.gz"]
    assert (entry["source"], entry["licence"]) == (
        f"{queried.query_service} and {queried.api}",
        "CC0-1.0",
    )
    assert before <= entry["date"] <= snapshots.today().isoformat()
    assert len([asked for asked in wikimedia.asked("/sparql") if "slice" in asked["query"]]) == 6
    count = len(wikimedia.requests)
    run(settings({}), queried)  # a new fetch asks anew, and for PopQA's relations only
    assert len(wikimedia.requests) == count * 2 - 2
    fetched = Path(RAW, "wikidata/query-service.json.gz").read_bytes()
    RAW.rename("root/raw")
    run(settings({"wikidata": ["raw/wikidata/*"]}, **HERE))  # a dump that is here already
    assert Path(RAW, "wikidata/query-service.json.gz").read_bytes() == fetched


def test_a_fetch_that_broke_off_goes_on(wikimedia, queried, monkeypatch) -> None:
    """tests/sources/test_wikimedia.py kills one that asks."""
    monkeypatch.setattr(query_service, "STATEMENTS_PER_PAGE", 1)
    wikimedia.faults = [None] * 34 + [Fault(400, b"enough")]
    with pytest.raises(LongtailError, match="answers 400"):
        run(settings({}), queried)
    assert not RAW.exists()
    assert len(wikimedia.requests) >= 35
    run(settings({}), queried)
    broken_off = manifest()
    asked = [(path, tuple(sorted(given.items()))) for path, given in wikimedia.requests]
    assert len(asked) <= len(set(asked)) + 3, "but for those under way when it broke off"
    run(settings({}), queried)
    assert manifest() == broken_off


QUERIED = {"source": "query_service"}
PAGES = {"pages": params.Pages(api="x", max_subjects=None, namesakes=False, others=0)}
POPQA = {"popqa": ["popQA.tsv"]}


def test_what_cannot_be_fetched_is_said_before_any_request(wikimedia, queried):
    for name, data in {
        "good.jsonl": b"1",
        "other/good.jsonl": b"1",
        "empty.jsonl": b"",
        "popQA.tsv": b"1",
    }.items():
        in_root(name, data)
    Path("outside.jsonl").write_text("secret")
    os.symlink("../outside.jsonl", "root/link.jsonl")
    os.symlink("nothing", "root/dangling.jsonl")
    os.mkfifo("root/pipe")
    for files, change, wikidata, message in [
        ({"nq": ["good.jsonl", "none/*.jsonl"]}, HERE, {}, r"root/none/\*\.jsonl: no such file"),
        ({"nq": ["good.jsonl"], "films": ["good.jsonl"]}, HERE, {}, "fetch.files has films, expected some of wikidata"),
        ({"nq": ["../outside.jsonl"]}, HERE, {}, "expected a glob below fetch.root"),
        ({"nq": ["/etc/hosts"]}, HERE, {}, "expected a glob below fetch.root"),
        ({"nq": ["link.jsonl"]}, HERE, {}, "link to outside"),
        ({"nq": ["d*"]}, HERE, {}, "root/dangling.jsonl: a folder, or a link to nothing, expected a file"),
        ({"nq": ["o*"]}, HERE, {}, "root/other: a folder, or"),
        ({"nq": ["pi*"]}, HERE, {}, "root/pipe: .*expected a file"),
        ({"nq": ["good.jsonl", "empty.jsonl"]}, HERE, {}, "empty.jsonl: empty"),
        ({"nq": ["http://127.0.0.1/x"]}, HERE, {}, "addresses need fetch.source: wikimedia"),
        ({}, HERE, {}, "fetch.files is empty"),
        ({"nq": ["*.jsonl"]}, HERE | {"root": "nowhere"}, {}, "nowhere: no such folder"),
        ({"nq": ["*.jsonl"]}, HERE | {"root": None}, {}, "fetch.root is null"),
        ({}, HERE, QUERIED, "wikidata.source is query_service and fetch.source files, expected wikimedia"),
        ({"wikidata": ["x.json"]}, {}, QUERIED, "fetch.files names a dump under wikidata"),
        (POPQA, PAGES | HERE, {}, "fetch.pages asks for .*expected fetch.source: wikimedia"),
        ({"nq": ["good.jsonl"]}, PAGES, {}, r"fetch\.files\.popqa has no popQA\.tsv"),
        (POPQA | {"wikipedia": ["x.xml"]}, PAGES, {}, "leave the dump out"),
        ({"popqa": ["good.jsonl"]}, PAGES, {}, r"fetch\.files\.popqa has no popQA\.tsv"),
    ]:  # fmt: skip
        with pytest.raises(LongtailError, match=message):
            run(settings(files, **change), queried.model_copy(update={"source": "dump"} | wikidata))
        assert not wikimedia.requests
        assert not RAW.exists()


# A download arrives whole, as the server announced it, or is a clear error; a cut one goes on where
# it stopped

DATA = bytes(range(256)) * 9000  # 2.3 MB: more than one block
KEPT = 6 * http.BLOCK
NAME = "enwiki-20181220-pages-articles.xml.bz2"
SUMS = "/enwiki-20181220-sha1sums.txt"


@pytest.fixture
def server(wikimedia: Wikimedia) -> Wikimedia:
    """A server with one file, whose faults hit the requests for that file."""
    wikimedia.pages[f"/{NAME}"], wikimedia.version, wikimedia.at = DATA, '"one"', NAME
    return wikimedia


def one_file(server: Wikimedia) -> params.Fetch:
    return settings({"wikipedia": [f"{server.address}/{NAME}"]})


def cut(server: Wikimedia) -> None:
    """A fetch whose download is cut for good."""
    # the first request asks for the size
    server.faults = [None, Fault(sent=KEPT), *[Fault(sent=0)] * 5]
    with pytest.raises(
        LongtailError, match=rf"{NAME}: cut at {KEPT} of {len(DATA)} bytes.*run again to go on"
    ):
        run(one_file(server))
    assert not RAW.exists()


def ranges(server: Wikimedia) -> list[str | None]:
    asked = zip(server.requests, server.ranges, strict=True)
    return [begin for (path, _), (method, begin) in asked if (method, path) == ("GET", f"/{NAME}")]


def test_a_cut_connection_goes_on_where_it_stopped(server: Wikimedia) -> None:
    """It does not go on behind an error page."""
    first, then = 20 * http.BLOCK + 5, 23 * http.BLOCK + 5
    page = Fault(
        206, b"<html>Busy</html>", {"Content-Range": f"bytes {first}-{len(DATA) - 1}/{len(DATA)}"}
    )
    server.faults = [None, Fault(sent=first), page, Fault(sent=3 * http.BLOCK)]
    run(one_file(server))
    assert (RAW / "wikipedia" / NAME).read_bytes() == DATA
    assert ranges(server) == [None, f"bytes={first}-", f"bytes={first}-", f"bytes={then}-"]
    assert server.agents == {"longtail/0.1 (someone@example.org)"}
    assert manifest()[f"wikipedia/{NAME}"]["source"] == f"{server.address}/{NAME}"


def test_a_shard_of_c4_comes_from_where_the_hub_keeps_it(wikimedia, root) -> None:
    """The profile's address is answered by a redirect to a host that `fetch.redirects` names."""
    profile = values_of("paper-popqa")
    assert "cas-bridge.xethub.hf.co" in profile["fetch"]["redirects"]
    address, _ = profile["fetch"]["files"]["c4"]
    assert re.search("/resolve/[0-9a-f]{40}/en/", address), "at a commit"
    shard = gzip.compress(b'{"text": "Velm", "url": "a"}\n{"text": "Odra", "url": "b"}\n')
    wikimedia.pages["/kept/0a1b"] = shard
    kept = wikimedia.address.replace("127.0.0.1", "localhost") + "/kept/0a1b?X-Amz-Signature=c"
    moved = Fault(302, b"", {"Location": kept})
    chosen = settings({"c4": [wikimedia.address + urlsplit(address).path]})
    wikimedia.at = "/resolve/"

    wikimedia.faults = [moved]
    with pytest.raises(LongtailError, match=r"sends the request on to localhost, .*redirects"):
        run(chosen)
    wikimedia.faults = [moved, moved]  # asked for its size, then for the file
    run(chosen.model_copy(update={"redirects": ["localhost"]}))
    files = c4_sample.files_of_c4(RAW / "c4")
    assert [file.read_bytes() for file in files] == [shard]
    assert list(c4_sample.read_c4(files, Rejects(0.0))) == ["Velm", "Odra"]
    (described,) = manifest().values()
    assert described["source"] == chosen.files["c4"][0]
    assert described["sha256"] == hashlib.sha256(shard).hexdigest()


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_after_a_cut_download_goes_on(server, changed) -> None:
    cut(server)
    if changed:
        server.version, server.pages[f"/{NAME}"] = '"two"', DATA[::-1]
    run(one_file(server))
    assert (RAW / "wikipedia" / NAME).read_bytes() == server.pages[f"/{NAME}"]
    assert ranges(server)[-1] == (None if changed else f"bytes={KEPT}-")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {SUMS: f"{'0' * 40}  {NAME}\n".encode()},
            f"sha1 is {hashlib.sha1(DATA).hexdigest()}, .* list says 0000",
        ),
        ({f"/{NAME}.sha1": b"1" * 40}, f"its sha1 is {hashlib.sha1(DATA).hexdigest()}"),
    ],
)
def test_a_download_of_another_checksum_is_an_error(
    server: Wikimedia, files: dict, message: str
) -> None:
    server.pages |= files
    with pytest.raises(LongtailError, match=message):
        run(one_file(server))
    assert not RAW.exists()
    assert not list(DOWNLOADS.glob("*.bz2*part"))
