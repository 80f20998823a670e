"""Sources arrive whole, described and from where they should, or not at all."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from flows import profiles
from flows.profiles import compose
from pipelines import params
from pipelines.errors import LongtailError
from pipelines.sources import download as downloads
from pipelines.sources.fetch import DATASETS, DOWNLOADS, fetch

DATA = bytes(range(256)) * 9000  # 2.3 MB: more than one block
KEPT = 6 * downloads.BLOCK
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
        self.barrier: threading.Event | None = None

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
            return self.begin(429, 0, **{"Retry-After": "1"})
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
            if server.barrier:
                server.barrier.wait(0.3)
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
    monkeypatch.setattr(downloads, "BACKOFF", 0.0)
    return tmp_path


def settings(files: dict[str, list[str]], source: str = "files", root: str | None = "root") -> params.Fetch:
    return params.Fetch(source=source, root=root, files=files, contact="someone@example.org")


def run(chosen: params.Fetch) -> dict[str, float]:
    return fetch(Path("data/raw"), 0, chosen, world=None)


def from_web(server: Server, *names: str) -> params.Fetch:
    return settings({"wikipedia": [f"{server.address}/{name}" for name in names or (DUMP,)]}, "wikimedia", None)


def in_root(name: str, data: bytes = b"data") -> Path:
    path = Path("root") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# Local files


def test_globs_are_copied_by_data_set_and_described() -> None:
    in_root("somewhere/a.jsonl", b"1")
    in_root("somewhere/b.jsonl", b"22")
    in_root("mmlu/dev/x_dev.csv", b"333")
    assert run(settings({"nq": ["somewhere/*.jsonl"], "mmlu/dev": ["mmlu/dev/*.csv"]})) == {"files": 3, "bytes": 6}
    raw = Path("data/raw")
    assert (raw / "nq/b.jsonl").read_bytes() == b"22"
    assert (raw / "mmlu/dev/x_dev.csv").is_file()
    assert all((raw / name).is_dir() and any((raw / name).iterdir()) for name in DATASETS)  # or DVC's cache loses them
    manifest = json.loads((raw / "manifest.json").read_text())
    assert manifest[2] == {
        "path": "nq/b.jsonl",
        "dataset": "nq",
        "source": "somewhere/b.jsonl",
        "licence": DATASETS["nq"].licence,
        "bytes": 2,
        "sha256": hashlib.sha256(b"22").hexdigest(),
    }


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"nq": ["good.jsonl", "none/*.jsonl"]}, r"root/none/\*\.jsonl: no such file"),
        ({"nq": ["good.jsonl"], "films": ["good.jsonl"]}, "fetch.files has films, expected some of wikidata"),
        ({"nq": ["../outside.jsonl"]}, "expected a glob below fetch.root"),
        ({"nq": ["/etc/hosts"]}, "expected a glob below fetch.root"),
        ({"nq": ["link.jsonl"]}, "link to outside"),
        ({"nq": ["good.jsonl", "empty.jsonl"]}, "empty.jsonl: empty"),
        ({"nq": ["good.jsonl", "page.jsonl"]}, "page.jsonl: an HTML page"),
        ({"nq": ["good.jsonl", "other/good.jsonl"]}, "other/good.jsonl: would be data/raw/nq/good.jsonl as good"),
        ({"nq": ["http://127.0.0.1/x"]}, "addresses need fetch.source: wikimedia"),
        ({}, "fetch.files is empty"),
    ],
)
def test_what_cannot_be_fetched_is_named_before_anything_is_written(files: dict, message: str) -> None:
    for name, data in {"good": b"1", "other/good": b"2", "empty": b"", "page": b"<!DOCTYPE html>"}.items():
        in_root(f"{name}.jsonl", data)
    Path("outside.jsonl").write_text("secret")
    os.symlink("../outside.jsonl", "root/link.jsonl")
    with pytest.raises(LongtailError, match=message):
        run(settings(files))
    assert not Path("data").exists()


@pytest.mark.parametrize(("root", "message"), [("nowhere", "nowhere: no such folder"), (None, "fetch.root is null")])
def test_a_missing_root_is_named(root: str | None, message: str) -> None:
    with pytest.raises(LongtailError, match=message):
        run(settings({"nq": ["*.jsonl"]}, root=root))


def test_a_failed_fetch_leaves_the_last_one_as_it_was() -> None:
    in_root("a.jsonl", b"1")
    run(settings({"nq": ["a.jsonl"]}))
    before = Path("data/raw/manifest.json").read_bytes()
    with pytest.raises(LongtailError):
        run(settings({"nq": ["a.jsonl"], "pile": ["none"]}))
    assert Path("data/raw/manifest.json").read_bytes() == before


def test_the_sample_world_repeats_to_the_byte(root: Path) -> None:
    values = yaml.safe_load(profiles.compose("sample", root))["world"]
    world = params.World(**{**values, "entities": 60, "lm_documents": 200, "questions": 20})
    nothing = params.Fetch(source="world", root=None, files={}, contact=None)
    metrics = [fetch(Path(out), seed, nothing, world) for out, seed in (("one", 1), ("again", 1), ("two", 2))]
    one, again, two = (Path(out, "manifest.json").read_text() for out in ("one", "again", "two"))
    assert one == again
    assert one.replace("seed 1", "seed 2") != two
    assert metrics[0] == metrics[1]
    entries = json.loads(one)
    assert {"wikidata", "pageviews", "wikipedia", "pile", "c4", "mmlu"} <= {entry["dataset"] for entry in entries}
    assert {entry["source"] for entry in entries} == {"generated: sample world, seed 1"}
    assert all(hashlib.sha256(Path("one", e["path"]).read_bytes()).hexdigest() == e["sha256"] for e in entries)


def test_the_paper_profile_asks_for_what_it_cannot_know_before_any_request(root: Path) -> None:
    chosen = params.parse(yaml.safe_load(compose("paper", root))).fetch
    with pytest.raises(LongtailError, match=r"sources: no such folder .*fetch\.root"):
        run(chosen)
    only = {name: [one for one in entries if one.startswith("https://")] for name, entries in chosen.files.items()}
    assert {name for name, entries in only.items() if entries} == {"wikidata", "pageviews", "wikipedia"}
    with pytest.raises(LongtailError, match=r"fetch\.contact is null"):
        run(chosen.model_copy(update={"files": only}))


# Downloads


def test_a_download_is_announced_and_says_who_asks(server: Server, capsys: pytest.CaptureFixture) -> None:
    run(from_web(server))
    assert Path("data/raw/wikipedia", DUMP).read_bytes() == DATA
    assert "1 files to download, 2.30 MB" in capsys.readouterr().out
    assert server.agents == {"longtail/0.1 (someone@example.org)"}
    assert json.loads(Path("data/raw/manifest.json").read_text())[0]["source"] == f"{server.address}/{DUMP}"
    assert not DOWNLOADS.exists()


def test_globs_and_addresses_go_together(server: Server) -> None:
    in_root("a.jsonl", b"1")
    both = {"nq": ["a.jsonl"], "wikipedia": [f"{server.address}/{DUMP}"]}
    assert run(settings(both, "wikimedia"))["files"] == 2


def test_a_contact_is_required(server: Server) -> None:
    with pytest.raises(LongtailError, match=r"fetch\.contact is null"):
        run(from_web(server).model_copy(update={"contact": None}))
    assert not server.requests


def test_a_cut_connection_goes_on_where_it_stopped(server: Server) -> None:
    server.cuts = [20 * downloads.BLOCK + 5, 3 * downloads.BLOCK]
    run(from_web(server))
    assert Path("data/raw/wikipedia", DUMP).read_bytes() == DATA
    ranges = [r[2] for r in server.requests if r[:2] == ("GET", f"/{DUMP}")]
    assert ranges == [None, f"bytes={20 * downloads.BLOCK}-", f"bytes={23 * downloads.BLOCK}-"]


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
    server.barrier = threading.Event()  # never set: every answer waits, so that they overlap
    run(from_web(server, *(f"{i}.bz2" for i in range(7))))
    assert server.most == 3


def test_a_server_that_is_not_there_is_named() -> None:
    gone = settings({"c4": ["http://127.0.0.1:9/x.gz"]}, "wikimedia", None)
    with pytest.raises(LongtailError, match=r"http://127\.0\.0\.1:9/x\.gz: no connection"):
        run(gone)
