"""A download arrives whole, as the server announced it, or is a clear error; a cut one goes on where it stopped."""

import hashlib
from pathlib import Path

import pytest
from fetching import RAW, manifest, run, settings
from http_faults import Fault
from wikimedia_server import Wikimedia

from pipelines import params, web
from pipelines.errors import LongtailError
from pipelines.sources.fetch import DOWNLOADS

DATA = bytes(range(256)) * 9000  # 2.3 MB: more than one block
KEPT = 6 * web.BLOCK
NAME = "enwiki-20181220-pages-articles.xml.bz2"
SUMS = "/enwiki-20181220-sha1sums.txt"


@pytest.fixture
def server(wikimedia: Wikimedia, workplace: None) -> Wikimedia:
    """A server with one file, whose faults hit the requests for that file."""
    wikimedia.pages[f"/{NAME}"], wikimedia.version, wikimedia.at = DATA, '"one"', NAME
    return wikimedia


def chosen(server: Wikimedia, **more: list[str]) -> params.Fetch:
    return settings({"wikipedia": [f"{server.address}/{NAME}"]} | more)


def cut(server: Wikimedia) -> None:
    """A fetch whose download is cut for good."""
    server.faults = [None, Fault(sent=KEPT), *[Fault(sent=0)] * 5]  # the first request asks for the size
    with pytest.raises(LongtailError, match=rf"{NAME}: cut at {KEPT} of {len(DATA)} bytes.*run again to go on"):
        run(chosen(server))
    assert not RAW.exists()


def ranges(server: Wikimedia) -> list[str | None]:
    asked = zip(server.requests, server.ranges, strict=True)
    return [begin for (path, _), (method, begin) in asked if (method, path) == ("GET", f"/{NAME}")]


def test_a_download_is_announced_and_says_who_asks(server: Wikimedia, capsys: pytest.CaptureFixture) -> None:
    Path("root").mkdir()
    Path("root/a.jsonl").write_bytes(b"1")  # globs and addresses go together
    assert run(chosen(server, nq=["a.jsonl"]))["files"] == 2
    assert (RAW / "wikipedia" / NAME).read_bytes() == DATA
    assert "1 files to download, 2.30 MB" in capsys.readouterr().out
    assert server.agents == {"longtail/0.1 (someone@example.org)"}
    assert manifest()[f"wikipedia/{NAME}"]["source"] == f"{server.address}/{NAME}"


def test_a_cut_connection_goes_on_where_it_stopped_and_not_behind_an_error_page(server: Wikimedia) -> None:
    first, then = 20 * web.BLOCK + 5, 23 * web.BLOCK + 5
    page = Fault(206, b"<html>Busy</html>", {"Content-Range": f"bytes {first}-{len(DATA) - 1}/{len(DATA)}"})
    server.faults = [None, Fault(sent=first), page, Fault(sent=3 * web.BLOCK)]
    run(chosen(server))
    assert (RAW / "wikipedia" / NAME).read_bytes() == DATA
    assert ranges(server) == [None, f"bytes={first}-", f"bytes={first}-", f"bytes={then}-"]


@pytest.mark.parametrize("changed", [False, True])
def test_after_a_download_cut_for_good_the_next_run_goes_on_unless_the_file_changed(server, changed) -> None:
    cut(server)
    if changed:
        server.version, server.pages[f"/{NAME}"] = '"two"', DATA[::-1]
    run(chosen(server))
    assert (RAW / "wikipedia" / NAME).read_bytes() == server.pages[f"/{NAME}"]
    assert ranges(server)[-1] == (None if changed else f"bytes={KEPT}-")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({SUMS: f"{'0' * 40}  {NAME}\n".encode()}, f"sha1 is {hashlib.sha1(DATA).hexdigest()}, .* list says 0000"),
        ({f"/{NAME}.md5": b"1" * 32}, f"its md5 is {hashlib.md5(DATA).hexdigest()}"),
    ],
)
def test_a_download_of_another_checksum_is_an_error(server: Wikimedia, files: dict, message: str) -> None:
    server.pages |= files
    with pytest.raises(LongtailError, match=message):
        run(chosen(server))
    assert not RAW.exists()
    assert not list(DOWNLOADS.glob("*.bz2*part"))


def test_the_servers_checksum_is_compared(server: Wikimedia) -> None:
    other = f"{'0' * 40}  enwiki-20181220-other.bz2\n{hashlib.sha1(DATA).hexdigest()}  {NAME}\n"
    server.pages[SUMS] = other.encode()
    run(chosen(server))
    assert (RAW / "wikipedia" / NAME).is_file()
