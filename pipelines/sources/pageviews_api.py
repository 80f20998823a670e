"""Monthly views of single articles from Wikimedia's page views REST API (PopQA, 3.2).

The API counts requests under exactly this title, without those under redirects to it. Of an article that was moved
after the month, it has no views, or the few of a redirect that was at the new title then. Wikipedia's own API says
which titles redirect to an article now; the old title is among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from urllib.parse import quote

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH
from pipelines.params.params import Popularity
from pipelines.sources.snapshots import last_day, months_until
from pipelines.sources.wikimedia import AT_ONCE, Client
from pipelines.work import web
from pipelines.work.web import BROKEN, Again

BATCH = 10_000  # titles
SECONDS = 0.15  # for a request, usually
MONTHLY = pa.schema({"title": pa.string(), "month": pa.string(), "views": pa.int64()})


class _Item(msgspec.Struct):
    project: str
    article: str
    granularity: str
    timestamp: str
    agent: str
    views: int


class _Answer(msgspec.Struct):
    items: list[_Item]


class _Redirect(msgspec.Struct):
    title: str


class _Page(msgspec.Struct):
    title: str
    redirects: list[_Redirect] = []


class _Normal(msgspec.Struct):
    to: str


class _Query(msgspec.Struct):
    pages: list[_Page] = []
    normalized: list[_Normal] = []


class _Redirects(msgspec.Struct):
    query: _Query = msgspec.field(default_factory=_Query)
    next: dict[str, str] = msgspec.field(name="continue", default_factory=dict)  # params of the request for the rest


def ask_views(
    client: Client,
    titles: pa.ChunkedArray,
    settings: Popularity,
    what: str = "articles",
    project: str = ENGLISH.project,
) -> Iterator[pa.Table]:
    """Yield tables (title, month, views int64) for a batch of titles at a time, in their order.

    A title has a row for each of `settings.months` months up to `settings.month` that the API has views of, or a row
    without month and views. `what` the titles are is said before the first request. Raises LongtailError if the month
    isn't over, or naming the address of a malformed answer.
    """
    months = months_until(settings.month, settings.months)
    last = last_day(settings.month)
    if last >= date.today():
        raise LongtailError(f"params.yaml: popularity.month is {settings.month}, expected a month that is over")
    hours = len(titles) * SECONDS / AT_ONCE / 3600
    print(
        f"popularity: {len(titles):,} {what} to ask for, {AT_ONCE} at once: about {hours:,.1f} hours; "
        "answers to an earlier, unfinished run are reused",
        flush=True,
    )

    def ask(title: str) -> dict[str, int]:
        url = address(title, settings.api, settings.agents, months, project)
        body = client.ask(url, check=lambda body: _views(url, title, body, settings.agents, months, project))
        if body is None:  # 404: the article had no view in these months
            client.keep(url, None, None)
            return {}
        return _views(url, title, body, settings.agents, months, project)

    for start in range(0, len(titles), BATCH):
        batch = titles.slice(start, BATCH).to_pylist()
        found = client.map(ask, batch, f"popularity, from {start:,} on")
        rows = [
            (title, month, views)
            for title, of_title in zip(batch, found, strict=True)
            for month, views in (of_title or {None: None}).items()
        ]
        columns = zip(*rows, strict=True)
        yield pa.table([pa.array(*column) for column in zip(columns, MONTHLY.types, strict=True)], schema=MONTHLY)


def ask_redirects(client: Client, titles: pa.ChunkedArray, api: str) -> Iterator[pa.Table]:
    """Yield tables (target, title) of the titles that redirect to each of `titles` now, a batch of those at a time.

    Raises LongtailError naming the API if it refuses.
    """

    def ask(target: str) -> list[str]:
        asked = {
            "action": "query",
            "titles": target,
            "prop": "redirects",
            "rdprop": "title",
            "rdnamespace": "0",
            "rdlimit": "max",
            "format": "json",
            "formatversion": "2",
        }
        names, rest, before = [], {}, []
        while rest not in before:
            before.append(rest)
            answer = client.ask_api(
                api, asked | rest, _Redirects, "popularity.redirects_api", partial(_of_title, target)
            )
            names += [redirect.title for redirect in answer.query.pages[0].redirects]
            rest = answer.next
            if not rest:
                return names
        raise LongtailError(f"{web.shown(api, asked | rest)}: the answer goes on with itself, expected an end")

    for start in range(0, len(titles), BATCH):
        batch = titles.slice(start, BATCH).to_pylist()
        names = client.map(ask, batch, f"redirects, from {start:,} on")
        rows = [(target, name) for target, of_target in zip(batch, names, strict=True) for name in of_target]
        columns = zip(*rows, strict=True) if rows else ([], [])
        yield pa.table(
            dict(zip(("target", "title"), (pa.array(column, pa.string()) for column in columns), strict=True))
        )


def address(title: str, api: str, agents: str, months: Sequence[str], project: str = ENGLISH.project) -> str:
    """The address of one article's views from the first to the last of `months`."""
    article = quote(title.replace(" ", "_"), safe="")
    span = f"{months[0].replace('-', '')}0100/{last_day(months[-1]):%Y%m%d}00"
    return f"{api}/metrics/pageviews/per-article/{project}/all-access/{agents}/{article}/monthly/{span}"


def _of_title(title: str, answer: _Redirects) -> None:
    """Raise Again where an answer is not of this title alone."""
    query = answer.query
    if len(query.pages) != 1 or query.pages[0].title not in {title, *(normal.to for normal in query.normalized)}:
        raise Again(f"{len(query.pages)} pages, expected {title} alone")


def _views(url: str, title: str, body: bytes, agents: str, months: Sequence[str], project: str) -> dict[str, int]:
    """Month -> views in an answer. Raises Again where it is cut, LongtailError where it answers another question."""
    try:
        items = msgspec.json.decode(body, type=_Answer).items
    except BROKEN as error:
        raise Again(f"{error}, expected JSON with items") from None
    stamps = {f"{month.replace('-', '')}0100": month for month in months}
    found = {stamps[item.timestamp]: item.views for item in items if item.timestamp in stamps}
    expected = _Item(project, title.replace(" ", "_"), "monthly", "", agents, 0)
    others = [item for item in items if msgspec.structs.replace(item, timestamp="", views=0) != expected]
    if others or not found or len(found) < len(items) or min(found.values()) < 0:
        span = f"{months[0]} alone" if len(months) == 1 else f"{months[0]} to {months[-1]} alone"
        raise LongtailError(
            f"{url}: the answer is {body[:200].decode('utf-8', 'replace')}, expected the views of {title} in {span}"
        )
    return found
