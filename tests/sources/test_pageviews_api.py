"""The page views API: each article's month is asked for by its title, and a wrong answer is
told from no views.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from wikimedia_server import Wikimedia

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.params.params import Popularity
from pipelines.sources import pageviews_api
from pipelines.sources.wikimedia_client import Client, open_client

ROOT = "/metrics/pageviews/per-article/en.wikipedia/all-access"
TITLE = "AC/DC & Ölaf? 100%"
PATH = f"{ROOT}/all-agents/AC%2FDC_%26_%C3%96laf%3F_100%25/monthly/2024020100/2024022900"

Ask = Callable[..., list[tuple]]


def answer(
    article: str, views: int, agents: str = "all-agents", month: str = "2024020100", **other: object
) -> bytes:
    item = {
        "project": "en.wikipedia",
        "article": article,
        "granularity": "monthly",
        "timestamp": month,
    }
    return json.dumps(
        {"items": [item | {"access": "all-access", "agent": agents, "views": views} | other]}
    ).encode()


GOOD = answer("AC/DC_&_Ölaf?_100%", 42)


@pytest.fixture
def ask(tmp_path: Path, wikimedia: Wikimedia) -> Ask:
    def ask(*titles: str, month: str = "2024-02", agents: str = "all-agents", code: str = "en"):
        chosen = {"source": "api", "api": wikimedia.address, "redirects_api": "", "month": month}
        asked = pa.chunked_array([list(titles)], pa.string())
        project = language.read_language(code).project
        with open_client("someone@example.org", tmp_path / "asked") as client:
            batches = pageviews_api.ask_views(
                client, asked, Popularity(**chosen, agents=agents), project=project
            )
            return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    return ask


def test_the_month_is_asked_for_to_its_last_day(wikimedia, ask, capsys):
    wikimedia.pages[PATH] = GOOD
    assert ask("Nobody", TITLE) == [("Nobody", None), (TITLE, 42)], "not found is no views"
    assert (PATH, {}) in wikimedia.requests
    assert "popularity: 2 articles to ask for" in capsys.readouterr().out


def test_views_of_people_in_a_language_are_asked_for_as_such(wikimedia, ask):
    wikimedia.pages[f"{ROOT}/user/Ada/monthly/2021100100/2021103100"] = answer(
        "Ada", 7, "user", "2021100100"
    )
    german = answer("Ada", 42, "user", "2021100100", project="de.wikipedia")
    wikimedia.pages[f"{ROOT}/user/Ada/monthly/2021100100/2021103100".replace("en.", "de.")] = german
    assert ask("Ada", month="2021-10", agents="user") == [("Ada", 7)]
    assert ask("Ada", month="2021-10", agents="user", code="de") == [("Ada", 42)]


def test_an_answer_to_another_question_is_an_error(wikimedia, ask):
    for body in [
        answer("AC/DC", 42),
        answer("AC/DC_&_Ölaf?_100%", 42, month="2024030100"),
        answer("AC/DC_&_Ölaf?_100%", 42, agents="user"),
        answer("AC/DC_&_Ölaf?_100%", -1),
        b'{"items": []}',
        GOOD.replace(b"]", b"," + GOOD.partition(b"[")[2].partition(b"]")[0] + b"]"),
    ]:
        wikimedia.pages[PATH] = body
        with pytest.raises(
            LongtailError,
            match=r"monthly/2024020100/2024022900: the answer is .*expected the views",
        ):
            ask(TITLE)


def test_a_month_that_is_not_over_is_an_error_at_once(wikimedia, ask):
    with pytest.raises(
        LongtailError, match=r"popularity\.month is .*, expected a month that is over"
    ):
        ask("Ada", month=f"{datetime.now(UTC):%Y-%m}")
    assert not wikimedia.requests


def redirects(client: Client, wikimedia: Wikimedia, *titles: str) -> list[tuple[str, str]]:
    asked = pa.chunked_array([list(titles)], pa.string())
    tables = pageviews_api.ask_redirects(client, asked, f"{wikimedia.address}/w/api.php")
    return [(row["target"], row["title"]) for table in tables for row in table.to_pylist()]


def test_all_titles_that_redirect_to_an_article_are_asked_for(wikimedia, client):
    """An answer in pieces, as the API gives it, is put together."""

    def api(params: dict[str, str]) -> bytes:
        expected = ("query", "redirects", "0")
        assert (params["action"], params["prop"], params["rdnamespace"]) == expected
        page: dict = {"pageid": 1, "ns": 0, "title": params["titles"]}
        if params["titles"] == "Nobody":
            return json.dumps(
                {"batchcomplete": True, "query": {"pages": [page | {"missing": True}]}}
            ).encode()
        if params.get("rdcontinue") == "2":
            page["redirects"] = [{"ns": 0, "title": "Twttr"}]
            return json.dumps({"batchcomplete": True, "query": {"pages": [page]}}).encode()
        page["redirects"] = [{"ns": 0, "title": "Twitter"}]
        more = {"rdcontinue": "2", "continue": "||"}
        return json.dumps({"continue": more, "query": {"pages": [page]}}).encode()

    wikimedia.pages["/w/api.php"] = api
    title = "X (social network)"
    assert redirects(client, wikimedia, title, "Nobody") == [(title, "Twitter"), (title, "Twttr")]
    assert redirects(client, wikimedia, "Nobody") == []
