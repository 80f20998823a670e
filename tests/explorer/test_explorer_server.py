"""The explorer's server: this machine's pages for this machine's users, whatever a page
elsewhere tries.
"""

import html
import re
import shutil
from types import SimpleNamespace
from urllib.parse import urlencode

import hostile
import psutil
import pytest
import requests

from flows import explorer
from pipelines.errors import LongtailError
from pipelines.explorer.run import SESSION, Run

FILES = ("/report/", "/docs/results.md")
PATHS = ("/", "/questions", "/question?id=q0007", "/style.css", *FILES)


@pytest.fixture(scope="module")
def server(answered, tmp_path_factory):
    """The server of a run with a report, which links to a page of docs/."""
    run = Run(
        shutil.copytree(answered.data, tmp_path_factory.mktemp("served") / "data"), answered.params
    )
    (run.data / "report").mkdir()
    (run.data / "report/index.html").write_text("the report")
    (run.data.parent / "docs").mkdir()
    (run.data.parent / "docs/results.md").write_text("# Results")
    with explorer.serving(open_run=lambda: run) as address:
        yield address


def test_only_a_name_of_this_machine_is_answered(server):
    """A page elsewhere whose name leads to this machine would else read what is here."""
    port = server.rpartition(":")[2]
    for path in PATHS:
        answer = requests.get(server + path, headers={"Host": f"evil.invalid:{port}"})
        assert (answer.status_code, "PopQA" in answer.text) == (400, False)
    hosts = dict.fromkeys(("evil.invalid", "127.0.0.1.evil.invalid", "10.0.0.1", ""), 400)
    for host, code in (hosts | dict.fromkeys((f"127.0.0.1:{port}", "localhost:9999"), 200)).items():
        assert requests.get(server, headers={"Host": host}).status_code == code
    listening = [
        c
        for c in psutil.Process().net_connections()
        if c.status == "LISTEN" and c.laddr.port == int(port)
    ]
    assert [c.laddr.ip for c in listening] == ["127.0.0.1"]


@pytest.mark.parametrize("path", PATHS)
def test_no_page_may_bring_a_script_or_anything_from_elsewhere(server, path):
    answer = requests.get(server + path)
    assert answer.status_code == 200
    headers = answer.headers
    policy = dict(
        part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert "http" not in headers["Content-Security-Policy"]
    if path in FILES:
        assert policy["sandbox"] == "allow-scripts allow-downloads allow-popups", (
            "no origin: it reaches no form here"
        )
    else:
        assert "script-src" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_what_is_not_there_is_one_line_that_says_so(server):
    for path, said in {
        "/questions?set=nq": "set: there is no &#39;nq&#39;, expected one of: popqa, entityquestions",
        "/question?id=q9": "id: popqa has no question &#39;q9&#39;",
        "/texts": "language_modelling: no scored texts; `longtail run` makes it",
        "/questions?method=dance": "method: there is no &#39;dance&#39;",
        "/question?id=q0007&prompt=tiny/dance": "prompt: no answer by tiny, dance",
        "/nowhere": "/nowhere: Not Found",
        "/docs/none.md": "docs/none.md: no such file",
        "/report/../../params.yaml": "Not Found",
        "/report/%2e%2e/metrics/adaptive.json": "data/report/../metrics/adaptive.json: no such file",
    }.items():
        answer = requests.get(server + path)
        assert answer.status_code == 404
        (message,) = re.findall(r'<p class="missing" role="alert">(.*?)</p>', answer.text)
        assert said in message


def test_a_run_that_made_nothing_says_what_makes_it(server, answered, tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "PORT", 0)  # no other test's server comes to the port that ends
    taken = int(server.rpartition(":")[2])
    with pytest.raises(LongtailError, match=f"port {taken} is taken"), explorer.serving(taken):
        pass
    with explorer.serving(open_run=lambda: Run(tmp_path, answered.params)) as other:
        assert "no answers yet; `longtail run` makes it" in requests.get(f"{other}/").text
        assert (
            "predictions: no answers; `longtail run` makes it, or"
            in requests.get(f"{other}/questions").text
        )
    with pytest.raises(requests.ConnectionError):
        requests.get(other)
    only_indexed = answered.params.parts.model_copy(update={"answered": [], "scored": []})
    params = SimpleNamespace(**vars(answered.params) | {"parts": only_indexed, "lms": []})
    with explorer.serving(open_run=lambda: Run(tmp_path, params)) as other:
        for page, said in (
            ("", "this run answers no questions"),
            ("questions", "predictions: no answers; this run asks none"),
            ("texts", "no scored texts; this run scores none"),
        ):
            assert said in requests.get(f"{other}/{page}").text


def words_of(page: str) -> str:
    """The words of a page, which may have nothing that runs, and nothing and no link from
    elsewhere.
    """
    tags = re.findall(r"<[^>]+>", page)
    runs = r"<(script|iframe|img|base|object|embed|svg)\b|\s(on\w+|src|srcset|style|formaction)="
    assert [tag for tag in tags if re.search(runs, tag)] == []
    links = re.findall(r'\s(?:href|action)="([^"]*)"', " ".join(tags))
    assert [link for link in links if not link.startswith(("/", "#", "data:,"))] == []
    return html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL))


def test_hostile_texts_are_words_on_every_page(spoilt):
    """The questions of all labels are in test_pages.py."""
    pages = [f"/question?id=q{i:04d}&order=id" for i in range(0, len(hostile.LABELS), 18)]
    asked = [{"order": "id", "words": label} for label in hostile.LABELS[::18]]
    pages += [f"/questions?{urlencode(one, errors='replace')}" for one in asked]
    pages += ["/questions?order=id", f"/question?{urlencode({'id': hostile.LABELS[0]})}"]
    with explorer.serving(open_run=lambda: spoilt) as address:
        for path in pages:
            answer = requests.get(address + path)
            assert answer.status_code in (200, 404), path
            assert not re.search(hostile.STEERING, words_of(answer.text)), path


def test_an_index_that_a_run_made_anew_is_opened_anew(at_work, tmp_path, monkeypatch):
    lock = tmp_path / "dvc.lock"
    monkeypatch.setattr("pipelines.answering.session.LOCK", lock)
    lock.write_text("first")

    def opened(method):
        return SESSION.source(method, at_work.params, at_work.data)

    first = opened("bm25")
    assert opened("bm25") is first
    lock.write_text("second")
    assert opened("bm25") is not first
    assert opened("closed_book") is None
