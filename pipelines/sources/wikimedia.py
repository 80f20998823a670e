"""A client as polite as Wikimedia asks: it says whom to write to, and asks three things at once; answers are kept.

The stage removes the cache's folder once its output is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from pipelines import web
from pipelines.errors import LongtailError

AT_ONCE = 3  # requests side by side: Wikimedia's rule
TIMEOUT = (30, 120)  # seconds to connect, and between two reads; the query service itself gives up after 60
KEPT_DAYS = 7.0  # answers kept by a run that was broken off longer ago are asked for again


@contextmanager
def open_client(contact: str | None, cache: Path, kept_days: float = KEPT_DAYS) -> Iterator[Client]:
    """Yield a client whose User-Agent says who asks, and that keeps its answers in the folder `cache`.

    Raises LongtailError where no contact is given, before anything is asked or written.
    """
    if not contact:
        raise LongtailError(
            "params.yaml: contact is null, expected an e-mail address or a web page; Wikimedia's policy asks "
            "that downloads say whom to write to"
        )
    with closing(Client(contact, cache, kept_days)) as client:
        yield client


class Client(web.Client):
    """See `open_client`."""

    def __init__(self, contact: str, cache: Path, kept_days: float) -> None:
        super().__init__(AT_ONCE, TIMEOUT)
        self.session.headers["User-Agent"] = f"longtail/0.1 ({contact})"
        self._kept = web.Kept(cache, kept_days)

    def ask(self, url: str, params: Mapping[str, str] | None = None, check: web.Check | None = None) -> bytes | None:
        """The body at `url`, or None where the server answers 404; kept on disk, and then not asked for again.

        `check(body)` may raise Again, or a LongtailError that ends it; it sees the bodies of server errors (5xx) too.
        A body that it refuses is not kept. Raises LongtailError naming the URL on any other status, or when ATTEMPTS
        came to nothing.
        """
        found, body = self._kept.get(_key(url, params))
        if not found:
            answer = self.send("GET", url, params=params, check=check)
            if answer.status_code != 404 and not answer.ok:
                raise web.refusal(answer, url, params)
            body = answer.content if answer.ok else None
            self.keep(url, params, body)
        return body

    def keep(self, url: str, params: Mapping[str, str] | None, body: bytes | None) -> None:
        """Let `ask` answer `body` from now on, without asking."""
        self._kept.put({_key(url, params): body})

    def ask_all(
        self, asked: Iterable[tuple[str, Mapping[str, str]]], desc: str, check: web.Check | None = None
    ) -> Iterator[bytes | None]:
        """`ask` for each (URL, params), at most AT_ONCE side by side; the answers in order, under a progress bar."""
        return self.map(lambda one: self.ask(*one, check=check), asked, desc)

    def close(self) -> None:
        super().close()
        self._kept.close()


def _key(url: str, params: Mapping[str, str] | None) -> str:
    return f"{url}?{urlencode(sorted((params or {}).items()))}"
