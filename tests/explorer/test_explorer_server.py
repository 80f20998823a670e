"""The explorer's server: this machine's pages for this machine's users, whatever a page elsewhere tries."""

import os
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import urlencode

import hostile
import pytest
import requests
from asked_run import QUESTIONS
from waiting import PATIENCE, until

from flows import explorer, terminal
from pipelines.adaptive import ask
from pipelines.errors import LongtailError
from pipelines.explorer.looked_at import Run

WRITTEN = ("/report/", "/history/")
PATHS = ("/", "/questions", "/question?id=q0007", "/ask", *WRITTEN, "/style.css")


@pytest.fixture(scope="module")
def server(answered):
    """The server of a run with a report and a history, for the tests here alone."""
    folders = answered.data / "report", answered.data.parent / "history"
    for folder in folders:
        folder.mkdir()
        (folder / "index.html").write_text(f"the {folder.name}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal, "HISTORY", folder / "index.html")
        with explorer.serving(open_run=lambda: answered) as address:
            yield address
    for folder in folders:
        shutil.rmtree(folder)


@pytest.fixture
def asking(at_work):
    """A server of a project that can be asked."""
    with explorer.serving(open_run=lambda: at_work) as address:
        yield address


def token(address):
    return re.search(r'name="token" value="([^"]+)"', requests.get(f"{address}/ask").text)[1]


def post(address, headers=None, **fields):
    return requests.post(f"{address}/ask", data=fields, headers=headers, allow_redirects=False)


@pytest.mark.parametrize("path", PATHS)
def test_only_a_name_of_this_machine_is_answered(server, path):
    """A page elsewhere whose name leads to this machine would else read what is here."""
    port = server.rpartition(":")[2]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost:9999"):
        assert requests.get(server + path, headers={"Host": host}).status_code == 200
    for host in ("evil.invalid", f"evil.invalid:{port}", "127.0.0.1.evil.invalid", "10.0.0.1", ""):
        answer = requests.get(server + path, headers={"Host": host})
        assert answer.status_code == 400
        assert "PopQA" not in answer.text


def test_the_first_page_leads_to_the_history_if_there_is_one(server, answered, monkeypatch):
    assert '<a href="/history/">' in requests.get(server).text
    assert requests.get(f"{server}/history/").text == "the history"
    monkeypatch.setattr(terminal, "HISTORY", answered.data / "nothing/index.html")
    assert "/history/" not in requests.get(server).text
    assert requests.get(f"{server}/history/").status_code == 404


def test_it_listens_on_the_loopback_address_alone(server):
    import psutil

    port = int(server.rpartition(":")[2])
    listening = [
        c.laddr.ip for c in psutil.Process().net_connections() if c.status == "LISTEN" and c.laddr.port == port
    ]
    assert listening == ["127.0.0.1"]


@pytest.mark.parametrize("path", PATHS)
def test_no_page_may_bring_a_script_or_anything_from_elsewhere(server, path):
    headers = requests.get(server + path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert "http" not in headers["Content-Security-Policy"]
    if path in WRITTEN:
        assert policy["sandbox"] == "allow-scripts allow-downloads allow-popups", "no origin: it reaches no form here"
    else:
        assert "script-src" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_token_by_token_page_may_run_its_own_script_alone(scored):
    with explorer.serving(open_run=lambda: scored) as address:
        answer = requests.get(f"{address}/attribution?corpus=pile&retriever=lsr&id=q0")
        assert answer.status_code == 200
        policy = answer.headers["Content-Security-Policy"]
        assert re.search(r"script-src 'sha256-[\w+/=]{44}'; ", policy)
        assert "unsafe-inline" not in policy.split("script-src")[1]
        assert requests.get(f"{address}/attribution?corpus=x").status_code == 404


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/questions?set=nq", "set: there is no &#39;nq&#39;, expected one of: popqa, entityquestions"),
        ("/question?id=q9", "id: popqa has no question &#39;q9&#39;"),
        ("/texts", "language_modelling: no scored texts; `longtail run` makes it"),
        ("/nowhere", "/nowhere: Not Found"),
        ("/report/../../params.yaml", "Not Found"),
        (
            "/history/%2e%2e/data/report/index.html",
            "/../data/report/index.html: no such file; `longtail report --history`",
        ),
        ("/report/%2e%2e/metrics/adaptive.json", "data/report/../metrics/adaptive.json: no such file"),
    ],
)
def test_what_is_not_there_is_one_line_that_says_so(server, path, said):
    answer = requests.get(server + path)
    assert answer.status_code == 404
    (message,) = re.findall(r'<p class="missing" role="alert">(.*?)</p>', answer.text)
    assert said in message


def test_a_run_that_made_nothing_yet_says_what_makes_it(answered, tmp_path):
    with explorer.serving(open_run=lambda: Run(tmp_path, answered.params)) as address:
        assert "no answers yet; `longtail run` makes it" in requests.get(f"{address}/").text
        assert "predictions: no answers" in requests.get(f"{address}/questions").text


def test_a_port_that_was_asked_for_is_refused_if_taken_and_the_usual_one_is_not_insisted_on(server, answered):
    taken = int(server.rpartition(":")[2])
    with pytest.raises(LongtailError, match=f"port {taken} is taken"), explorer.serving(taken):
        pass
    with explorer.serving(open_run=lambda: answered) as other:
        assert other != server
        assert requests.get(other).ok
    with pytest.raises(requests.ConnectionError):
        requests.get(other)


class Texts(HTMLParser):
    """The words of a page, and its elements that could run or fetch something."""

    def __init__(self):
        super().__init__()
        self.words, self.live = [], []

    def handle_starttag(self, tag, attrs):
        names = {"src", "srcset", "style", "action", "formaction"}
        bad = [name for name, value in attrs if name.startswith("on") or (name in names and value not in OWN)]
        links = [value for name, value in attrs if name == "href" and not value.startswith(("/", "#", "data:,"))]
        if tag in ("script", "iframe", "img", "base", "object", "embed", "svg") or bad or links:
            self.live.append((tag, attrs))

    def handle_data(self, data):
        self.words.append(data)


OWN = ("/questions#list", "/texts#list", "/texts", "/ask")


def test_hostile_texts_are_words_on_every_page_and_every_link_leads_on(spoilt):
    with explorer.serving(open_run=lambda: spoilt) as address:
        pages = [f"/question?{urlencode({'id': f'q{i:04d}', 'order': 'id'})}" for i in range(len(hostile.LABELS))]
        for words in hostile.LABELS[::4]:
            pages.append(f"/questions?{urlencode({'order': 'id', 'words': words}, errors='replace')}")
        for path in [*pages, "/questions?order=id", f"/question?{urlencode({'id': hostile.LABELS[0]})}"]:
            answer = requests.get(address + path)
            assert answer.status_code in (200, 404), path
            read = Texts()
            read.feed(answer.text)
            assert read.live == [], path
            assert not re.search(hostile.STEERING, "".join(read.words)), path
            size = len(answer.content)
            assert size < 300_000, path


def test_the_command_says_where_its_pages_open_and_ends_by_an_interrupt(asked, root):
    command = [sys.executable, "-m", "flows.cli", "explore", "--method", "bm25", "--cell", "both"]
    child = subprocess.Popen(
        command,
        cwd=asked.folder,
        env={"PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    name, address = child.stdout.readline().split(maxsplit=1)
    assert (name, child.stdout.readline()) == ("explorer:", "(Ctrl-C ends it)\n")
    assert "cell=both" in address
    assert requests.get(address.strip()).status_code == 200
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=PATIENCE)[0] == "closed\n"
    assert child.returncode == 0
    with pytest.raises(requests.ConnectionError):
        requests.get(address.strip())


def test_after_the_last_page_there_is_a_way_back(server):
    shown = requests.get(f"{server}/questions?page=99").text
    assert "There is no page 99." in shown
    assert "page=16#list" in shown


def test_an_index_that_is_made_anew_is_opened_anew(at_work):
    first = at_work.source("bm25")
    assert at_work.source("bm25") is first
    meta = at_work.data / "index/bm25/wikipedia/meta.json"
    os.utime(meta)
    assert at_work.source("bm25") is not first
    assert at_work.source("closed_book") is None


def test_a_form_from_elsewhere_asks_nothing(asking, monkeypatch):
    asked = []
    monkeypatch.setattr(ask, "ask", lambda *args, **more: asked.append(args))
    own = token(asking)
    question = {"question": QUESTIONS[0][4], "lm": "tiny", "method": "bm25"}
    assert post(asking, **question).status_code == 403
    assert post(asking, **question, token="x" * len(own)).status_code == 403
    assert post(asking, **question, token="é").status_code == 403
    for origin in ("http://evil.invalid", "null", asking.replace("http", "https")):
        assert post(asking, {"Origin": origin}, **question, token=own).status_code == 403
    assert post(asking, **{**question, "question": "x" * 30_000}, token=own).status_code == 413
    assert requests.get(f"{asking}/ask?{urlencode(question)}").status_code == 200, "looking at the form asks nothing"
    assert asked == []
    assert post(asking, {"Origin": asking}, **question, token=own).status_code == 303


def once_answered(address: str) -> str:
    """The page of a question, once it is answered."""
    return until(lambda: (shown := requests.get(address).text) * ("http-equiv" not in shown))


def test_a_question_of_ones_own_is_answered_as_the_command_answers_it(asking, at_work):
    question = "who was the director of old reel?"
    answer = post(asking, question=question, lm="tiny", method="bm25", token=token(asking))
    assert answer.status_code == 303
    page = answer.headers["location"]
    shown = once_answered(asking + page)
    known = ask.ask(question, "tiny", "bm25", at_work.params, data=at_work.data)
    read = Texts()
    read.feed(shown)
    words = " ".join(" ".join(read.words).split())
    assert known.decision.retrieve
    assert f"Retrieve. {known.decision.why}" in words
    assert known.passage.title in words
    assert known.answer.split()[0] in words
    assert f"Asked: {known.question}" in words
    assert requests.get(asking + page).text == shown, "its address can be sent"


def test_what_can_not_be_answered_says_why_on_its_page(asking):
    fields = {"question": "Who was the director of Old Reel?", "lm": "tiny", "method": "bm25", "subject": "Q777"}
    page = post(asking, **fields, token=token(asking)).headers["location"]
    shown = once_answered(asking + page)
    assert '<p class="missing" role="alert">--subject Q777: no such entity' in shown
    assert post(asking, question=" ", token=token(asking)).status_code == 303, "nothing to ask"
