"""The explorer's server: this machine's pages for this machine's users, whatever a page
elsewhere tries.
"""

import html
import os
import re
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace
from urllib.parse import parse_qs, urlencode, urlsplit

import hostile
import psutil
import pytest
import requests
from asked_run import QUESTIONS
from waiting import PATIENCE, until

from flows import explorer
from pipelines.adaptive import ask
from pipelines.errors import LongtailError
from pipelines.explorer.run import OPENED, Run
from pipelines.lm.language_model import Generation
from pipelines.lm.local import LocalModel

PATHS = ("/", "/questions", "/question?id=q0007", "/ask", "/report/", "/style.css")


@pytest.fixture(scope="module")
def server(answered, tmp_path_factory):
    """The server of a run with a report."""
    run = Run(
        shutil.copytree(answered.data, tmp_path_factory.mktemp("served") / "data"), answered.params
    )
    (run.data / "report").mkdir()
    (run.data / "report/index.html").write_text("the report")
    with explorer.serving(open_run=lambda: run) as address:
        yield address


@pytest.fixture
def asking(at_work):
    """A server of a project that can be asked."""
    with explorer.serving(open_run=lambda: at_work) as address:
        yield address


def token(address):
    return re.search(r'name="token" value="([^"]+)"', requests.get(f"{address}/ask").text)[1]


def post(address, headers=None, **fields):
    return requests.post(f"{address}/ask", data=fields, headers=headers, allow_redirects=False)


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
    if path == "/report/":
        assert policy["sandbox"] == "allow-scripts allow-downloads allow-popups", (
            "no origin: it reaches no form here"
        )
    else:
        assert "script-src" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_csv_file_of_a_list_has_its_rows(server):
    answer = requests.get(f"{server}/questions.csv?relation=P57&words=what")
    total = re.search(
        r"CSV of all (\d+)", requests.get(f"{server}/questions?relation=P57&words=what").text
    )[1]
    assert len(answer.text.splitlines()) == int(total) + 1 > 51
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="questions-popqa.csv"'
    assert requests.get(f"{server}/questions.csv?set=nq").status_code == 404


def test_what_is_not_there_is_one_line_that_says_so(server):
    for path, said in (
        (
            "/questions?set=nq",
            "set: there is no &#39;nq&#39;, expected one of: popqa, entityquestions",
        ),
        ("/question?id=q9", "id: popqa has no question &#39;q9&#39;"),
        ("/texts", "language_modelling: no scored texts; `longtail run` makes it"),
        ("/nowhere", "/nowhere: Not Found"),
        ("/report/../../params.yaml", "Not Found"),
        (
            "/report/%2e%2e/metrics/adaptive.json",
            "data/report/../metrics/adaptive.json: no such file",
        ),
    ):
        answer = requests.get(server + path)
        assert answer.status_code == 404
        (message,) = re.findall(r'<p class="missing" role="alert">(.*?)</p>', answer.text)
        assert said in message
    assert "There is no page 99." in requests.get(f"{server}/questions?page=99").text


def test_a_run_that_made_nothing_yet_says_what_makes_it_and_a_port_that_is_taken_is_refused(
    server, answered, tmp_path
):
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
            ("ask", "`longtail search WORDS` finds passages"),
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


def test_hostile_texts_are_words_on_every_page_and_every_link_leads_on(spoilt):
    """The questions of all labels are in test_pages.py."""
    pages = [f"/question?id=q{i:04d}&order=id" for i in range(0, len(hostile.LABELS), 6)]
    asked = [{"order": "id", "words": one} for one in hostile.LABELS[::9]]
    pages += [f"/questions?{urlencode(one, errors='replace')}" for one in asked]
    pages += ["/questions?order=id", f"/question?{urlencode({'id': hostile.LABELS[0]})}"]
    with explorer.serving(open_run=lambda: spoilt) as address:
        for path in pages:
            answer = requests.get(address + path)
            assert answer.status_code in (200, 404), path
            assert not re.search(hostile.STEERING, words_of(answer.text)), path


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


def test_an_index_that_is_made_anew_is_opened_anew(at_work):
    def opened(method):
        return OPENED.source(method, at_work.params, at_work.data)

    first = opened("bm25")
    assert opened("bm25") is first
    os.utime(at_work.data / "index/bm25/wikipedia/meta.json")
    assert opened("bm25") is not first
    assert opened("closed_book") is None


def test_a_form_from_elsewhere_asks_nothing(asking, monkeypatch):
    asked = []
    monkeypatch.setattr(ask, "ask", lambda *args, **more: asked.append(args))
    own = token(asking)
    question = {"question": QUESTIONS[0][4], "lm": "tiny", "method": "bm25"}
    assert post(asking, **question).status_code == 403
    for other in ("x" * len(own), "é"):
        assert post(asking, **question, token=other).status_code == 403
    for origin in ("http://evil.invalid", "null", asking.replace("http", "https")):
        assert post(asking, {"Origin": origin}, **question, token=own).status_code == 403
    assert post(asking, **{**question, "question": "x" * 30_000}, token=own).status_code == 413
    assert requests.get(f"{asking}/ask?{urlencode(question)}").status_code == 200, (
        "looking at the form asks nothing"
    )
    assert asked == []
    assert post(asking, {"Origin": asking}, **question, token=own).status_code == 303


def test_a_question_of_ones_own_is_answered_as_the_command_answers_it_or_says_why_not(
    asking, at_work
):
    def once_answered(**fields) -> str:
        """The page of a question once it is answered."""
        page = (
            asking
            + post(asking, **fields, lm="tiny", method="bm25", token=token(asking)).headers[
                "location"
            ]
        )
        return until(lambda: (shown := requests.get(page).text) * ("http-equiv" not in shown))

    question = "who was the director of old reel?"
    known = ask.ask(question, "tiny", "bm25", at_work.params, data=at_work.data)
    words = " ".join(words_of(once_answered(question=question)).split())
    assert known.decision.retrieve
    for said in (
        f"Retrieve. {known.decision.why}",
        "Rule: BM25 of tiny; BM25 answers.",
        known.passage.title,
        known.answer.split()[0],
    ):
        assert said in words
    shown = once_answered(question="Who was the director of Old Reel?", subject="Q777")
    assert '<p class="missing" role="alert">--subject Q777: no such entity' in shown
    assert "the question is empty, expected some words" in once_answered(question=" ")
    shown = once_answered(question="How are you?")
    assert (
        "The question follows no template of this run, so bm25 answers without a threshold."
        in shown
    )
    assert "BM25&#39;s score" in shown, "what the passage's number is"
    form = requests.get(f"{asking}/ask").text
    examples = [html.unescape(one) for one in re.findall(r'<a href="(/ask\?question=[^"]+)"', form)]
    fields = [parse_qs(urlsplit(one).query) for one in examples]
    known = [(QUESTIONS[i][4], f"Q{QUESTIONS[i][2]}") for i in (1, 5)]
    assert [(one["question"][0], one["subject"][0]) for one in fields] == known, (
        "the subject, whatever its namesakes"
    )
    assert f'value="{html.escape(QUESTIONS[1][4])}"' in requests.get(asking + examples[0]).text


def test_an_answer_without_a_word_is_called_that(asking, monkeypatch):
    monkeypatch.setattr(LocalModel, "generate", lambda *_: [Generation(" .", -1.0, 9)])
    asked = post(asking, question="Who?", lm="tiny", method="bm25", token=token(asking)).headers[
        "location"
    ]
    shown = until(
        lambda: (shown := requests.get(asking + asked).text) * ("http-equiv" not in shown)
    )
    assert '<p class="missing">The answer has no word, so nothing of it is attributed' in shown
