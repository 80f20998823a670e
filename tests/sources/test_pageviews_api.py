"""The page views API: each article's month is asked for by its title, and a wrong answer is told from no views."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from wikimedia_server import Wikimedia

from pipelines.errors import LongtailError
from pipelines.params import Popularity
from pipelines.sources import pageviews_api
from pipelines.sources.wikimedia import Client, open_client

ROOT = "/metrics/pageviews/per-article/en.wikipedia/all-access"
TITLE = "AC/DC & Ölaf? 100%"
PATH = f"{ROOT}/all-agents/AC%2FDC_%26_%C3%96laf%3F_100%25/monthly/2024020100/2024022900"

Ask = Callable[..., dict[str, int | None]]


def answer(article: str, views: int, agents: str = "all-agents", month: str = "2024020100", **other: object) -> bytes:
    item = {"project": "en.wikipedia", "article": article, "granularity": "monthly", "timestamp": month}
    return json.dumps({"items": [item | {"access": "all-access", "agent": agents, "views": views} | other]}).encode()


GOOD = answer("AC/DC_&_Ölaf?_100%", 42)


@pytest.fixture
def ask(tmp_path: Path, wikimedia: Wikimedia) -> Iterator[Ask]:
    with open_client("someone@example.org", tmp_path / "kept") as client:

        def ask(*titles: str, month: str = "2024-02", agents: str = "all-agents") -> dict[str, int | None]:
            settings = Popularity(source="api", api=wikimedia.address, redirects_api="", month=month, agents=agents)
            batches = pageviews_api.ask_views(client, pa.chunked_array([list(titles)], pa.string()), settings)
            return {row["title"]: row["views"] for batch in batches for row in batch.to_pylist()}

        yield ask


def test_a_title_is_encoded_and_the_month_asked_for_to_its_last_day(wikimedia, ask):
    wikimedia.pages[PATH] = GOOD
    assert ask(TITLE) == {TITLE: 42}
    assert wikimedia.requests == [(PATH, {})]


def test_views_of_people_are_asked_for_as_such(wikimedia, ask):
    wikimedia.pages[f"{ROOT}/user/Ada/monthly/2021100100/2021103100"] = answer("Ada", 7, "user", "2021100100")
    assert ask("Ada", month="2021-10", agents="user") == {"Ada": 7}


def test_not_found_is_no_views(wikimedia, ask):
    wikimedia.pages[PATH] = GOOD
    assert ask("Nobody", TITLE) == {"Nobody": None, TITLE: 42}


def test_titles_are_asked_for_in_batches_that_keep_their_order(wikimedia, ask, monkeypatch):
    monkeypatch.setattr(pageviews_api, "BATCH", 3)
    titles = [f"T{i}" for i in range(8)]
    for i, title in enumerate(titles):
        wikimedia.pages[f"{ROOT}/all-agents/{title}/monthly/2024020100/2024022900"] = answer(title, i)
    assert list(ask(*titles).items()) == [(title, i) for i, title in enumerate(titles)]


def test_the_number_of_requests_is_said_before_the_first(wikimedia, ask, capsys):
    wikimedia.pages[PATH] = GOOD
    ask(TITLE)
    assert "popularity: 1 articles to ask for" in capsys.readouterr().out


@pytest.mark.parametrize(
    "body",
    [
        answer("AC/DC", 42),
        answer("AC/DC_&_Ölaf?_100%", 42, month="2024030100"),
        answer("AC/DC_&_Ölaf?_100%", 42, agents="user"),
        answer("AC/DC_&_Ölaf?_100%", 42, granularity="daily"),
        answer("AC/DC_&_Ölaf?_100%", -1),
        b'{"items": []}',
        json.dumps({"items": 2 * json.loads(GOOD)["items"]}).encode(),
    ],
)
def test_an_answer_to_another_question_is_an_error(wikimedia, ask, body):
    wikimedia.pages[PATH] = body
    with pytest.raises(LongtailError, match=r"monthly/2024020100/2024022900: the answer is .*expected the views"):
        ask(TITLE)


def test_a_month_that_is_not_over_is_an_error_before_anything_is_asked(wikimedia, ask):
    with pytest.raises(LongtailError, match=r"popularity\.month is .*, expected a month that is over"):
        ask("Ada", month=f"{datetime.now(UTC):%Y-%m}")
    assert not wikimedia.requests


def redirects(client: Client, wikimedia: Wikimedia, *titles: str) -> list[tuple[str, str]]:
    asked = pa.chunked_array([list(titles)], pa.string())
    tables = pageviews_api.ask_redirects(client, asked, f"{wikimedia.address}/w/api.php")
    return [(row["target"], row["title"]) for table in tables for row in table.to_pylist()]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with open_client("someone@example.org", tmp_path / "kept") as opened:
        yield opened


def test_all_titles_that_redirect_to_an_article_are_asked_for(wikimedia, client):
    """An answer in pieces, as the API gives it, is put together."""

    def api(params: dict[str, str]) -> bytes:
        assert (params["action"], params["prop"], params["rdnamespace"]) == ("query", "redirects", "0")
        page: dict = {"pageid": 1, "ns": 0, "title": params["titles"]}
        if params["titles"] == "Nobody":
            return json.dumps({"batchcomplete": True, "query": {"pages": [page | {"missing": True}]}}).encode()
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


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, r"api\.php: the server answers 404, expected .*popularity\.redirects_api"),
        (b'{"error": {"code": "badvalue", "info": "no such prop"}}', "the API answers badvalue: no such prop"),
    ],
)
def test_an_api_of_redirects_that_refuses_or_is_not_there_is_an_error(wikimedia, client, body, said):
    wikimedia.pages["/w/api.php"] = body
    with pytest.raises(LongtailError, match=said):
        redirects(client, wikimedia, "A")


def test_several_months_are_one_request_and_another_month_in_the_answer_is_an_error(tmp_path, wikimedia):
    path = f"{ROOT}/user/Ada/monthly/2023120100/2024022900"
    first, last = (json.loads(answer("Ada", n, "user", m))["items"] for n, m in ((5, "2023120100"), (7, "2024020100")))
    settings = Popularity(
        source="api", api=wikimedia.address, redirects_api="", month="2024-02", months=3, agents="user"
    )
    titles = pa.chunked_array([["Ada", "Nobody"]])
    wikimedia.pages[path] = json.dumps({"items": first + last}).encode()
    with open_client("someone@example.org", tmp_path / "kept") as client:
        [batch] = pageviews_api.ask_views(client, titles, settings)
    rows = [("Ada", "2023-12", 5), ("Ada", "2024-02", 7), ("Nobody", None, None)]
    assert [tuple(row.values()) for row in batch.to_pylist()] == rows
    for items in (first + json.loads(answer("Ada", 1, "user", "2024030100"))["items"], last + last, []):
        wikimedia.pages[path] = json.dumps({"items": items}).encode()
        with (
            open_client("someone@example.org", tmp_path / f"kept{len(items)}") as client,
            pytest.raises(LongtailError, match="expected the views of Ada in 2023-12 to 2024-02 alone"),
        ):
            list(pageviews_api.ask_views(client, titles, settings))
