"""The query service's statements and names arrive whole, however it falters; what is not of two items is counted."""

import gzip
import json
import shutil
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from fetching import saved
from http_faults import Fault, busy
from wikimedia_server import TRACE, Wikidata, Wikimedia

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params import params
from pipelines.sources import query_service
from pipelines.sources.entity_api import fetch_names
from pipelines.sources.query_service import is_statement_page, read_statement_pages, write_statement_pages
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikimedia import Client, open_client

GENID = "http://www.wikidata.org/.well-known/genid/0123abc"
JOBS = [(f"Q{100 + n}", f"Q{n % 3 + 1}") for n in range(23)]
CITIES = [("Q100", "Q7"), ("Q101", GENID), ("Q102", "_:t1"), ("Q103", '"Rome"'), ("Q104", "http://www.wikidata.org/x")]
ARTICLES = {f"Q{100 + n}": f"Title {n}" for n in range(0, 23, 1) if n != 5}
RIGHT = {(100 + n, 106, n % 3 + 1) for n in range(23) if n != 5} | {(100, 19, 7)}
NAMED = {int(qid[1:]) for qid in ARTICLES} | {1, 2, 3, 7}


@pytest.fixture
def world(wikimedia: Wikimedia, monkeypatch: pytest.MonkeyPatch) -> Wikidata:
    monkeypatch.setattr(query_service, "SMALLEST", 2)
    world = Wikidata({"P106": JOBS, "P19": CITIES}, ARTICLES)
    wikimedia.pages |= {"/sparql": world.sparql, "/api": world.api}
    return world


def chosen(wikimedia: Wikimedia) -> params.Wikidata:
    at = {"query_service": f"{wikimedia.address}/sparql", "api": f"{wikimedia.address}/api"}
    return params.Wikidata(source="query_service", **at)


def fetched(client: Client, wikimedia: Wikimedia, folder: Path, page: int = 8) -> dict[str, bytes]:
    """The files' contents by name."""
    settings = chosen(wikimedia)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with mock.patch.object(query_service, "STATEMENTS", page):
        sources = write_statement_pages(client, folder, settings, ["P19", "P106"])
    files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    assert sources == {name: settings.query_service if name.startswith("P") else settings.api for name in files}
    assert all(is_statement_page(Path(name)) for name in files)
    return files


def read(folder: Path, code: str = "en") -> tuple[pa.Table, pa.Table, dict[str, int]]:
    rejects = Rejects(0.0)
    entities, claims = zip(
        *read_statement_pages(sorted(folder.iterdir()), rejects, language.read_language(code)), strict=True
    )
    rejects.check()
    return pa.concat_tables(entities), pa.concat_tables(claims), dict(rejects.skipped)


def check(folder: Path) -> None:
    entities, claims, _ = read(folder)
    assert {(row["s"], row["p"], row["o"]) for row in claims.to_pylist()} == RIGHT
    assert set(entities["qid"].to_pylist()) == NAMED


def test_statements_of_items_with_an_article_and_their_names(client, wikimedia, world, tmp_path) -> None:
    files = fetched(client, wikimedia, tmp_path / "raw")
    check(tmp_path / "raw")
    pages = [f"P106-{start:09d}.srj.gz" for start in (0, 8, 16)] + ["P19-000000000.srj.gz"]
    assert list(files) == [*pages, "entities-000000000.jsonl.gz"]
    entities, _, skipped = read(tmp_path / "raw")
    assert skipped == {"somevalue_statement": 2, "not_an_item_statement": 2}
    one = {"qid": 100, "label": "Label of Q100", "aliases": [], "wiki_title": "Title 0"}
    assert one in entities.to_pylist()
    asked = next(q["query"] for q in wikimedia.asked("/sparql") if "slice.offset 16 " in q["query"])
    assert gzip.decompress(files["P106-000000016.srj.gz"]) == world.sparql({"query": asked}), "kept as it came"
    assert files["P106-000000016.srj.gz"][4:8] == b"\0" * 4  # no time in it


def test_pages_overlap_so_that_an_edit_meanwhile_loses_nothing(client, wikimedia, world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(query_service, "OVERLAP", 0.25)

    def sparql(asking: dict[str, str]) -> bytes:
        body = world.sparql(asking)
        if "slice.offset 0 " in asking["query"] and "P106" in asking["query"]:
            world.statements["P106"] = JOBS[1:]  # everything behind it moves
        return body

    wikimedia.pages["/sparql"] = sparql
    fetched(client, wikimedia, tmp_path / "raw")
    assert world.statements["P106"] == JOBS[1:]
    check(tmp_path / "raw")


def test_pages_that_run_out_of_time_are_halved_and_not_asked_for_again(client, wikimedia, world, tmp_path) -> None:
    world.in_time = 3
    files = fetched(client, wikimedia, tmp_path / "raw", page=20)
    check(tmp_path / "raw")
    starts = [int(name[5:14]) for name in files if name.startswith("P106")]
    assert starts == [0, 3, 5, 8, 10, 13, 15, 18, 20]
    count = len(wikimedia.requests)
    assert fetched(client, wikimedia, tmp_path / "again", page=20) == files
    assert len(wikimedia.requests) == count
    world.in_time = 1
    with pytest.raises(LongtailError, match=r"/sparql\?query=SELECT \?s \?o .*ran out of time; try again"):
        fetched(client, wikimedia, tmp_path / "raw", page=2)


@pytest.mark.parametrize("fault", [Fault(500, TRACE), Fault(504, b"upstream request timeout")], ids=str)
def test_a_status_may_say_that_time_ran_out(client, wikimedia, world, tmp_path, fault) -> None:
    wikimedia.faults = [None, None, fault]  # after the two counts: a page
    assert len(fetched(client, wikimedia, tmp_path / "raw")) == 6, "a page more"
    check(tmp_path / "raw")


def test_bytes_do_not_depend_on_the_order_of_arrival(wikimedia, world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(query_service, "ANSWERS", 1)
    monkeypatch.setattr("pipelines.sources.entity_api.AT_MOST", 5)
    files = []
    for name, faults in {"one": [], "two": [busy(), None, None, Fault(503), None, Fault(sent=1), busy()]}.items():
        wikimedia.faults = faults
        with open_client("someone@example.org", tmp_path / f"kept-{name}") as client:
            files.append(fetched(client, wikimedia, tmp_path / name, page=2))
    assert files[0] == files[1]
    assert sum(name.startswith("entities") for name in files[0]) == 6
    check(tmp_path / "two")


def test_what_is_no_query_service_is_named(client, wikimedia, tmp_path) -> None:
    wikimedia.pages["/sparql"] = b'{"results": {"bindings": [{"n": {"type": "literal", "value": "0"}}]}}'
    with pytest.raises(LongtailError, match="sparql: no statement of P19, P106"):
        fetched(client, wikimedia, tmp_path / "raw")


NAMED_IN = {
    "de": ("de|mul", {1: ("München", [], "München"), 2: ("Deutschland", [], None)}),
    "zh": ("zh|zh-hans|zh-hant|zh-cn|zh-tw|zh-hk|zh-sg|zh-mo|zh-my|mul", {1: ("慕尼黑", ["慕尼黒"], None)}),
}


@pytest.mark.parametrize("code", NAMED_IN)
def test_statements_and_names_are_those_of_the_language(client, wikimedia, tmp_path, code) -> None:
    def named(**texts: str) -> dict:
        return {"labels": {(c := code.replace("_", "-")): {"language": c, "value": t} for code, t in texts.items()}}

    codes, names = NAMED_IN[code]
    sitelinks = {"sitelinks": {"enwiki": {"title": "Munich"}, "dewiki": {"title": "München"}}}
    labels = {"Q1": named(en="Munich", de="München", zh_hans="慕尼黑", zh_hant="慕尼黒") | sitelinks}
    labels |= {"Q2": named(en="Germany", de="Deutschland"), "Q3": named(en="Bavaria")}
    statements = {"P17": [("Q1", "Q2"), ("Q1", "Q3")]}
    # The service itself knows which items have an article in the language
    wikimedia.pages |= {"/sparql": Wikidata(statements, {"Q1": ""}).sparql, "/api": Wikidata({}, {}, labels).api}
    (tmp_path / "raw").mkdir()
    write_statement_pages(client, tmp_path / "raw", chosen(wikimedia), ["P17"], language.read_language(code))
    (query,) = [asked["query"] for asked in wikimedia.asked("/sparql") if "slice" in asked["query"]]
    assert f"schema:isPartOf <https://{code}.wikipedia.org/>" in query
    (asked,) = wikimedia.asked("/api")
    assert (asked["languages"], asked["sitefilter"]) == (codes, f"{code}wiki")
    entities, _, skipped = read(tmp_path / "raw", code)
    assert {row["qid"]: (row["label"], row["aliases"], row["wiki_title"]) for row in entities.to_pylist()} == names
    assert skipped[language.read_language(code).nameless] == 3 - len(names), "no English name stands in"


def test_a_damaged_file_is_named_and_rows_of_another_query_are_rejected_with_a_reason(tmp_path: Path) -> None:
    for name, body, message in (
        ("P19-000000000.srj.gz", b'{"results": ' + TRACE, r"P19-000000000\.srj\.gz: not SPARQL results in JSON"),
        ("page.srj.gz", b'{"results": {"bindings": []}}', r"page\.srj\.gz: its name has no relation"),
        ("entities-000000000.jsonl.gz", b'{"entities": 1}\n', r"entities-.*: not the entity API's JSON"),
    ):
        with pytest.raises(LongtailError, match=message):
            list(read_statement_pages([saved(tmp_path / name, body)], Rejects(0.0)))
    one = {"type": "uri", "value": "http://www.wikidata.org/entity/Q1"}
    no_item = {"type": "uri", "value": "http://www.wikidata.org/entity/P1"}
    rows = [{"s": one, "o": one}, {"s": one}, {"s": no_item, "o": one}]
    path = saved(tmp_path / "P19-000000000.srj.gz", json.dumps({"results": {"bindings": rows}}))
    ((_, claims),) = read_statement_pages([path], rejects := Rejects(1.0))
    assert claims.to_pylist() == [{"s": 1, "p": 19, "o": 1}]
    assert rejects.rows == [(path.name, 2, "unexpected_layout", "no ?s or no ?o")]
    assert (rejects.read, rejects.skipped["subject_not_an_item"]) == (3, 1)


# Names: those of the ids that were asked for, whatever became of them


def texts(*values: str) -> list[dict]:
    return [{"language": "en", "value": value} for value in values]


def named(client: Client, wikimedia: Wikimedia, world: Wikidata, *qids: int) -> tuple[list[dict], dict[str, int]]:
    wikimedia.pages["/api"] = world.api
    rejects = Rejects(0.0)
    table = fetch_names(client, f"{wikimedia.address}/api", qids, rejects)
    rejects.check()
    return table.to_pylist(), dict(rejects.skipped)


def test_english_names_come_first_and_names_for_all_languages_fill_in(client: Client, wikimedia: Wikimedia) -> None:
    mul = {"language": "mul", "value": "Kurt G."}
    world = Wikidata({}, {"Q1": "Kurt Gödel"})
    world.labels = {
        "Q1": {"labels": {"en": texts("Kurt")[0], "mul": mul}, "aliases": {"en": texts("K", "Kurt"), "mul": [mul]}},
        "Q2": {"labels": {"mul": mul}, "aliases": {"en": texts("K", "K", "")}},
        "Q3": {"labels": [], "aliases": [], "sitelinks": []},
    }
    rows, skipped = named(client, wikimedia, world, 3, 1, 2)
    assert rows == [
        {"qid": 1, "label": "Kurt", "aliases": ["K", "Kurt G."], "wiki_title": "Kurt Gödel"},
        {"qid": 2, "label": "Kurt G.", "aliases": ["K"], "wiki_title": None},
    ]
    assert skipped == {"no_english": 1}


def test_fifty_are_asked_for_at_once_and_only_what_is_needed(client: Client, wikimedia: Wikimedia) -> None:
    assert named(client, wikimedia, Wikidata({}, {})) == ([], {})
    assert not wikimedia.requests
    rows, _ = named(client, wikimedia, Wikidata({}, {}), *range(120, 0, -1))
    assert [row["qid"] for row in rows] == list(range(1, 121))
    asked = wikimedia.asked("/api")
    assert sorted(len(params["ids"].split("|")) for params in asked) == [20, 50, 50]
    rest = {"props": "labels|aliases|sitelinks", "languages": "en|mul", "sitefilter": "enwiki", "redirects": "yes"}
    assert all(params | rest == params for params in asked)


def test_a_redirect_counts_for_the_id_asked_and_the_missing_are_counted(client: Client, wikimedia: Wikimedia) -> None:
    world = Wikidata({}, {"Q9": "Nine"}, redirects={"Q2": "Q9"}, missing={"Q3", "Q4"})
    rows, skipped = named(client, wikimedia, world, 2, 3, 4, 9)
    assert [tuple(row.values()) for row in rows] == [(qid, "Label of Q9", [], "Nine") for qid in (2, 9)]
    assert skipped == {"missing": 2, "redirect": 1}
