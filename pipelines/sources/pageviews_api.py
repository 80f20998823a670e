"""Popularity as views of a Wikipedia article, from Wikimedia's REST API (PopQA, 3.2).

The API has the monthly views of single articles. It counts requests under exactly this title,
without those under redirects to it, nor those of an article's old title. Wikipedia's own API says
which titles redirect to an article now.
"""

from collections.abc import Iterator
from datetime import date
from functools import partial
from itertools import chain, islice
from urllib.parse import quote

import msgspec
import pyarrow as pa

from pipelines.errors import BROKEN_JSON, LongtailError
from pipelines.language.language import ENGLISH
from pipelines.params.params import Popularity
from pipelines.sources.raw_files import last_day
from pipelines.sources.wikimedia_client import AT_ONCE, Client, Query, ask_query
from pipelines.tables.table import INT64, STRING
from pipelines.work.http import Again

ROWS_PER_TABLE = 10_000  # rows of answers
REQUEST_SECONDS = 0.15  # for a request, usually
VIEWS = pa.schema({"title": STRING, "views": INT64})
REDIRECTS = pa.schema({"target": STRING, "title": STRING})
REDIRECTS_QUERY = {"prop": "redirects", "rdprop": "title", "rdnamespace": "0", "rdlimit": "max"}


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
    popularity: Popularity,
    noun: str = "articles",
    project: str = ENGLISH.project,
) -> Iterator[pa.Table]:
    """Yield tables with the columns of VIEWS, in the titles' order; `noun` says to the user what
    the titles are.

    The views are those of `popularity.month`, null for a title that the API has none of. Raises
    LongtailError if the month isn't over, or naming a malformed answer's address.
    """
    last = last_day(popularity.month)
    if last >= date.today():
        raise LongtailError(
            f"params.yaml: popularity.month is {popularity.month}, expected a month that is over"
        )

    hours = len(titles) * REQUEST_SECONDS / AT_ONCE / 3600
    print(
        f"popularity: {len(titles):,} {noun} to ask for, {AT_ONCE} at once: "
        f"about {hours:,.1f} hours"
    )
    agents = popularity.agents
    address = f"{popularity.api}/metrics/pageviews/per-article/{project}/all-access/{agents}"
    timestamp = f"{last:%Y%m}0100"
    span = f"{timestamp}/{last:%Y%m%d}00"

    def ask(title: str) -> dict:
        article = title.replace(" ", "_")
        url = f"{address}/{quote(article, safe='')}/monthly/{span}"
        expected = _Item(
            project=project,
            article=article,
            granularity="monthly",
            timestamp=timestamp,
            agent=agents,
            views=0,
        )
        views = client.ask(url, parse=partial(_read_views, url, expected))
        if views is None:  # 404: the article had no view in this month
            client.keep(url, None, None)
        return {"title": title, "views": views}

    yield from _tables(client.map(ask, titles.to_pylist(), "popularity"), VIEWS)


def _read_views(url: str, expected: _Item, body: bytes) -> int:
    """The views in an answer.

    Raises Again where the answer is cut, LongtailError where it answers another question.
    """
    try:
        items = msgspec.json.decode(body, type=_Answer).items
    except BROKEN_JSON as error:
        raise Again(f"{error}, expected JSON with items") from None

    if len(items) == 1 and items[0].views >= 0:
        views = items[0].views
        if msgspec.structs.replace(items[0], views=0) == expected:
            return views

    start = body[:200].decode("utf-8", "replace")
    raise LongtailError(
        f"{url}: the answer is {start}, expected the views of {expected.article} alone"
    )


def ask_redirects(client: Client, titles: pa.ChunkedArray, api: str) -> Iterator[pa.Table]:
    """Yield tables (target, title) of the titles that redirect to each of `titles` now, in the
    targets' order.
    """

    def ask(target: str) -> list[dict]:
        def check(answer: Query) -> None:
            titles_of_pages = [page.title for page in answer.pages]
            if titles_of_pages != answer.titles_on_the_way(target)[-1:]:
                raise Again(f"{len(answer.pages)} pages, expected {target} alone")

        query = REDIRECTS_QUERY | {"titles": target}
        rows = []
        for answer in ask_query(client, api, query, "popularity.redirects_api", check):
            for redirect in answer.pages[0].redirects:
                rows.append({"target": target, "title": redirect.title})
        return rows

    answers = client.map(ask, titles.to_pylist(), "redirects")
    yield from _tables(chain.from_iterable(answers), REDIRECTS)


def _tables(rows: Iterator[dict], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows as tables of ROWS_PER_TABLE rows."""
    table_rows = list(islice(rows, ROWS_PER_TABLE))
    while table_rows:
        yield pa.Table.from_pylist(table_rows, schema=schema)
        table_rows = list(islice(rows, ROWS_PER_TABLE))
