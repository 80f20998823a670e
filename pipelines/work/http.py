"""The one HTTP client. It sends many requests side by side, and tries again what may pass."""

import io
import os
import random
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from operator import length_hint
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from tqdm import tqdm
from urllib3.exceptions import DecodeError, ProtocolError, ReadTimeoutError

from pipelines import redaction
from pipelines.errors import LongtailError, Unreachable
from pipelines.params import bounds
from pipelines.work.retry_after import seconds_asked

ATTEMPTS = 5  # attempts of one request, before it is given up
BACKOFF = 2.0  # seconds before the second attempt, doubled for each further one
JITTER = 0.5  # share of these seconds that is drawn, so that failed requests don't return together
MAX_WAIT = 3600.0  # seconds that a server may ask to wait; beyond them it is an error
SAID_WAIT = 30.0  # seconds of a wait that a line tells
DEADLINE = 1800.0  # seconds for a whole answer, besides the seconds for its bytes at MIN_RATE
MIN_RATE = 50_000.0  # bytes a second; an answer that comes slower counts as cut
BLOCK = 1 << 16  # bytes of an answer that are read at once
# Statuses that another attempt may mend. Above 504 are Cloudflare's, and Anthropic's overload.
RETRIED = (408, 429, 500, 502, 503, 504, *range(520, 525), 529)
WAITING_PER_REQUEST = 16  # items begun or waiting in `map`, for each request side by side
# Variables that name certificates, and a log of the connections' keys. Those of Requests and curl
# may name a folder.
TLS_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSLKEYLOGFILE")
MESSAGE_LENGTH = 200  # characters of an address or an answer in a message

Check = Callable[[bytes], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


def check_certificates() -> None:
    """Raise LongtailError where the environment names a file of certificates that can't be read,
    or a log of keys that can't be written.
    """
    for name in TLS_FILES:
        path = os.environ.get(name)
        if not path:
            continue
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if name == "SSLKEYLOGFILE":
                context.keylog_filename = path
            elif name != "SSL_CERT_FILE" and os.path.isdir(path):
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(path)
        except OSError as error:
            raise LongtailError(
                f"{name}={path}: {error.strerror}; correct it or unset it"
            ) from None


class Session(requests.Session):
    """A session that follows only redirects of a GET, to the same host or to one of `hosts`.

    With `hosts` None it follows them to any host.
    """

    hosts: frozenset[str] | None = frozenset()

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """The address that an answer sends the request on to, None if it doesn't.

        Raises LongtailError where such an address isn't followed.
        """
        target = super().get_redirect_target(resp)
        if target is None:
            return None

        url = str(resp.request.url)
        source = urlsplit(url)
        try:
            destination = urlsplit(urljoin(url, target))
        except ValueError:
            raise LongtailError(f"{url}: the server sends the request on to {target!r}") from None

        address = shown(source._replace(query="").geturl())
        problem = f"{address}: the server sends the request on to {destination.hostname}"
        if resp.request.method not in ("GET", "HEAD"):
            raise LongtailError(f"{problem}, expected an answer; give the address that answers")
        if self.hosts is not None and destination.hostname not in {source.hostname, *self.hosts}:
            raise LongtailError(
                f"{problem}, which no param names; give its own address, or for downloads add it "
                "to fetch.redirects"
            )
        if source.scheme == "https" and destination.scheme == "http":
            raise LongtailError(
                f"{problem} without encryption; give an address that answers with https"
            )
        return target

    def rebuild_auth(
        self, prepared_request: requests.PreparedRequest, response: requests.Response
    ) -> None:
        """Sign in at no other host than the first, where requests may be sent on to any."""
        if self.hosts is not None:
            super().rebuild_auth(prepared_request, response)
        elif self.should_strip_auth(str(response.request.url), str(prepared_request.url)):
            prepared_request.headers.pop("Authorization", None)


class Again(Exception):
    """Raised by a check: the body is no answer (cut JSON, an error in place of data).

    The request is sent again, as after a status of 503.
    """


class _Failed(Exception):
    """An attempt failed, and another one may succeed."""

    def __init__(self, problem: str, seconds: float | None = None) -> None:
        super().__init__(problem)
        self.seconds = seconds  # that the server asks to wait; None if it names no time


class Client:
    """At most `at_once` requests side by side. Threads may share it.

    `timeout` has the seconds to connect, and those between reads.

    The first error in a thread stops the client: threads that wait or read end soon, with an error
    that names the first one. When the last block of `sending` ends, the client may be used again.
    """

    def __init__(self, at_once: int, timeout: tuple[float, float]) -> None:
        check_certificates()
        self.session = Session()
        for scheme in ("https://", "http://"):
            self.session.mount(scheme, HTTPAdapter(pool_maxsize=at_once))
        self._at_once = at_once
        self._timeout = timeout
        # host -> the time (time.monotonic) before which it wants no request
        self._not_before: dict[str, float] = {}
        self._stopped = threading.Event()
        self._cause: BaseException | None = None  # why the client was stopped
        self._pool = ThreadPoolExecutor(at_once)  # of all maps; threads start when they are needed
        self._open_blocks = 0
        self._blocks_lock = threading.Lock()

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item], desc: str | None
    ) -> Iterator[Result]:
        """`work(item)` for all items, `at_once` side by side; yields the results in order.

        A bar called `desc` shows the progress, if there is a name. The first error ends it.
        """

        def do(item: Item) -> Result:
            try:
                return work(item)
            except BaseException as error:
                self.stop(error)
                raise

        max_waiting = WAITING_PER_REQUEST * self._at_once
        waiting: deque[Future[Result]] = deque()
        todo = iter(items)
        total = length_hint(items) or None
        with tqdm(total=total, desc=desc, unit="request", mininterval=2, disable=not desc) as bar:
            try:
                while True:
                    for item in islice(todo, max_waiting - len(waiting)):
                        waiting.append(self._pool.submit(do, item))
                    if not waiting:
                        return
                    result = waiting[0].result()
                    waiting.popleft()
                    yield result
                    bar.update()
            except GeneratorExit:  # the caller wants no more results, which is no error
                raise
            except BaseException as error:
                self.stop(error)
                first_error = self._cause or error  # not those of threads that it stopped
                raise first_error from None
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
        """The answer to one `request` of requests.Session, which is repeated where that may help.

        `check(body)` raises Again for a body that is no answer. The caller deals with statuses that
        another attempt would not mend. Raises Unreachable after the last attempt.
        """
        host = urlsplit(url).netloc
        params = request.get("params")
        attempts = attempts or ATTEMPTS
        problem = ""
        for attempt in range(attempts):
            seconds_until_allowed = self._not_before.get(host, 0.0) - time.monotonic()
            if seconds_until_allowed > 0:
                self.pause(seconds_until_allowed)
            self.raise_if_stopped()

            try:
                return self._attempt(method, url, check, request)
            except _Failed as failure:
                problem = str(failure)
                seconds = failure.seconds

            if not seconds:  # the host names no time, or "now", at which it just failed
                if attempt < attempts - 1:
                    self.pause(BACKOFF * 2**attempt * random.uniform(1 - JITTER, 1))
            elif seconds > MAX_WAIT:
                raise LongtailError(
                    f"{shown(url, params)}: {problem}, asks to wait {seconds:.0f} s; run again then"
                )
            else:
                # The whole host asks for a pause, not only for this request.
                until = time.monotonic() + seconds
                last = self._not_before.get(host, 0.0)
                self._not_before[host] = max(last, until)
                if seconds >= SAID_WAIT and until > last + 1:
                    print(f"{host} asks to wait {seconds:.0f} s; waiting")
        raise Unreachable(
            f"{shown(url, params)}: {problem}; gave up after {attempts} attempts, "
            "run again to go on"
        )

    def _attempt(
        self, method: str, url: str, check: Check | None, request: dict
    ) -> requests.Response:
        """One attempt of `send`. Raises _Failed where another attempt may help."""
        try:
            answer = self._once(method, url, **request)
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _Failed(f"no connection ({error}); check the network and the address") from None
        except (
            requests.exceptions.ChunkedEncodingError,
            requests.exceptions.ContentDecodingError,
        ) as error:
            raise _Failed(f"the answer was cut ({_short(str(error))})") from None
        except requests.RequestException as error:
            raise LongtailError(f"{shown(url, request.get('params'))}: {error}") from None

        problem = ""
        if answer.status_code in RETRIED:
            problem = _status_of(answer)
        # A body of another status, such as a refusal, is the caller's.
        if check and answer.status_code // 100 in (2, 5):
            try:
                check(answer.content)
            except Again as error:
                # On its connection more may have come than Content-Length says.
                self.session.close()
                problem = problem or str(error)
        if problem:
            raise _Failed(problem, seconds_asked(answer))
        return answer

    def _once(self, method: str, url: str, **request) -> requests.Response:
        """Send a request once. Reads the body, unless the request has `stream` and succeeds."""
        begun = time.monotonic()
        streamed = request.pop("stream", False)
        answer = self.session.request(method, url, timeout=self._timeout, stream=True, **request)
        if not (streamed and answer.ok):
            body = b"".join(self.parts(answer, bounds.WHOLE, decode=True, begun=begun))
            answer.raw = io.BytesIO(body)
        return answer

    def parts(
        self,
        answer: requests.Response,
        max_bytes: float,
        *,
        decode: bool = False,
        begun: float | None = None,
    ) -> Iterator[bytes]:
        """Yield a body as it comes, of at most `max_bytes` bytes, with `decode` uncompressed.

        The request was sent at the time `begun` (by default now). Raises LongtailError beyond
        `max_bytes`, and requests' errors for a body that is cut.
        """
        if begun is None:
            begun = time.monotonic()
        size = 0
        try:
            while True:
                part = answer.raw.read1(BLOCK, decode_content=decode)
                if not part:
                    return

                size += len(part)
                self.raise_if_stopped()
                if size > max_bytes:
                    raise bounds.too_large(answer.url, "a short answer")
                if time.monotonic() - begun > DEADLINE + size / MIN_RATE:
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

    def raise_if_stopped(self) -> None:
        """Raise LongtailError if the client was stopped; threads call this during long work."""
        if self._stopped.is_set():
            raise LongtailError(f"stopped by another request's error: {self._cause}")

    def stop(self, cause: BaseException) -> None:
        """End all waiting and send no more requests, so that other threads end soon.

        The first cause counts.
        """
        self._cause = self._cause or cause
        self._stopped.set()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """A block that sends requests, in any thread.

        When no thread is in such a block, what stopped the client counts as dealt with.
        """
        with self._blocks_lock:
            self._open_blocks += 1
        try:
            yield
        finally:
            with self._blocks_lock:
                self._open_blocks -= 1
                if not self._open_blocks:
                    self._cause = None
                    self._stopped.clear()

    def close(self) -> None:
        """Stop, and close all connections."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.session.close()


def refusal(
    answer: requests.Response, url: str, params: Mapping[str, str] | None = None
) -> LongtailError:
    """The error for an answer whose status says no."""
    return LongtailError(f"{shown(url, params)}: {_status_of(answer)}")


def shown(url: str, params: Mapping[str, str] | None = None) -> str:
    """An address for a message: readable, and not too long."""
    if not params:
        return url
    query = "&".join(f"{name}={value}" for name, value in params.items())
    return url + _short(f"?{query}")


def _status_of(answer: requests.Response) -> str:
    """A refusal's status and the beginning of its text, for a message."""
    status = f"the server answers {answer.status_code} {answer.reason}"
    if "html" in answer.headers.get("Content-Type", ""):
        return status
    text = beginning(answer.content)
    return f"{status}: {text}" if text else status


def beginning(body: bytes) -> str:
    """The beginning of a body, in one line, for a message."""
    # requests would guess the encoding, for minutes
    text = body[:BLOCK].decode("utf-8", "replace")
    return _short(" ".join(text.split()))


def _short(text: str) -> str:
    """The text without secrets, or its beginning if it is long."""
    text = redaction.hidden(text)
    if len(text) <= MESSAGE_LENGTH:
        return text
    return text[: MESSAGE_LENGTH - 1] + "…"
