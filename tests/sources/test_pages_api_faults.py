"""What goes wrong while pages come from the API: asked again, refused in one line, or gone on with after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from asked_pages import DUMPS, ask_about, pages, run, settings
from http_faults import Fault, lagged
from wikimedia_server import Wikimedia, Wikipedia

from pipelines.errors import LongtailError
from pipelines.questions.published import COLUMNS

pytestmark = pytest.mark.usefixtures("workplace")
CUT = b'{"batchcomplete":true,"query":{"pages":[{"pageid":1000,"ns":0,"title":"Old'


@pytest.mark.parametrize(
    "fault",
    [
        lagged(),
        Fault(200, b"<!DOCTYPE html><html><body>Error</body></html>", {"Content-Type": "text/html"}),
        Fault(503, b"<html>upstream connect error</html>", {"Content-Type": "text/html", "Retry-After": "0"}),
        Fault(200, CUT),
        Fault(200, b'{"batchcomplete": true}'),
        Fault(200, b'{"query": {"pages": [{"pageid": 1000, "ns": 0, "title": "Here"}], "export": "<mediawiki>"}}'),
        Fault(sent=300),
        Fault(429, b"Too many requests", {"Retry-After": "0"}),
    ],
)
def test_a_bad_answer_is_asked_for_again(wikimedia: Wikimedia, fault: Fault) -> None:
    wikimedia.pages["/api"] = Wikipedia({"Here": "a"}).api
    ask_about(["Here"])
    wikimedia.faults = [fault, fault]
    run(settings(wikimedia))
    assert pages() == {"Here": "a"}
    assert len(wikimedia.requests) == 3


def test_a_lagging_server_is_left_alone_as_long_as_it_asks(
    wikimedia: Wikimedia, monkeypatch: pytest.MonkeyPatch
) -> None:
    wikimedia.pages["/api"] = Wikipedia({"Here": "a"}).api
    ask_about(["Here"])
    wikimedia.faults = [lagged("1")]
    started = time.monotonic()
    run(settings(wikimedia))
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(404, b"no"), r"/api: the server answers 404, expected MediaWiki's api\.php \(fetch\.pages\.api\)"),
        (
            Fault(200, b'{"error": {"code": "badvalue", "info": "Unrecognized"}}'),
            r"/api\?action=.*badvalue: Unrecognized",
        ),
        (Fault(403, b"Please set a user-agent"), "403 Forbidden: Please set a user-agent"),
    ],
)
def test_a_refusal_ends_it(wikimedia: Wikimedia, fault: Fault, message: str) -> None:
    if fault.status != 404:
        wikimedia.pages["/api"] = Wikipedia({"Here": "a"}).api
    ask_about(["Here"])
    wikimedia.faults = [fault]
    with pytest.raises(LongtailError, match=message):
        run(settings(wikimedia))
    assert not Path("data").exists()


@pytest.mark.parametrize(
    ("change", "contact", "message"),
    [
        ({"source": "files"}, "x@y", "fetch.pages asks for .*expected fetch.source: wikimedia"),
        ({"files": {"nq": ["popQA.tsv"]}}, "x@y", "popQA.tsv under fetch.files.popqa"),
        ({"files": {"popqa": ["popQA.tsv"], "wikipedia": ["x.xml"]}}, "x@y", "leave the dump out"),
        ({"files": {"popqa": ["other.tsv"]}}, "x@y", r"fetch\.files\.popqa has no popQA\.tsv"),
        ({}, None, "contact is null"),
    ],
)
def test_what_cannot_go_together_is_said_before_anything_is_asked(
    wikimedia: Wikimedia, change: dict, contact: str | None, message: str
) -> None:
    ask_about(["Here"])
    Path("root/other.tsv").write_text("x")
    with pytest.raises(LongtailError, match=message):
        run(settings(wikimedia, **change), contact=contact)
    assert not wikimedia.requests


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id\tsubj\n1\tx\n", "no column s_uri or s_wiki_title"),
        ("\t".join(COLUMNS) + "\n", "no question in it"),
        ("\t".join(COLUMNS) + "\n1\tx\n", "row 2 is no row of 17 columns"),
    ],
)
def test_a_file_that_is_not_popqa_is_named(wikimedia: Wikimedia, text: str, message: str) -> None:
    Path("root").mkdir()
    Path("root/popQA.tsv").write_text(text)
    with pytest.raises(LongtailError, match=message):
        run(settings(wikimedia))
    assert not wikimedia.requests


SCRIPT = """
import json, sys
from pathlib import Path
from flows.profiles import compose
from pipelines import params, params_file
from pipelines.sources.fetch import fetch
chosen, wikidata = (json.loads(text) for text in sys.argv[1:])
fetch(Path("data/raw"), 0, "someone@example.org", params.Fetch(**chosen), params.Wikidata(**wikidata), None, "2021-10")
"""


def test_a_killed_fetch_goes_on_and_asks_nothing_twice(wikimedia: Wikimedia, root: Path) -> None:
    texts = {f"Page {n:03}": f"text {n}" for n in range(160)}
    wikimedia.pages["/api"] = Wikipedia(texts).api
    ask_about(list(texts)[::2])
    chosen = settings(wikimedia, namesakes=True, others=50)
    command = [sys.executable, "-c", SCRIPT, chosen.model_dump_json(), DUMPS.model_dump_json()]
    environment = os.environ | {"PYTHONPATH": str(root)}
    wikimedia.stalls_after = 39
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(wikimedia.requests) < 40:
            assert process.poll() is None
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    assert not Path("data").exists()
    wikimedia.stalls_after = None
    killed_at = len(wikimedia.requests)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    asked = [tuple(sorted(params.items())) for params in wikimedia.asked("/api")]
    assert killed_at < len(asked) <= len({*asked}) + 1  # but for the one under way when it was killed
    manifest = Path("data/raw/manifest.json").read_bytes()
    run(chosen)
    assert Path("data/raw/manifest.json").read_bytes() == manifest
    assert len(pages()) == 130
