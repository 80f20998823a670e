"""The one HTTP client, polite as Wikimedia asks: a contact, three at once, Retry-After honoured, answers kept on disk.

Kept answers lie in an SQLite file, in which a killed process can't leave half an answer: an interrupted stage asks only
for what it has not got. The stage removes the cache's folder once its output is written.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from operator import length_hint
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import requests
from requests.adapters import HTTPAdapter
from tqdm import tqdm

from pipelines.errors import LongtailError

AT_ONCE = 3  # requests side by side: Wikimedia's rule
ATTEMPTS = 5  # of one request, before it is given up
BACKOFF = 2.0  # seconds before the second attempt, doubled for each further one, where the server names no time
LONGEST = 3600.0  # seconds that a server may ask to wait; beyond them it is an error
TIMEOUT = (30, 120)  # seconds to connect, and between two reads; the query service itself gives up after 60
RETRIED = (408, 429, 500, 502, 503, 504)
AHEAD = 16  # requests begun or waiting for each one side by side, while the first of them is still awaited
KEPT_DAYS = 7.0  # answers kept by a run that was broken off longer ago are asked for again
SHOWN = 200  # characters of an address or an answer in a message

Check = Callable[[bytes], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Again(Exception):
    """What a check raises: this body is no answer (cut JSON, an error in place of data); ask again, as after a 503."""


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


class Client:
    """See `open_client`. Safe to use from several threads."""

    def __init__(self, contact: str, cache: Path, kept_days: float) -> None:
        self._session = requests.Session()
        self._session.headers["User-Agent"] = f"longtail/0.1 ({contact})"
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=AT_ONCE))
        self._kept = _Kept(cache, kept_days)
        self._not_before: dict[str, float] = {}  # host -> the time of time.monotonic() until which it asked for peace
        self._stopped = threading.Event()
        self._cause: BaseException | None = None

    def ask(self, url: str, params: Mapping[str, str] | None = None, check: Check | None = None) -> bytes | None:
        """The body at `url`, or None where the server answers 404; kept on disk, and then not asked for again.

        `check(body)` may raise Again, or a LongtailError that ends it; it sees the bodies of server errors (5xx) too.
        A body that it refuses is not kept. Raises LongtailError naming the URL on any other status, or when ATTEMPTS
        came to nothing.
        """
        found, body = self._kept.get(_key(url, params))
        if not found:
            answer = self.send("GET", url, params=params, check=check)
            if answer.status_code != 404 and not answer.ok:
                raise refusal(answer, url, params)
            body = answer.content if answer.ok else None
            self.keep(url, params, body)
        return body

    def keep(self, url: str, params: Mapping[str, str] | None, body: bytes | None) -> None:
        """Let `ask` answer `body` from now on, without asking."""
        self._kept.put(_key(url, params), body)

    def ask_all(
        self, asked: Iterable[tuple[str, Mapping[str, str]]], desc: str, check: Check | None = None
    ) -> Iterator[bytes | None]:
        """`ask` for each (URL, params), at most AT_ONCE side by side; the answers in order, under a progress bar."""
        return self.map(lambda one: self.ask(*one, check=check), asked, desc)

    def map(self, work: Callable[[Item], Result], items: Iterable[Item], desc: str) -> Iterator[Result]:
        """`work(item)`, which asks this client, at most AT_ONCE side by side; results in order, under a progress bar.

        The first error ends it: what waits stops waiting, and what has not begun never begins.
        """

        def do(item: Item) -> Result:
            try:
                return work(item)
            except BaseException as error:
                self.stop(error)
                raise

        waiting: deque[Future[Result]] = deque()
        with (
            ThreadPoolExecutor(AT_ONCE) as pool,
            tqdm(total=length_hint(items) or None, desc=desc, unit="request", mininterval=2) as bar,
        ):
            try:
                for item in items:
                    waiting.append(pool.submit(do, item))
                    if len(waiting) == AHEAD * AT_ONCE:
                        yield waiting.popleft().result()
                        bar.update()
                while waiting:
                    yield waiting.popleft().result()
                    bar.update()
            except GeneratorExit:
                raise
            except BaseException as error:
                self.stop(error)
                raise self._cause from None  # what stopped the others, not that they were stopped
            finally:
                for future in waiting:
                    future.cancel()

    def send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        check: Check | None = None,
    ) -> requests.Response:
        """One request, never kept, repeated as long as that helps: server errors, 429, connections that break.

        Redirects are followed. Whoever calls deals with the status (404, 403, ...) and with a streamed body's errors.
        """
        host, problem = urlsplit(url).netloc, ""
        for attempt in range(ATTEMPTS):
            if (left := self._not_before.get(host, 0.0) - time.monotonic()) > 0:
                self.pause(left)
            self.go_on()
            asked_wait = None
            try:
                answer = self._session.request(
                    method, url, params=params, headers=headers, stream=stream, timeout=TIMEOUT
                )
                asked_wait, failed = _retry_after(answer), answer.status_code in RETRIED
                problem = _said(answer) if failed else ""
                if check and answer.status_code // 100 in (2, 5):
                    check(answer.content)
                if not failed:
                    return answer
                answer.close()
            except Again as error:
                problem = problem or str(error)
            except (requests.ConnectionError, requests.Timeout) as error:
                problem = f"no connection ({error}); check the network and the address"
            except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
                problem = f"the answer was cut ({_short(str(error))})"
            except requests.RequestException as error:
                raise LongtailError(f"{shown(url, params)}: {error}") from None
            if asked_wait is None:
                if attempt < ATTEMPTS - 1:
                    self.pause(BACKOFF * 2**attempt)
            elif asked_wait > LONGEST:
                raise LongtailError(f"{shown(url, params)}: {problem}, asks to wait {asked_wait:.0f} s; run again then")
            else:  # the whole host asked for peace, not only this request's part of it
                self._not_before[host] = max(self._not_before.get(host, 0.0), time.monotonic() + asked_wait)
        raise LongtailError(f"{shown(url, params)}: {problem}; gave up after {ATTEMPTS} attempts, run again to go on")

    def pause(self, seconds: float) -> None:
        """Wait, unless an error elsewhere or an interruption stops the client meanwhile."""
        self._stopped.wait(seconds)

    def go_on(self) -> None:
        """Raise LongtailError where the client was stopped; for threads at long work."""
        if self._stopped.is_set():
            raise LongtailError(f"stopped by another request's error: {self._cause}")

    def stop(self, cause: BaseException) -> None:
        """End all waiting, and refuse to ask anything more, so that other threads end soon; the first cause counts."""
        self._cause = self._cause or cause
        self._stopped.set()

    def close(self) -> None:
        self._stopped.set()
        self._session.close()
        self._kept.close()


def _key(url: str, params: Mapping[str, str] | None) -> str:
    return f"{url}?{urlencode(sorted((params or {}).items()))}"


def refusal(answer: requests.Response, url: str, params: Mapping[str, str] | None = None) -> LongtailError:
    """The error for an answer whose status says no."""
    return LongtailError(f"{shown(url, params)}: {_said(answer)}")


def shown(url: str, params: Mapping[str, str] | None = None) -> str:
    """An address for a message: readable, and not too long."""
    return url + (_short(f"?{'&'.join(f'{name}={value}' for name, value in params.items())}") if params else "")


def _said(answer: requests.Response) -> str:
    text = " ".join(answer.text.split()) if "html" not in answer.headers.get("Content-Type", "") else ""
    return f"the server answers {answer.status_code} {answer.reason}" + (f": {_short(text)}" if text else "")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _retry_after(answer: requests.Response) -> float | None:
    """Seconds that the answer's Retry-After (a number or an HTTP date) asks to wait; None where it says nothing."""
    value = answer.headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a time zone
        return None


class _Kept:
    """Answers on disk: a body, or None for "not there", by address and params; each whole or not there."""

    def __init__(self, folder: Path, days: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "answers.sqlite"
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, at REAL, body BLOB)")
            self._db.execute("DELETE FROM answers WHERE at < ?", (time.time() - days * 86400,))
        except sqlite3.DatabaseError as error:
            raise LongtailError(f"{path}: damaged ({error}), expected kept answers; remove the file") from None

    def get(self, key: str) -> tuple[bool, bytes | None]:
        with self._lock:
            row = self._db.execute("SELECT body FROM answers WHERE key = ?", (key,)).fetchone()
        return row is not None, zlib.decompress(row[0]) if row and row[0] is not None else None

    def put(self, key: str, body: bytes | None) -> None:
        stored = None if body is None else zlib.compress(body)
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, time.time(), stored))

    def close(self) -> None:
        with self._lock:
            self._db.close()
