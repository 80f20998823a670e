"""The HTTP language model against a real server on loopback whose model is faked: each character is a token."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import yaml

from flows import profiles
from pipelines import params
from pipelines.errors import LongtailError
from pipelines.lm.http import HttpModel
from pipelines.lm.open import open_lm
from pipelines.lm.protocol import Prompt


def log_prob(text, place):
    """The faked model: what a character costs depends on itself and on the one before."""
    return -((ord(text[place]) * 7 + ord(text[place - 1])) % 50) / 10 - 0.01


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        server = self.server.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append(body)
        server.keys.append(self.headers.get("Authorization"))
        if server.failures:
            status, headers, text = server.failures.pop(0)
            return self._send(status, text.encode(), headers)
        choices = [self._choice(server, body, text, i) for i, text in enumerate(body["prompt"])]
        return self._send(200, json.dumps({"choices": choices[::-1]}).encode(), {})

    def _choice(self, server, body, prompt, index):
        if body.get("echo"):
            values = [None, *(log_prob(prompt, i) for i in range(1, len(prompt)))]
            shown = {"tokens": list(prompt), "token_logprobs": values, "text_offset": list(range(len(prompt)))}
            return {"index": index, "text": prompt, "logprobs": shown if server.scores else None}
        text = f" {len(prompt)} Velm"[: body["max_tokens"]]
        shown = {"tokens": list(text), "token_logprobs": [-0.5] * len(text), "text_offset": []}
        return {"index": index, "text": text, "logprobs": shown}

    def _send(self, status, data, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server():
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.state = SimpleNamespace(requests=[], keys=[], failures=[], scores=True)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    httpd.state.url = f"http://127.0.0.1:{httpd.server_port}/v1"
    yield httpd.state
    httpd.shutdown()
    httpd.server_close()


def open_model(server, folder="/nonexistent", **more):
    return HttpModel(server.url, "fake", folder, **{"max_tokens": 100, "back_off": 0.01, **more})


def test_scores_are_the_servers_own_for_the_continuation_only(server):
    prompts = [Prompt(f"context {i}", "a document\n" if i % 2 else "") for i in range(70)]
    continuations = [f" 東京 é{i}🙂" for i in range(70)]
    scores = open_model(server).score(prompts, continuations)
    for prompt, continuation, log_probs, n_bytes in zip(
        prompts, continuations, scores.log_probs, scores.bytes, strict=True
    ):
        text = prompt.document + prompt.context + continuation
        expected = [log_prob(text, i) for i in range(len(text) - len(continuation), len(text))]
        np.testing.assert_allclose(log_probs, expected, atol=1e-6)
        assert n_bytes.tolist() == [len(c.encode()) for c in continuation]
    assert len(server.requests) == 1 + 3, "one probe, and batches"


def test_generation_keeps_the_order_and_gives_the_mean_log_prob(server):
    found = open_model(server).generate([Prompt("a"), Prompt("abc"), Prompt("b", "doc ")], 4)
    assert [one.text for one in found] == [" 1 V", " 3 V", " 5 V"]
    assert [one.mean_log_prob for one in found] == [-0.5] * 3
    assert server.requests[-1] | {"prompt": 0} == {
        "model": "fake", "prompt": 0, "temperature": 0, "logprobs": 1, "max_tokens": 4, "stop": ["\n"],
    }  # fmt: skip


def test_a_server_without_prompt_log_probs_is_refused_for_scoring_but_generates(server):
    server.scores = False
    lm = open_model(server)
    with pytest.raises(LongtailError, match="can't score; it can still generate"):
        lm.score([Prompt("a")], ["b"])
    assert lm.generate([Prompt("a")], 4)[0].text == " 1 V"
    assert len(server.requests) == 2, "scoring was refused before any request"


def test_a_server_that_refuses_echo_is_one_that_cannot_score(server):
    server.failures = [(400, {}, '{"error": "echo is not supported"}')]
    with pytest.raises(LongtailError, match="can't score"):
        open_model(server).require_scoring()


def test_a_stage_that_scores_learns_so_when_it_opens_the_server(server, root):
    values = yaml.safe_load(profiles.compose("sample", root))["lm"]
    chosen = params.LM(**values | {"source": "http", "url": server.url, "path": "fake", "max_tokens": 100})
    assert open_lm("/nonexistent", chosen, None, scoring=True).name == "fake"
    server.scores = False
    assert open_lm("/nonexistent", chosen, None).name == "fake"
    with pytest.raises(LongtailError, match="can't score"):
        open_lm("/nonexistent", chosen, None, scoring=True)


def test_whole_distributions_are_refused(server):
    with pytest.raises(LongtailError, match="not its whole distribution"):
        open_model(server).next_token([Prompt("a")])


def test_busy_and_broken_answers_are_tried_again(server):
    server.failures = [(503, {}, "busy"), (429, {"Retry-After": "0"}, "slow down"), (500, {}, "oops")]
    assert open_model(server).generate([Prompt("a")], 4)[0].text == " 1 V"
    assert len(server.requests) == 3 + 1 + 1


def test_retry_after_is_waited_for(server, monkeypatch):
    waited = []
    monkeypatch.setattr("time.sleep", waited.append)
    server.failures = [(429, {"Retry-After": "7"}, "slow down")]
    open_model(server)
    assert 7 in waited


def test_a_servers_refusal_is_told_in_its_own_words(server):
    lm = open_model(server)
    server.failures = [(404, {}, '{"error": "no such model"}')]
    with pytest.raises(LongtailError, match=r"HTTP 404: .*no such model"):
        lm.generate([Prompt("a")], 4)


def test_the_key_is_sent_and_asked_for_but_never_shown(server, monkeypatch):
    open_model(server, api_key="s3cret")
    assert server.keys == ["Bearer s3cret"]
    server.failures = [(401, {}, "who are you?")]
    with pytest.raises(LongtailError, match="set LONGTAIL_API_KEY") as refusal:
        open_model(server, api_key="s3cret")
    assert "s3cret" not in str(refusal.value)


def test_a_server_that_is_not_there_or_speaks_html_is_named(server):
    server.failures = [(200, {}, "<html>welcome</html>")]
    with pytest.raises(LongtailError, match="not the answer of a completions server"):
        open_model(server)
    nowhere = SimpleNamespace(url="http://127.0.0.1:9/v1")
    with pytest.raises(LongtailError, match="no answer from the server"):
        open_model(nowhere, back_off=0)


def test_with_the_tokenizer_too_long_a_prompt_loses_the_far_end_of_the_context(server, tmp_path):
    own = tiny_models.tokenizer(bos=False)
    own.save_pretrained(tmp_path)
    lm = open_model(server, tmp_path, max_tokens=40)
    document, context = "The capital of Norland is Velm.\n", " ".join(tiny_models.words(5, 5, at_least=20)) + " Q:"
    found = lm.generate([Prompt(context, document)], 8)[0]
    sent = server.requests[-1]["prompt"][0]
    assert sent.startswith(document)
    assert sent.endswith(context[-40:])
    assert context.endswith(sent[len(document) :])
    assert found.prompt_tokens == 40 - 8 - 1
    assert 28 < len(own(sent, add_special_tokens=False)["input_ids"]) <= 33
