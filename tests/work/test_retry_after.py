"""The time that a server asks to wait, in every form, is waited."""

import pytest
import requests
from http_faults import Fault, Handler, Server, reply, serving

from pipelines.errors import LongtailError
from pipelines.work import http, retry_after
from pipelines.work.retry_after import seconds_asked

NOW = {"Date": "Sun, 06 Nov 1994 08:49:37 GMT"}
HEADERS = [  # (headers, seconds)
    ({"Retry-After": "16"}, 16),
    ({"Retry-After": "1.5"}, 1.5),
    ({"Retry-After": "6m0s"}, 360),
    ({"Retry-After": "Sun, 06 Nov 1994 08:49:53 GMT"}, 16),
    ({"Retry-After": "Sunday, 06-Nov-94 08:49:53 GMT"}, 16),
    ({"Retry-After": "Sun Nov  6 08:49:53 1994"}, 16),
    ({"Retry-After": "Sun, 06 Nov 1994 08:00:00 GMT"}, 0),
    ({"Retry-After": "1994-11-06T08:49:53Z"}, 16),
    ({"Retry-After": "9999-99-06T08:49:53Z"}, None),
    ({"Retry-After": "16, 2"}, 16),
    ({"Retry-After": "16, soon"}, None),
    ({"Retry-After": "nan"}, None),
    ({"Retry-After": "Sun, 06 Nov 99999 08:49:53 GMT"}, None),
    ({"Retry-After": "soon"}, None),
    ({"Retry-After": "-5"}, None),
    ({"Retry-After": "9" * 400}, float("inf")),
    ({"Retry-After": "9" * 5000 + "x!"}, None),
    ({"Retry-After": "2", "retry-after-ms": "1500"}, 1.5),
    ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}, 360),
    ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "9"}, None),
]
BODIES = [  # (an answer's text, seconds)
    ('{"error": {"details": [{"@type": "RetryInfo", "retryDelay": "16s"}]}}', 16),
    ("Rate limit reached. Please try again in 7m12.48s. Visit", 432.48),
    ("Please try again in 857ms", 0.857),
    ("Please retry after 26 seconds.", 26),
    ("Please retry in 16.5s.", 16.5),
    ('{"message": "slow down", "retry_after": 16}', 16),
    ('{"error": "Model x is currently loading", "estimated_time": 20.0}', 20),
    ("Try again in 5 attempts", None),
    ("Try again later", None),
]


def answer(headers: dict[str, str], body: str = "") -> requests.Response:
    made = requests.Response()
    made.headers.update(headers)
    made._content = body.encode()
    return made


@pytest.mark.parametrize(("headers", "seconds"), HEADERS)
def test_a_header_names_the_wait(headers, seconds):
    assert seconds_asked(answer(NOW | headers)) == seconds


@pytest.mark.parametrize(("body", "seconds"), BODIES)
def test_a_text_names_the_wait(body, seconds):
    assert seconds_asked(answer(NOW, body)) == seconds


def test_without_a_servers_date_this_clock_counts(monkeypatch):
    monkeypatch.setattr(retry_after.time, "time", lambda: 784111777.0)
    date = {"Retry-After": "Sun, 06 Nov 1994 08:49:53 GMT"}
    assert seconds_asked(answer(date)) == 16


class Busy(Handler):
    def do_GET(self) -> None:
        fault = self.server.begin(self.path, self.path)
        reply(self, fault.body or b"done", fault, {})


@pytest.fixture
def waits(monkeypatch):
    """A client whose waits are noted, and pass at once."""
    client = http.Client(1, (5, 5))
    clock = [1000.0]
    waits = []

    def pause(self, seconds):
        waits.append(round(seconds))
        clock[0] += seconds

    monkeypatch.setattr(http.Client, "pause", pause)
    monkeypatch.setattr(http.time, "monotonic", lambda: clock[0])
    with serving(Server(Busy)) as server:
        yield client, server, waits
    client.close()


def test_a_date_is_waited_for_and_a_long_wait_is_said(waits, capsys):
    client, server, seconds = waits
    server.faults = [Fault(429, headers={"Retry-After": "Fri, 31 Dec 2999 23:59:59 GMT"})]
    with pytest.raises(LongtailError, match=r"429.*asks to wait \d+ s; run again then"):
        client.send("GET", server.address)
    server.faults = [Fault(429, b"Please try again in 6m0s")]
    assert client.send("GET", server.address).content == b"done"
    assert seconds == [360]
    assert "asks to wait 360 s" in capsys.readouterr().out
