"""Queries to MediaWiki's API (action=query, formatversion 2), and what is used of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

import msgspec

from pipelines.errors import LongtailError
from pipelines.sources.wikimedia import Client
from pipelines.work.web import shown

AT_MOST = 50  # titles or ids in a request
COMMON = {"action": "query", "format": "json", "formatversion": "2", "maxlag": "5"}


class Page(msgspec.Struct):
    title: str
    ns: int = 0
    pageid: int = 0  # none where the page is missing or its title invalid
    pageprops: dict[str, str] = {}
    redirects: list[Page] = []  # the redirects that lead to the page


class _Move(msgspec.Struct):
    origin: str = msgspec.field(name="from")
    to: str
    fromencoded: bool = False  # a title that was not in Unicode's form C


class Query(msgspec.Struct):
    """What an answer says."""

    normalized: list[_Move] = []
    redirects: list[_Move] = []
    pages: list[Page] = []
    allpages: list[Page] = []
    interwiki: list[Page] = []  # of other wikis
    export: str = ""

    def passed(self, title: str) -> list[str]:
        """The title, and the titles to which normalisation and redirects lead from it; in a circle, each once."""
        moves = (*self.normalized, *self.redirects)
        to = {unquote(move.origin) if move.fromencoded else move.origin: move.to for move in moves}
        titles = [title]
        while (title := to.get(title, title)) not in titles:
            titles.append(title)
        return titles


class _Answer(msgspec.Struct):
    query: Query
    rest: dict[str, str | int] = msgspec.field(name="continue", default_factory=dict)  # params of the next request


def ask_query(
    client: Client, api: str, asked: Mapping[str, str], param: str, check: Callable[[Query], None]
) -> Iterator[Query]:
    """Yield the answers to a query until the API says that nothing follows; `check` may raise Again for one of them.

    Raises LongtailError naming the API, which is the value of `param`, if it refuses or its answers never end.
    """
    rest: dict[str, str | int] = {}
    before: list[dict[str, str | int]] = []
    while not before or rest:
        if rest in before:
            raise LongtailError(f"{shown(api, asked | rest)}: the answer goes on with itself, expected an end")
        before.append(rest)
        answer = client.ask_api(api, COMMON | asked | rest, _Answer, param, lambda answer: check(answer.query))
        yield answer.query
        rest = answer.rest
