"""Loopback never goes through a proxy of the environment, in any client; hosts elsewhere still
do.
"""

import asyncio
import os
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial

import aiohttp
import httpx
import pytest
import requests
from http_faults import Fault, Handler, Server, reply, serving

from flows import server as prefect_server
from pipelines import LOOPBACK, spare_loopback
from pipelines.errors import LongtailError
from pipelines.work import http


class Noting(Server):
    """Answers whatever is asked with its own name, and notes the addresses."""

    def __init__(self, name: str) -> None:
        super().__init__(NotingHandler)
        self.name = name


class NotingHandler(Handler):
    server: Noting

    def do_GET(self) -> None:
        reply(
            self, self.server.name.encode(), self.server.begin(self.path, self.path) or Fault(), {}
        )


def by_urllib(url: str) -> str:
    opener = urllib.request.build_opener()  # urlopen keeps one for the whole process
    with opener.open(url, timeout=20) as answer:
        return answer.read().decode()


def by_requests(url: str) -> str:
    return requests.get(url, timeout=20).text


def by_our_client(url: str) -> str:
    client = http.Client(1, (20, 20))
    try:
        return client.send("GET", url, attempts=1).text
    finally:
        client.close()


def by_httpx(url: str) -> str:
    with httpx.Client() as client:
        return client.get(url, timeout=20).text


def by_aiohttp(url: str) -> str:
    async def ask() -> str:
        async with aiohttp.ClientSession(trust_env=True) as session, session.get(url) as answer:
            return await answer.text()

    return asyncio.run(ask())


CLIENTS = [by_urllib, by_requests, by_our_client, by_httpx, by_aiohttp]


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Noting, Noting]]:
    with serving(Noting("the server")) as there, serving(Noting("the proxy")) as proxy:
        yield there, proxy


@pytest.fixture
def proxied(servers, monkeypatch) -> Callable[..., tuple[Noting, Noting]]:
    """The server and the proxy, which the environment names by these variables."""

    def name(variables: list[str], **more: str) -> tuple[Noting, Noting]:
        there, proxy = servers
        there.reset()
        proxy.reset()
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        for name, value in (dict.fromkeys(variables, proxy.address) | more).items():
            monkeypatch.setenv(name, value)
        spare_loopback(os.environ)
        return there, proxy

    return name


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "variables",
    [
        {"HTTP_PROXY": ""},
        {"http_proxy": "", "NO_PROXY": "intranet, 10.0.0.0/8"},
        {"HTTP_PROXY": "", "no_proxy": "intranet", "NO_PROXY": "other"},
    ],
    ids=" ".join,
)
def test_loopback_is_reached_without_the_proxy(proxied, client, variables):
    named = [name for name, value in variables.items() if not value]
    there, proxy = proxied(named, **{name: value for name, value in variables.items() if value})
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        assert client(f"http://{host}:{there.server_address[1]}/") == "the server"
    assert proxy.requests == []
    assert client("http://longtail.invalid/") == "the proxy"
    assert len(there.requests) == 3


@pytest.mark.parametrize("client", [by_requests, by_our_client, by_httpx])
def test_all_proxy_is_not_asked_for_loopback_either(proxied, client):
    there, proxy = proxied(["ALL_PROXY"])
    assert client(f"{there.address}/") == "the server"
    assert client("http://longtail.invalid/") == "the proxy"
    assert len(proxy.requests) == 1


def test_what_a_person_wrote_stays_and_is_extended():
    environment = {"http_proxy": "http://p:1", "no_proxy": "a, b", "NO_PROXY": "c"}
    spare_loopback(environment)
    assert environment["no_proxy"] == ",".join(("a", "b", *LOOPBACK))
    assert environment["NO_PROXY"] == ",".join(("c", *LOOPBACK))
    again = dict(environment)
    spare_loopback(again)
    assert again == environment
    for same in (
        {"NO_PROXY": "a"},
        {"HTTP_PROXY": ""},
        {"HTTPS_PROXY": "http://p:1", "no_proxy": "*", "NO_PROXY": "*"},
    ):
        changed = dict(same)
        spare_loopback(changed)
        assert changed == same


@pytest.mark.parametrize("name", http.TLS_FILES[:3])
def test_certificates_that_can_not_be_read_are_said_first(tmp_path, monkeypatch, name):
    bundle = tmp_path / "bundle.pem"
    monkeypatch.setenv(name, str(bundle))
    for text in (None, "", "no certificate"):
        if text is not None:
            bundle.write_text(text)
        for opened in (
            partial(http.Client, 1, (20, 20)),
            partial(prefect_server.prepare, tmp_path),
        ):
            with pytest.raises(LongtailError, match=rf"^{name}=.*bundle\.pem: .*; correct it or"):
                opened()
    monkeypatch.setenv(name, requests.certs.where())
    http.Client(1, (20, 20)).close()
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "gone/keys"))
    with pytest.raises(LongtailError, match=r"^SSLKEYLOGFILE=.*keys: No such file or directory; "):
        prefect_server.prepare(tmp_path)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "socks://127.0.0.1:1"])
def test_a_proxy_unfit_for_prefect_is_said_first(proxied, tmp_path, proxy):
    proxied([], ALL_PROXY=proxy)
    with pytest.raises(
        LongtailError,
        match=r"ALL_PROXY, .*: Prefect's client can't use a proxy there .*HTTPS_PROXY",
    ):
        prefect_server.prepare(tmp_path)
