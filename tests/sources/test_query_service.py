"""The query service's statements and names arrive whole, however it falters; what is not of two
items is counted.
"""

import gzip
from pathlib import Path
from unittest import mock

import pytest
from http_faults import Fault, busy
from wikimedia_server import TRACE, Wikidata, Wikimedia

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params import params
from pipelines.sources import query_service, wikidata
from pipelines.sources.query_service import write_statements
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikimedia_client import Client, open_client

GENID = "http://www.wikidata.org/.well-known/genid/0123abc"
JOBS = [(f"Q{100 + n}", f"Q{n % 3 + 1}") for n in range(23)]
CITIES = [
    ("Q100", "Q7"),
    ("Q101", GENID),
    ("Q102", "_:t1"),
    ("Q103", '"Rome"'),
    ("Q104", "http://www.wikidata.org/x"),
]
ARTICLES = {f"Q{100 + n}": f"Title {n}" for n in range(0, 23, 1) if n != 5}
RIGHT = {(100 + n, 106, n % 3 + 1) for n in range(23) if n != 5} | {(100, 19, 7)}
NAMED = {int(qid[1:]) for qid in ARTICLES} | {1, 2, 3, 7}


@pytest.fixture
def world(wikimedia: Wikimedia, monkeypatch: pytest.MonkeyPatch) -> Wikidata:
    monkeypatch.setattr(query_service, "SMALLEST_PAGE", 2)
    world = Wikidata({"P106": JOBS, "P19": CITIES}, ARTICLES)
    wikimedia.pages |= {"/sparql": world.sparql, "/api": world.api}
    return world


def fetched(
    client: Client, wikimedia: Wikimedia, file: Path, page=8, pids=("P19", "P106"), code="en"
) -> dict:
    """The counts."""
    at = {"query_service": f"{wikimedia.address}/sparql", "api": f"{wikimedia.address}/api"}
    with mock.patch.object(query_service, "STATEMENTS_PER_PAGE", page):
        settings = params.Wikidata(source="query_service", **at)
        return write_statements(client, file, settings, pids, language.read_language(code))


def read(file: Path, code: str = "en") -> tuple[list[dict], set[tuple], dict]:
    """The items that the reader of dumps finds, their claims, and what it skips."""
    block, rejects = [gzip.decompress(file.read_bytes())], Rejects(0.0)
    table, _, fault = wikidata.parse_block(
        "q", block, ("P17", "P19", "P106"), rejects, language.read_language(code)
    )
    wikidata.check_read("q", rejects, fault)
    rows = table.to_pylist()
    claims = {
        (row["qid"], *claim)
        for row in rows
        for claim in zip(row["properties"], row["objects"], strict=True)
    }
    return rows, claims, dict(rejects.skipped)


def check(file: Path) -> None:
    rows, claims, _ = read(file)
    assert claims == RIGHT
    assert [row["qid"] for row in rows] == sorted(NAMED)


def test_statements_of_items_with_an_article_and_their_names(
    client, wikimedia, world, tmp_path
) -> None:
    counts = fetched(client, wikimedia, tmp_path / "q.json.gz")
    check(tmp_path / "q.json.gz")
    assert counts == {"statements": 23, "statements_not_of_items": 4, "items_missing": 0}
    rows, _, skipped = read(tmp_path / "q.json.gz")
    (one,) = [row for row in rows if row["qid"] == 100]
    assert (one["label"], one["aliases"], one["wiki_title"]) == ("Label of Q100", [], "Title 0")
    assert skipped == {}
    assert (tmp_path / "q.json.gz").read_bytes()[4:8] == b"\0" * 4  # no time in it


def test_pages_overlap_so_that_an_edit_meanwhile_loses_nothing(
    client, wikimedia, world, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(query_service, "OVERLAP", 0.25)

    def sparql(asking: dict[str, str]) -> bytes:
        body = world.sparql(asking)
        if "slice.offset 0 " in asking["query"] and "P106" in asking["query"]:
            world.statements["P106"] = JOBS[1:]  # everything behind it moves
        return body

    wikimedia.pages["/sparql"] = sparql
    fetched(client, wikimedia, tmp_path / "q.json.gz")
    assert world.statements["P106"] == JOBS[1:]
    check(tmp_path / "q.json.gz")


def test_pages_that_run_out_of_time_are_halved(client, wikimedia, world, tmp_path) -> None:
    world.in_time = 3
    counts = fetched(client, wikimedia, tmp_path / "q.json.gz", page=20)
    check(tmp_path / "q.json.gz")
    queries = [
        asked["query"] for asked in wikimedia.asked("/sparql") if "wdt:P106" in asked["query"]
    ]
    starts = {
        int(query.split("slice.offset ")[1].split()[0])
        for query in queries
        if "slice.offset" in query
    }
    assert starts == {0, 3, 5, 8, 10, 13, 15, 18, 20}
    count = len(wikimedia.requests)
    assert fetched(client, wikimedia, tmp_path / "again.json.gz", page=20) == counts
    assert (tmp_path / "again.json.gz").read_bytes() == (tmp_path / "q.json.gz").read_bytes()
    assert len(wikimedia.requests) == count
    world.in_time = 1
    with pytest.raises(
        LongtailError, match=r"/sparql\?query=SELECT \?s \?o .*ran out of time; try again"
    ):
        fetched(client, wikimedia, tmp_path / "q.json.gz", page=2)


@pytest.mark.parametrize(
    "fault", [Fault(500, TRACE), Fault(504, b"upstream request timeout")], ids=str
)
def test_a_status_may_say_that_time_ran_out(client, wikimedia, world, tmp_path, fault) -> None:
    wikimedia.faults = [None, None, fault]  # after the two counts: a page
    fetched(client, wikimedia, tmp_path / "q.json.gz")
    assert (
        len([asked for asked in wikimedia.asked("/sparql") if "slice" in asked["query"]]) == 4 + 2
    ), "two halves"
    check(tmp_path / "q.json.gz")


def test_bytes_do_not_depend_on_the_order_of_arrival(
    wikimedia, world, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(query_service, "IDS_PER_REQUEST", 5)
    for name, faults in {
        "one": [],
        "two": [busy(), None, None, Fault(503), None, Fault(sent=1), busy()],
    }.items():
        wikimedia.faults = faults
        with open_client("someone@example.org", tmp_path / f"kept-{name}") as client:
            fetched(client, wikimedia, tmp_path / name, page=2)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert len({asked["ids"] for asked in wikimedia.asked("/api")}) == 6
    check(tmp_path / "two")


def test_what_is_no_query_service_is_named(client, wikimedia, tmp_path) -> None:
    wikimedia.pages["/sparql"] = (
        b'{"results": {"bindings": [{"n": {"type": "literal", "value": "0"}}]}}'
    )
    with pytest.raises(LongtailError, match="sparql: no statement of P19, P106"):
        fetched(client, wikimedia, tmp_path / "q.json.gz")


NAMED_IN = {
    "de": ("de|mul", {1: ("München", [], "München"), 2: ("Deutschland", [], None)}),
    "zh": (
        "zh|zh-hans|zh-hant|zh-cn|zh-tw|zh-hk|zh-sg|zh-mo|zh-my|mul",
        {1: ("慕尼黑", ["慕尼黒"], None)},
    ),
}


@pytest.mark.parametrize("code", NAMED_IN)
def test_statements_and_names_are_those_of_the_language(client, wikimedia, tmp_path, code) -> None:
    def named(**texts: str) -> dict:
        return {
            "labels": {
                (c := code.replace("_", "-")): {"language": c, "value": t}
                for code, t in texts.items()
            }
        }

    codes, names = NAMED_IN[code]
    sitelinks = {"sitelinks": {"enwiki": {"title": "Munich"}, "dewiki": {"title": "München"}}}
    labels = {
        "Q1": named(en="Munich", de="München", zh_hans="慕尼黑", zh_hant="慕尼黒") | sitelinks
    }
    labels |= {"Q2": named(en="Germany", de="Deutschland"), "Q3": named(en="Bavaria")}
    statements = {"P17": [("Q1", "Q2"), ("Q1", "Q3")]}
    # The service itself knows which items have an article in the language
    wikimedia.pages |= {
        "/sparql": Wikidata(statements, {"Q1": ""}).sparql,
        "/api": Wikidata({}, {}, labels).api,
    }
    fetched(client, wikimedia, tmp_path / "q.json.gz", pids=["P17"], code=code)
    (query,) = [asked["query"] for asked in wikimedia.asked("/sparql") if "slice" in asked["query"]]
    assert f"schema:isPartOf <https://{code}.wikipedia.org/>" in query
    (asked,) = wikimedia.asked("/api")
    assert (asked["languages"], asked["sitefilter"]) == (codes, f"{code}wiki")
    rows, _, skipped = read(tmp_path / "q.json.gz", code)
    assert {row["qid"]: (row["label"], row["aliases"], row["wiki_title"]) for row in rows} == names
    assert skipped[language.read_language(code).nameless] == 3 - len(names), (
        "no English name stands in"
    )


def texts(*values: str) -> list[dict]:
    return [{"language": "en", "value": value} for value in values]


def test_a_redirect_counts_for_the_id_asked(client, wikimedia, tmp_path) -> None:
    """Empty maps may be written as lists, and names for all languages fill in."""
    world = Wikidata(
        {"P19": [("Q1", "Q2"), ("Q1", "Q3"), ("Q1", "Q4"), ("Q1", "Q5")]},
        {"Q1": "One", "Q9": "Nine"},
    )
    world.redirects, world.missing = {"Q2": "Q9"}, {"Q3"}
    world.labels = {
        "Q4": {
            "labels": {"mul": {"language": "mul", "value": "K."}},
            "aliases": {"en": texts("K", "K", "")},
        },
        "Q5": {"labels": [], "aliases": [], "sitelinks": []},
    }
    wikimedia.pages |= {"/sparql": world.sparql, "/api": world.api}
    counts = fetched(client, wikimedia, tmp_path / "q.json.gz", pids=["P19"])
    assert counts["items_missing"] == 1
    rows, claims, skipped = read(tmp_path / "q.json.gz")
    named = [(row["qid"], row["label"], row["aliases"], row["wiki_title"]) for row in rows]
    assert named == [
        (1, "Label of Q1", [], "One"),
        (2, "Label of Q9", [], "Nine"),
        (4, "K.", ["K"], None),
    ]
    assert claims == {(1, 19, n) for n in (2, 3, 4, 5)}
    assert skipped == {"no_english": 1}


def test_fifty_are_asked_for_at_once_and_only_what_is_needed(
    client: Client, wikimedia: Wikimedia, tmp_path
) -> None:
    world = Wikidata(
        {"P106": [(f"Q{n}", "Q1") for n in range(1, 121)]},
        {f"Q{n}": f"T{n}" for n in range(1, 121)},
    )
    wikimedia.pages |= {"/sparql": world.sparql, "/api": world.api}
    fetched(client, wikimedia, tmp_path / "q.json.gz", page=500, pids=["P106"])
    assert [row["qid"] for row in read(tmp_path / "q.json.gz")[0]] == list(range(1, 121))
    asked = wikimedia.asked("/api")
    assert sorted(len(params["ids"].split("|")) for params in asked) == [20, 50, 50]
    rest = {
        "props": "labels|aliases|sitelinks",
        "languages": "en|mul",
        "sitefilter": "enwiki",
        "redirects": "yes",
    }
    assert all(params | rest == params for params in asked)
