"""Asks Wikimedia's servers, names a contact to them, and keeps answers until a stage is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlencode

import msgspec

from pipelines.errors import BROKEN_JSON, LongtailError
from pipelines.storage.kept_answers import KeptAnswers
from pipelines.work import http

AT_ONCE = 3  # requests side by side: Wikimedia's rule
CONNECT_SECONDS = 30
READ_SECONDS = 120  # between two reads; the query service itself gives up after 60
KEPT_DAYS = 7.0  # older answers are asked for again
BUSY = (  # temporary errors have codes that begin so
    "maxlag",
    "ratelimited",
    "readonly",
    "internal_api_error",
)

IDS_PER_REQUEST = 50  # titles or ids in a request to MediaWiki's API
QUERY = {"action": "query", "format": "json", "formatversion": "2", "maxlag": "5"}

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

    def titles_on_the_way(self, title: str) -> list[str]:
        """The title, and the titles to which normalisation and redirects lead from it; in a circle,
        each once.
        """
        next_title = {}
        for move in (*self.normalized, *self.redirects):
            origin = unquote(move.origin) if move.fromencoded else move.origin
            next_title[origin] = move.to

        titles = []
        while title not in titles:
            titles.append(title)
            title = next_title.get(title, title)
        return titles


class _Queried(msgspec.Struct):
    query: Query
    rest: dict[str, str | int] = msgspec.field(  # params of the next request
        name="continue", default_factory=dict
    )


def open_client(contact: str | None, cache: Path) -> closing[Client]:
    """A client that names `contact` in its User-Agent, without which it refuses, and keeps answers
    in `cache`.
    """
    if not contact:
        raise LongtailError(
            "params.yaml: contact is null, expected an address or web page, "
            "as Wikimedia's policy asks"
        )
    return closing(Client(contact, cache))


class Client(http.Client):
    """See `open_client`."""

    def __init__(self, contact: str, cache: Path) -> None:
        super().__init__(AT_ONCE, (CONNECT_SECONDS, READ_SECONDS))
        self.session.headers["User-Agent"] = f"longtail/0.1 ({contact})"
        self._kept = KeptAnswers(cache, KEPT_DAYS)

    def ask(
        self,
        url: str,
        params: Mapping[str, str] | None = None,
        parse: Callable[[bytes], Answer] = bytes,
    ) -> Answer | None:
        """What `parse(body)` makes of the body at `url`, which is kept on disk and not asked for
        again; None, and not kept, if it answers 404.

        `parse` may raise Again to repeat the request, or LongtailError to give up. It also sees the
        bodies of server errors (5xx). What it refuses is not kept. Raises LongtailError on another
        status, or after ATTEMPTS.
        """
        is_kept, body = self._kept.get(_key(url, params))
        if not is_kept:
            answer = self.send("GET", url, params=params, check=parse)
            if answer.status_code == 404:
                return None
            if answer.status_code != 200:
                raise http.refusal(answer, url, params)
            body = answer.content
            self.keep(url, params, body)
        return None if body is None else parse(body)

    def ask_api(
        self,
        url: str,
        params: Mapping[str, str],
        answer_type: type[Answer],
        param: str,
        check: Callable[[Answer], None],
    ) -> Answer:
        """What MediaWiki's API at `url`, the value of `param`, answers; `check(answer)` may raise
        Again.
        """

        def parse(body: bytes) -> Answer:
            try:
                error = msgspec.json.decode(body, type=_Failure).error
                if error is None:
                    answer = msgspec.json.decode(body, type=answer_type)
            except BROKEN_JSON as problem:
                raise http.Again(f"not the JSON of MediaWiki's API ({problem})") from None
            if error is not None:
                message = f"the API answers {error.code}: {error.info}"
                if error.code.startswith(BUSY):
                    raise http.Again(message)
                raise LongtailError(f"{http.shown(url, params)}: {message}")
            check(answer)
            return answer

        answer = self.ask(url, params, parse)
        if answer is None:
            raise LongtailError(
                f"{url}: the server answers 404, expected MediaWiki's api.php ({param})"
            )
        return answer

    def keep(self, url: str, params: Mapping[str, str] | None, body: bytes | None) -> None:
        """Let `ask` return `body`, or None, for this URL from now on, without a request."""
        self._kept.put({_key(url, params): body})

    def day_of_oldest_answer(self) -> str:
        """The day (UTC, YYYY-MM-DD) of the oldest answer that is kept, or today."""
        oldest = self._kept.oldest() or time.time()
        return f"{datetime.fromtimestamp(oldest, UTC):%Y-%m-%d}"

    def close(self) -> None:
        super().close()
        self._kept.close()


def _key(url: str, params: Mapping[str, str] | None) -> str:
    pairs = sorted(params.items()) if params else []
    return f"{url}?{urlencode(pairs)}"


def ask_query(
    client: Client,
    api: str,
    query: Mapping[str, str],
    param: str,
    check: Callable[[Query], None] | None = None,
) -> Iterator[Query]:
    """Yield the answers to a query until the API says that nothing follows; `check` may raise Again
    for one of them.

    Raises LongtailError naming the API, which is the value of `param`, if it refuses or its answers
    never end.
    """

    def check_answer(answer: _Queried) -> None:
        if check is not None:
            check(answer.query)

    request = QUERY | query
    requests = []
    while request not in requests:
        requests.append(request)
        answer = client.ask_api(api, request, _Queried, param, check_answer)
        yield answer.query
        if not answer.rest:
            return
        request = QUERY | query | answer.rest

    raise LongtailError(
        f"{http.shown(api, query | answer.rest)}: the answer goes on with itself, expected an end"
    )
