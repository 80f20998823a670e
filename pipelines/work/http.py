"""The one HTTP client: what may pass is tried again, Retry-After is honoured, many at once, answers kept on disk.

They lie in an SQLite file, in which a killed process or a power cut can't leave half an answer.
"""

import io
import math
import random
import sqlite3
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter
from tqdm import tqdm
from urllib3.exceptions import DecodeError, ProtocolError, ReadTimeoutError

from pipelines.errors import LongtailError, Unreachable
from pipelines.params import bounds

ATTEMPTS = 5  # attempts of one request, before it is given up
BACKOFF = 2.0  # seconds before the second attempt, doubled for each further one, where the server names no time
JITTER = 0.5  # share of these seconds that is drawn, so that requests which failed together don't come together again
LONGEST = 3600.0  # seconds that a server may ask to wait; beyond them it is an error
DEADLINE = 1800.0  # seconds for a whole answer, besides the seconds that its bytes take at the rate SLOWEST
SLOWEST = 50_000.0  # bytes a second; an answer that comes slower counts as cut
BLOCK = 1 << 16  # bytes of an answer that are read at once
BROKEN = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
)  # an answer's JSON that can't be read
RETRIED = (
    408,
    429,
    500,
    502,
    503,
    504,
    *range(520, 525),
    529,
)  # above 504: Cloudflare's, and Anthropic's overload
AHEAD = 16  # requests begun or waiting for each one side by side, while the first of them is still awaited
SHOWN = 200  # characters of an address or an answer in a message

Check = Callable[[bytes], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Session(requests.Session):
    """A session that follows only redirects of a GET to the host that was asked, or to one of `hosts` (None: any)."""

    hosts: frozenset[str] | None = frozenset()

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """The address that an answer sends on to, None if it doesn't. LongtailError where that isn't followed."""
        if (target := super().get_redirect_target(resp)) is None:
            return None
        asked = urlsplit(resp.request.url)
        try:
            there = urlsplit(urljoin(resp.request.url, target))
        except ValueError:
            raise LongtailError(
                f"{resp.request.url}: the server sends the request on to {target!r}"
            ) from None
        where = f"{shown(asked._replace(query='').geturl())}: the server sends the request on to {there.hostname}"
        if resp.request.method not in ("GET", "HEAD"):
            raise LongtailError(f"{where}, expected an answer; give the address that answers")
        if self.hosts is not None and there.hostname not in {asked.hostname, *self.hosts}:
            own = "give its own address, or for downloads add it to fetch.redirects"
            raise LongtailError(f"{where}, which no param names; {own}")
        if (asked.scheme, there.scheme) == ("https", "http"):
            raise LongtailError(
                f"{where} without encryption; give an address that answers with https"
            )
        return target

    def rebuild_auth(
        self, prepared_request: requests.PreparedRequest, response: requests.Response
    ) -> None:
        """Sign in at no other host than the one that was asked, where requests may be sent on to any."""
        if self.hosts is not None:
            super().rebuild_auth(prepared_request, response)
        elif self.should_strip_auth(response.request.url, prepared_request.url):
            prepared_request.headers.pop("Authorization", None)


class Again(Exception):
    """What a check raises: this body is no answer (cut JSON, an error in place of data); ask again, as after a 503."""


class Client:
    """At most `at_once` requests side by side, with `timeout` seconds to connect and between reads; thread-safe."""

    def __init__(self, at_once: int, timeout: tuple[float, float]) -> None:
        self.session, self._at_once, self._timeout = Session(), at_once, timeout
        for scheme in ("https://", "http://"):
            self.session.mount(scheme, HTTPAdapter(pool_maxsize=at_once))
        self._not_before: dict[
            str, float
        ] = {}  # host -> the time of time.monotonic() until which it asked for peace
        self._stopped = threading.Event()
        self._cause: BaseException | None = None
        self._pool = ThreadPoolExecutor(
            at_once
        )  # of all maps together; its threads start when they are needed
        self._blocks, self._counting = 0, threading.Lock()

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item], desc: str | None
    ) -> Iterator[Result]:
        """`work(item)` for all items, `at_once` side by side, in order, under a bar; the first error ends it."""
        most = AHEAD * self._at_once

        def do(item: Item) -> Result:
            try:
                return work(item)
            except BaseException as error:
                self.stop(error)
                raise

        waiting: deque[Future[Result]] = deque()
        with tqdm(
            total=length_hint(items) or None,
            desc=desc,
            unit="request",
            mininterval=2,
            disable=not desc,
        ) as bar:
            todo = iter(items)
            try:
                while True:
                    waiting.extend(
                        self._pool.submit(do, one) for one in islice(todo, most - len(waiting))
                    )
                    if not waiting:
                        return
                    result = waiting[0].result()
                    waiting.popleft()
                    yield result
                    bar.update()
            except GeneratorExit:
                raise
            except BaseException as error:
                self.stop(error)
                raise self._cause from None  # what stopped the others, not that they were stopped
            finally:
                wait([future for future in waiting if not future.cancel()])

    def send(
        self,
        method: str,
        url: str,
        *,
        check: Check | None = None,
        attempts: int | None = None,
        **request,
    ) -> requests.Response:
        """One `request` of requests.Session, repeated where that helps; the caller deals with other statuses."""
        host, problem = urlsplit(url).netloc, ""
        attempts, params = attempts or ATTEMPTS, request.get("params")
        for attempt in range(attempts):
            if (left := self._not_before.get(host, 0.0) - time.monotonic()) > 0:
                self.pause(left)
            self.go_on()
            asked_wait = None
            try:
                answer = self._once(method, url, **request)
                after, failed = (
                    answer.headers.get("Retry-After", "").strip(),
                    answer.status_code in RETRIED,
                )
                asked_wait = float(after) if after.isdecimal() else None
                problem = _said(answer) if failed else ""
                if check and answer.status_code // 100 in (2, 5):
                    check(answer.content)
                if not failed:
                    return answer
            except Again as error:
                problem = problem or str(error)
                self.session.close()  # no connection is used again on which more than Content-Length may have come
            except (requests.ConnectionError, requests.Timeout) as error:
                problem = f"no connection ({error}); check the network and the address"
            except (
                requests.exceptions.ChunkedEncodingError,
                requests.exceptions.ContentDecodingError,
            ) as error:
                problem = f"the answer was cut ({_short(str(error))})"
            except requests.RequestException as error:
                raise LongtailError(f"{shown(url, params)}: {error}") from None
            if asked_wait is None and attempt < attempts - 1:
                self.pause(BACKOFF * 2**attempt * random.uniform(1 - JITTER, 1))
            elif asked_wait and asked_wait > LONGEST:
                raise LongtailError(
                    f"{shown(url, params)}: {problem}, asks to wait {asked_wait:.0f} s; run again then"
                )
            elif asked_wait:  # the whole host asked for peace, not only this request's part of it
                self._not_before[host] = max(
                    self._not_before.get(host, 0.0), time.monotonic() + asked_wait
                )
        raise Unreachable(
            f"{shown(url, params)}: {problem}; gave up after {attempts} attempts, run again to go on"
        )

    def _once(self, method: str, url: str, **request) -> requests.Response:
        """One attempt of `send`; the body is read, unless `stream` is asked for and it is no refusal."""
        streamed, begun = request.pop("stream", False), time.monotonic()
        answer = self.session.request(method, url, timeout=self._timeout, stream=True, **request)
        if not (streamed and answer.ok):
            answer.raw = io.BytesIO(b"".join(self.parts(answer, bounds.WHOLE, True, begun)))
        return answer

    def parts(
        self, answer: requests.Response, most: float, decode: bool, begun: float | None
    ) -> Iterator[bytes]:
        """Yield a body as it comes, asked for at `begun` (now); an error beyond `most` bytes, or if it is cut."""
        size, begun = 0, time.monotonic() if begun is None else begun
        try:
            while part := answer.raw.read1(BLOCK, decode_content=decode):
                size += len(part)
                self.go_on()
                if size > most:
                    raise bounds.too_large(answer.url, "a short answer")
                if time.monotonic() - begun > DEADLINE + size / SLOWEST:
                    raise requests.exceptions.ChunkedEncodingError(
                        f"not whole after {DEADLINE:.0f} s"
                    )
                yield part
        except (ReadTimeoutError, ProtocolError) as error:
            raise requests.exceptions.ChunkedEncodingError(error) from None
        except DecodeError as error:
            raise requests.exceptions.ContentDecodingError(error) from None
        finally:
            answer.close()

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

    @contextmanager
    def block(self) -> Iterator[None]:
        """A block that asks, in any thread. What stopped the client is dealt with once no thread is in such a block."""
        with self._counting:
            self._blocks += 1
        try:
            yield
        finally:
            with self._counting:
                self._blocks -= 1
                if not self._blocks:
                    self._cause = None
                    self._stopped.clear()

    def close(self) -> None:
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.session.close()


def refusal(
    answer: requests.Response, url: str, params: Mapping[str, str] | None = None
) -> LongtailError:
    """The error for an answer whose status says no."""
    return LongtailError(f"{shown(url, params)}: {_said(answer)}")


def shown(url: str, params: Mapping[str, str] | None = None) -> str:
    """An address for a message: readable, and not too long."""
    return url + _short(
        "".join(f"{'&' if i else '?'}{name}={params[name]}" for i, name in enumerate(params or ()))
    )


def _said(answer: requests.Response) -> str:
    text = (
        answer.content[: 4 * SHOWN] if "html" not in answer.headers.get("Content-Type", "") else b""
    )
    text = " ".join(
        text.decode("utf-8", "replace").split()
    )  # requests would guess the encoding, for minutes
    return f"the server answers {answer.status_code} {answer.reason}" + (
        f": {_short(text)}" if text else ""
    )


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


class Kept:
    """Answers on disk: a body, or None for "not there", by a key of the request; each whole or not there.

    Machines may share the folder, so SQLite keeps a rollback journal: its WAL mode works on one machine alone.
    """

    def __init__(self, folder: Path, days: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "answers.sqlite"
        self._lock, self._committing, self._transactions = threading.Lock(), threading.Lock(), 0
        try:
            self._db = sqlite3.connect(
                path, timeout=60, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = TRUNCATE")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, at REAL, body BLOB)"
            )
            if math.isfinite(days):
                self._db.execute("DELETE FROM answers WHERE at < ?", (time.time() - days * 86400,))
        except sqlite3.DatabaseError as error:
            raise LongtailError(
                f"{path}: damaged ({error}), expected kept answers; remove the file"
            ) from None

    def get(self, key: str) -> tuple[bool, bytes | None]:
        with self._lock:
            row = self._db.execute("SELECT body FROM answers WHERE key = ?", (key,)).fetchone()
        return row is not None, zlib.decompress(row[0]) if row and row[0] is not None else None

    def put(self, bodies: Mapping[str, bytes | None]) -> None:
        """Keep all of them, or none."""
        now = time.time()
        rows = [
            (key, now, None if body is None else zlib.compress(body))
            for key, body in bodies.items()
        ]
        with self._writing():
            self._db.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)
            self._put_also(bodies)

    def _put_also(self, keys: Iterable[str]) -> None:
        """Write what belongs to the answers to these requests, in the same transaction."""

    def oldest(self) -> float | None:
        """When the oldest answer came, in seconds since 1970; None if there is none."""
        with self._lock:
            return self._db.execute("SELECT min(at) FROM answers").fetchone()[0]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Changes that are on disk at the end, all or none, whatever others do; an error takes them back.

        The disk takes milliseconds for a transaction. The changes of threads that wait meanwhile share the next one.
        """
        with self._lock:
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
                self._transactions += 1
            number = self._transactions
            self._db.execute("SAVEPOINT changes")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK TO changes")
                raise
            finally:
                self._db.execute("RELEASE changes")
                if sys.exception():
                    self._db.execute("COMMIT")
        with self._committing, self._lock:
            if self._transactions == number and self._db.in_transaction:
                self._db.execute("COMMIT")

    def close(self) -> None:
        with self._lock:
            self._db.close()
