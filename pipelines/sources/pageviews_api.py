"""Monthly views of single articles from Wikimedia's page views REST API (PopQA, 3.2).

The API counts requests under exactly this title, without those under redirects to it, nor those of an article's old
title. Wikipedia's own API says which titles redirect to an article now; the old title is among them.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import islice
from urllib.parse import quote

import msgspec
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH
from pipelines.params.params import Popularity
from pipelines.sources.snapshots import last_day, months_until
from pipelines.sources.wikimedia import AT_ONCE, Client, Query, ask_query
from pipelines.work.web import BROKEN, Again

BATCH = 10_000  # rows
SECONDS = 0.15  # for a request, usually
MONTHLY = pa.schema({"title": pa.string(), "month": pa.string(), "views": pa.int64()})
REDIRECTS = pa.schema({"target": pa.string(), "title": pa.string()})
REDIRECTING = {"prop": "redirects", "rdprop": "title", "rdnamespace": "0", "rdlimit": "max"}


class _Item(msgspec.Struct):
    project: str
    article: str
    granularity: str
    timestamp: str
    agent: str
    views: int


class _Answer(msgspec.Struct):
    items: list[_Item]


def ask_views(
    client: Client,
    titles: pa.ChunkedArray,
    settings: Popularity,
    what: str = "articles",
    project: str = ENGLISH.project,
) -> Iterator[pa.Table]:
    """Yield tables with the columns of MONTHLY, in the titles' order; `what` the titles are is said first.

    A title has a row for each of `settings.months` months up to `settings.month` that the API has views of, or a row
    without month and views. Raises LongtailError if the month isn't over, or naming a malformed answer's address.
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
    span = f"{months[0].replace('-', '')}0100/{last:%Y%m%d}00"

    def ask(title: str) -> list[tuple]:
        article = title.replace(" ", "_")
        url = f"{settings.api}/metrics/pageviews/per-article/{project}/all-access/{settings.agents}/"
        url += f"{quote(article, safe='')}/monthly/{span}"
        read = partial(_views, url, _Item(project, article, "monthly", "", settings.agents, 0), months)
        body = client.ask(url, check=read)
        if body is None:  # 404: the article had no view in these months
            client.keep(url, None, None)
            return [(title, None, None)]
        return [(title, month, views) for month, views in read(body).items()]

    yield from _tables(client.map(ask, titles.to_pylist(), "popularity"), MONTHLY)


def ask_redirects(client: Client, titles: pa.ChunkedArray, api: str) -> Iterator[pa.Table]:
    """Yield tables (target, title) of the titles that redirect to each of `titles` now, in the targets' order."""

    def ask(target: str) -> list[tuple]:
        def check(answer: Query) -> None:
            if len(answer.pages) != 1 or answer.pages[0].title != answer.passed(target)[-1]:
                raise Again(f"{len(answer.pages)} pages, expected {target} alone")

        answers = ask_query(client, api, REDIRECTING | {"titles": target}, "popularity.redirects_api", check)
        return [(target, redirect.title) for answer in answers for redirect in answer.pages[0].redirects]

    yield from _tables(client.map(ask, titles.to_pylist(), "redirects"), REDIRECTS)


def _tables(answers: Iterable[list[tuple]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of all answers as tables of up to BATCH rows."""
    rows = (row for answer in answers for row in answer)
    while batch := list(islice(rows, BATCH)):
        columns = zip(*batch, strict=True)
        yield pa.table([pa.array(*column) for column in zip(columns, schema.types, strict=True)], schema=schema)


def _views(url: str, expected: _Item, months: Sequence[str], body: bytes) -> dict[str, int]:
    """Month -> views in an answer. Raises Again where it is cut, LongtailError where it answers another question."""
    try:
        items = msgspec.json.decode(body, type=_Answer).items
    except BROKEN as error:
        raise Again(f"{error}, expected JSON with items") from None
    stamps = {f"{month.replace('-', '')}0100": month for month in months}
    found = {stamps[item.timestamp]: item.views for item in items if item.timestamp in stamps}
    others = [item for item in items if msgspec.structs.replace(item, timestamp="", views=0) != expected]
    if others or not found or len(found) < len(items) or min(found.values()) < 0:
        span = f"{months[0]} alone" if len(months) == 1 else f"{months[0]} to {months[-1]} alone"
        said = f"the answer is {body[:200].decode('utf-8', 'replace')}, expected the views of {expected.article}"
        raise LongtailError(f"{url}: {said} in {span}")
    return found
