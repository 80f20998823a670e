"""A download arrives whole, as the server announced it, or is a clear error; a cut one goes on where it stopped."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from waiting import until

from pipelines import params, web
from pipelines.errors import LongtailError
from pipelines.sources.fetch import DOWNLOADS, fetch

DATA = bytes(range(256)) * 9000  # 2.3 MB: more than one block
MONTH = "2018-12"
KEPT = 6 * web.BLOCK
DUMP = "enwiki-20181220-pages-articles.xml.bz2"


class Server(ThreadingHTTPServer):
    """A dump server on loopback: ranges, and faults that a test asks for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {f"/{DUMP}": DATA}
        self.cuts: list[int] = []  # the next GETs stop after this many bytes
        self.busy = 0  # so many answers are 429 first
        self.requests: list[tuple[str, str, str | None]] = []
        self.agents: set[str] = set()
        self.version = '"one"'
        self.now = self.most = 0
        self.together = 0  # so many answers wait for each other

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        server = self.server
        server.requests.append((self.command, self.path, self.headers["Range"]))
        server.agents.add(self.headers["User-Agent"])
        data = server.files.get(self.path)
        if data is None:
            return self.begin(404, 0)
        if server.busy:
            server.busy -= 1
            return self.begin(429, 0, **{"Retry-After": "0"})
        begin = 0
        if self.headers["Range"] and self.headers["If-Range"] == server.version:
            begin = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            self.begin(206, len(data) - begin, **{"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"})
        else:
            self.begin(200, len(data))
        if body:
            data = data[begin:]
            if server.cuts and (cut := server.cuts.pop(0)) < len(data):
                data = data[:cut]
                self.close_connection = True
            server.now += 1
            server.most = max(server.most, server.now)
            if server.together:
                until(lambda: server.most >= server.together, 60)
                time.sleep(0.3)  # one more would come meanwhile
            self.wfile.write(data)
            server.now -= 1

    def begin(self, status: int, length: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), "ETag": self.server.version, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(web, "BACKOFF", 0.0)
    return tmp_path


def from_web(server: Server, *names: str) -> params.Fetch:
    files = {"wikipedia": [f"{server.address}/{name}" for name in names or (DUMP,)]}
    return params.Fetch(source="wikimedia", root="root", files=files, redirects=[], days_apart=31, pages=None)


def run(chosen: params.Fetch, contact: str | None = "someone@example.org") -> dict[str, float]:
    dumps = params.Wikidata(source="dump", query_service="http://-", api="http://-", page=10)
    return fetch(Path("data/raw"), 0, contact, chosen, dumps, None, MONTH)


def test_a_download_is_announced_and_says_who_asks(server: Server, capsys: pytest.CaptureFixture) -> None:
    run(from_web(server))
    assert Path("data/raw/wikipedia", DUMP).read_bytes() == DATA
    assert "1 files to download, 2.30 MB" in capsys.readouterr().out
    assert server.agents == {"longtail/0.1 (someone@example.org)"}
    assert json.loads(Path("data/raw/manifest.json").read_text())[0]["source"] == f"{server.address}/{DUMP}"


def test_globs_and_addresses_go_together(server: Server) -> None:
    Path("root").mkdir()
    Path("root/a.jsonl").write_bytes(b"1")
    chosen = from_web(server)
    assert run(chosen.model_copy(update={"files": chosen.files | {"nq": ["a.jsonl"]}}))["files"] == 2


def test_a_contact_is_required(server: Server) -> None:
    with pytest.raises(LongtailError, match=r"contact is null"):
        run(from_web(server), contact=None)
    assert not server.requests


def test_a_cut_connection_goes_on_where_it_stopped(server: Server) -> None:
    server.cuts = [20 * web.BLOCK + 5, 3 * web.BLOCK]
    run(from_web(server))
    assert Path("data/raw/wikipedia", DUMP).read_bytes() == DATA
    ranges = [r[2] for r in server.requests if r[:2] == ("GET", f"/{DUMP}")]
    assert ranges == [None, f"bytes={20 * web.BLOCK + 5}-", f"bytes={23 * web.BLOCK + 5}-"]


def test_a_download_cut_for_good_is_an_error_and_the_next_run_goes_on(server: Server) -> None:
    server.cuts = [KEPT] + [0] * 5
    with pytest.raises(LongtailError, match=rf"{DUMP}: cut at {KEPT} of {len(DATA)} bytes.*run again to go on"):
        run(from_web(server))
    assert not Path("data").exists()
    run(from_web(server))
    assert Path("data/raw/wikipedia", DUMP).read_bytes() == DATA
    assert ("GET", f"/{DUMP}", f"bytes={KEPT}-") == [r for r in server.requests if r[:2] == ("GET", f"/{DUMP}")][-1]


def test_a_file_that_changed_meanwhile_is_begun_afresh(server: Server) -> None:
    server.cuts = [KEPT] + [0] * 5
    with pytest.raises(LongtailError):
        run(from_web(server))
    server.version, server.files[f"/{DUMP}"] = '"two"', DATA[::-1]
    run(from_web(server))
    assert Path("data/raw/wikipedia", DUMP).read_bytes() == DATA[::-1]


def test_a_busy_server_is_asked_again_after_the_time_it_names(server: Server) -> None:
    server.busy = 1
    run(from_web(server))
    assert [r[0] for r in server.requests[:2]] == ["HEAD", "HEAD"]
    assert Path("data/raw/wikipedia", DUMP).read_bytes() == DATA


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, rf"{DUMP}: the server answers 404"),
        ({f"/{DUMP}": b"<!DOCTYPE html><h1>Too many requests</h1>"}, rf"{DUMP}: an HTML page, expected data"),
        ({f"/{DUMP}": b""}, rf"{DUMP}: empty"),
        (
            {f"/{DUMP}": DATA, "/enwiki-20181220-sha1sums.txt": f"{'0' * 40}  {DUMP}\n".encode()},
            f"its sha1 is {hashlib.sha1(DATA).hexdigest()}, the server's list says 0000",
        ),
        ({f"/{DUMP}": DATA, f"/{DUMP}.md5": b"1" * 32}, f"its md5 is {hashlib.md5(DATA).hexdigest()}"),
    ],
)
def test_a_download_that_is_not_what_it_should_be_is_an_error(server: Server, files: dict, message: str) -> None:
    server.files = files
    with pytest.raises(LongtailError, match=message):
        run(from_web(server))
    assert not Path("data").exists()
    assert not list(DOWNLOADS.glob("*.bz2*part"))


def test_the_servers_checksum_is_compared(server: Server) -> None:
    other = f"{'0' * 40}  enwiki-20181220-other.bz2\n{hashlib.sha1(DATA).hexdigest()}  {DUMP}\n"
    server.files["/enwiki-20181220-sha1sums.txt"] = other.encode()
    run(from_web(server))
    assert Path("data/raw/wikipedia", DUMP).is_file()


def test_three_downloads_at_most_run_at_once(server: Server) -> None:
    server.files = {f"/{i}.bz2": DATA for i in range(7)}
    server.together = 3
    run(from_web(server, *(f"{i}.bz2" for i in range(7))))
    assert server.most == 3


def test_a_server_that_is_not_there_is_named() -> None:
    gone = params.Fetch(
        source="wikimedia",
        root=None,
        files={"c4": ["http://127.0.0.1:9/x.gz"]},
        redirects=[],
        days_apart=31,
        pages=None,
    )
    with pytest.raises(LongtailError, match=r"http://127\.0\.0\.1:9/x\.gz: no connection"):
        run(gone)
