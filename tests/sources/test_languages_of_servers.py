"""Wikidata's and Wikimedia's servers are asked for the run's language, and their answers read in it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from wikimedia_server import Wikidata, Wikimedia

from pipelines import language, params
from pipelines.sources import pageviews_api
from pipelines.sources.query_service import read_pages, write_pages
from pipelines.sources.rejects import Rejects
from pipelines.sources.wikimedia import open_client

ARTICLES = "https://{}.wikipedia.org/"


@pytest.fixture
def client(tmp_path: Path, wikimedia: Wikimedia):
    with open_client("someone@example.org", tmp_path / "kept") as opened:
        yield opened


def named(code: str, text: str) -> dict:
    return {code: {"language": code, "value": text}}


@pytest.mark.parametrize(
    ("code", "codes", "names"),
    [
        ("de", "de|mul", {1: ("München", [], "München"), 2: ("Deutschland", [], None)}),
        ("zh", "zh|zh-hans|zh-hant|zh-cn|zh-tw|zh-hk|zh-sg|zh-mo|zh-my|mul", {1: ("慕尼黑", ["慕尼黒"], None)}),
    ],
)
def test_statements_and_names_are_those_of_the_language(client, wikimedia, tmp_path, code, codes, names):
    world = Wikidata({"P17": [("Q1", "Q2"), ("Q1", "Q3")]}, {})
    labels = named("en", "Munich") | named("de", "München") | named("zh-hans", "慕尼黑") | named("zh-hant", "慕尼黒")
    sitelinks = {"enwiki": {"title": "Munich"}, "dewiki": {"title": "München"}}
    world.labels = {
        "Q1": {"labels": labels, "sitelinks": sitelinks},
        "Q2": {"labels": named("en", "Germany") | named("de", "Deutschland")},
        "Q3": {"labels": named("en", "Bavaria")},
    }
    world.articles = {}

    def sparql(asked: dict[str, str]) -> bytes:
        world.articles = {"Q1": "any"}  # the service's own matter: it is asked for those of one wiki
        try:
            return world.sparql(asked)
        finally:
            world.articles = {}

    wikimedia.pages |= {"/sparql": sparql, "/api": world.api}
    settings = params.Wikidata(
        source="query_service",
        query_service=f"{wikimedia.address}/sparql",
        api=f"{wikimedia.address}/api",
        page=50,
    )
    (tmp_path / "raw").mkdir()
    write_pages(client, tmp_path / "raw", settings, ["P17"], language.read(code))
    (query,) = [asked["query"] for asked in wikimedia.asked("/sparql") if "slice" in asked["query"]]
    assert f"schema:isPartOf <{ARTICLES.format(code)}>" in query
    (asked,) = wikimedia.asked("/api")
    assert (asked["languages"], asked["sitefilter"]) == (codes, f"{code}wiki")
    entities, _ = zip(
        *read_pages(sorted((tmp_path / "raw").iterdir()), rejects := Rejects(0.0), language.read(code)), strict=True
    )
    rows = pa.concat_tables(entities).to_pylist()
    assert {row["qid"]: (row["label"], row["aliases"], row["wiki_title"]) for row in rows} == names
    assert rejects.skipped[language.read(code).nameless] == 3 - len(names), "no English name stands in"


def test_views_are_those_of_the_languages_wikipedia(client, wikimedia):
    path = "/metrics/pageviews/per-article/{}.wikipedia/all-access/user/M%C3%BCnchen/monthly/2024020100/2024022900"
    for code, views in (("de", 42), ("en", 7)):
        item = {"project": f"{code}.wikipedia", "article": "München", "granularity": "monthly"}
        item |= {"timestamp": "2024020100", "access": "all-access", "agent": "user", "views": views}
        wikimedia.pages[path.format(code)] = json.dumps({"items": [item]}).encode()
    settings = params.Popularity(source="api", api=wikimedia.address, redirects_api="", month="2024-02", agents="user")
    titles = pa.chunked_array([["München"]], pa.string())
    (batch,) = pageviews_api.ask_views(client, titles, settings, project=language.read("de").project)
    assert batch.to_pylist() == [{"title": "München", "month": "2024-02", "views": 42}]
