"""Asks Wikimedia's servers: names a contact, as they want, and keeps answers until a stage is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlencode

import msgspec

from pipelines.errors import LongtailError
from pipelines.storage.kept_answers import KeptAnswers
from pipelines.work import http

AT_ONCE = 3  # requests side by side: Wikimedia's rule
TIMEOUT = (
    30,
    120,
)  # seconds to connect and between two reads; the query service itself gives up after 60
KEPT_DAYS = 7.0  # older answers are asked for again
BUSY = (
    "maxlag",
    "ratelimited",
    "readonly",
    "internal_api_error",
)  # error codes that begin so are temporary

AT_MOST = 50  # titles or ids in a request to MediaWiki's API
COMMON = {"action": "query", "format": "json", "formatversion": "2", "maxlag": "5"}

Answer = TypeVar("Answer")


class _Error(msgspec.Struct):
    code: str
    info: str = ""


class _Failure(msgspec.Struct):
    error: _Error | None = None


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
    """What an answer of MediaWiki's API to a query says."""

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


class _Queried(msgspec.Struct):
    query: Query
    rest: dict[str, str | int] = msgspec.field(
        name="continue", default_factory=dict
    )  # params of the next request


def open_client(contact: str | None, cache: Path) -> closing[Client]:
    """A client that names `contact` in its User-Agent, without which it refuses, and keeps answers in `cache`."""
    if not contact:
        raise LongtailError(
            "params.yaml: contact is null, expected an address or web page, as Wikimedia's policy asks"
        )
    return closing(Client(contact, cache))


class Client(http.Client):
    """See `open_client`."""

    def __init__(self, contact: str, cache: Path) -> None:
        super().__init__(AT_ONCE, TIMEOUT)
        self.session.headers["User-Agent"] = f"longtail/0.1 ({contact})"
        self._kept = KeptAnswers(cache, KEPT_DAYS)

    def ask(
        self, url: str, params: Mapping[str, str] | None = None, check: http.Check | None = None
    ) -> bytes | None:
        """The body at `url`, which is kept on disk and not asked for again; None, and not kept, if it answers 404.

        `check(body)` may raise Again to repeat the request, or LongtailError to give up; it also sees the bodies of
        server errors (5xx). What it refuses is not kept. Raises LongtailError on another status, or after ATTEMPTS.
        """
        is_kept, body = self._kept.get(_key(url, params))
        if not is_kept:
            answer = self.send("GET", url, params=params, check=check)
            if answer.status_code == 404:
                return None
            if answer.status_code != 200:
                raise http.refusal(answer, url, params)
            body = answer.content
            self.keep(url, params, body)
        return body

    def ask_api(
        self,
        url: str,
        params: Mapping[str, str],
        kind: type[Answer],
        param: str,
        check: Callable[[Answer], None],
    ) -> Answer:
        """What MediaWiki's API at `url`, the value of `param`, answers, as `kind`; `check(answer)` may raise Again."""

        def parsed(body: bytes) -> Answer:
            try:
                error = msgspec.json.decode(body, type=_Failure).error
                answer = None if error else msgspec.json.decode(body, type=kind)
            except http.BROKEN as problem:
                raise http.Again(f"not the JSON of MediaWiki's API ({problem})") from None
            if error:
                said = f"the API answers {error.code}: {error.info}"
                again = error.code.startswith(BUSY)
                raise (
                    http.Again(said)
                    if again
                    else LongtailError(f"{http.shown(url, params)}: {said}")
                )
            check(answer)
            return answer

        body = self.ask(url, params, parsed)
        if body is None:
            raise LongtailError(
                f"{url}: the server answers 404, expected MediaWiki's api.php ({param})"
            )
        return parsed(body)

    def keep(self, url: str, params: Mapping[str, str] | None, body: bytes | None) -> None:
        """Let `ask` return `body`, or None, for this URL from now on, without a request."""
        self._kept.put({_key(url, params): body})

    def asked_from(self) -> str:
        """The day (UTC, YYYY-MM-DD) of the oldest answer that `ask` keeps, today if there is none."""
        return f"{datetime.fromtimestamp(self._kept.oldest() or time.time(), UTC):%Y-%m-%d}"

    def close(self) -> None:
        super().close()
        self._kept.close()


def _key(url: str, params: Mapping[str, str] | None) -> str:
    return f"{url}?{urlencode(sorted((params or {}).items()))}"


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
            raise LongtailError(
                f"{http.shown(api, asked | rest)}: the answer goes on with itself, expected an end"
            )
        before.append(rest)
        answer = client.ask_api(
            api, COMMON | asked | rest, _Queried, param, lambda answer: check(answer.query)
        )
        yield answer.query
        rest = answer.rest
