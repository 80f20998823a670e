"""A prompt that a server refuses, where it answers others: no answer, counted and asked again.

Half of a character in an answer is replaced. A server that cuts prompts is refused.
"""

import json

import msgspec
import numpy as np
import pytest
import tiny_models
from completions_server import Failing
from http_faults import Fault
from local_models import open_model

from pipelines.errors import LongtailError, Unreachable
from pipelines.lm.cut_prompts import Counts
from pipelines.lm.language_model import Generation, Prompt, all_answered
from pipelines.lm.server_answers import Choice, with_whole_characters
from pipelines.replug import ensemble

BLOCKED = "Disoso"
PROMPTS = [Prompt(f"Q: {name}? A:") for name in ("Naguri", BLOCKED, "Yoceyo")]


def error(status: int, **fields) -> Fault:
    return Fault(status, json.dumps({"error": fields}).encode())


def choice(message: dict | None, finish_reason: str = "stop", **fields) -> Fault:
    made = {"index": 0, "finish_reason": finish_reason} | fields
    if message is not None:
        made["message"] = {"role": "assistant"} | message
    usage = {"prompt_tokens": 9, "completion_tokens": 0}
    return Fault(body=json.dumps({"choices": [made], "usage": usage}).encode())


FILTER = {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}
REFUSALS = {  # who refuses so -> (its answer, what is said of it)
    "Azure": (error(400, message="The response was filtered", **FILTER), "filtered"),
    "Azure, inside": (choice({"content": None}, "content_filter"), "content_filter"),
    "Azure, midway": (choice({"content": "Par"}, "content_filter"), "content_filter"),
    "OpenAI": (choice({"content": None, "refusal": "I can't help."}), "I can't help"),
    "a gateway, in parts": (choice({"content": [{"type": "refusal", "refusal": "I can't help."}]}), "I can't help"),
    "Gemini": (choice({}, "content_filter: PROHIBITED_CONTENT"), "PROHIBITED_CONTENT"),
    "Gemini, no choices": (Fault(body=b'{"choices": [], "promptFeedback": {"blockReason": "SAFETY"}}'), "blockReason"),
    "Anthropic": (choice({"content": ""}, "", stop_reason="refusal"), "refusal"),
    "OpenRouter": (error(403, code=403, message="Your input was flagged"), "flagged"),
    "OpenRouter, inside": (error(200, code=403, message="requires moderation"), "moderation"),
    "Zhipu": (choice({"content": ""}, "sensitive"), "sensitive"),
    "DashScope": (error(400, code="data_inspection_failed", message="x"), "data_inspection"),
    "DashScope, inside": (error(200, code="data_inspection_failed", message="x"), "inspection"),
    "vLLM, too long": (error(400, message="maximum context length is 2048"), "maximum"),
    "TGI, too long": (Fault(422, b'{"error": "Input validation error"}'), "validation"),
    "vLLM": (error(500, message="Internal Server Error"), "Internal Server Error"),
    "TGI": (Fault(424, b'{"error": "Request failed during generation"}'), "during generation"),
    "a firewall": (Fault(403, b"<html>", {"Content-Type": "text/html"}), "403"),
}  # fmt: skip


def test_an_answer_in_parts_is_their_text():
    """As Mistral's models that reason give it."""
    thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": "The user asks"}]}
    parts = [thoughts, {"type": "text", "text": "nov"}, {"type": "text", "text": "elist"}]
    message = {"role": "assistant", "content": parts}
    answered = json.dumps({"message": message, "finish_reason": "stop"}).encode()
    choice_in_parts = msgspec.json.decode(answered, type=Choice)
    assert choice_in_parts.spoken() == (True, "novelist")


@pytest.mark.parametrize(("fault", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_refused_prompt_has_no_answer_and_is_asked_again(opened, server, capsys, fault, words):
    lm = opened(None, chat=True)
    server.blocked = {BLOCKED: fault}
    first, refused, last = lm.generate(PROMPTS, 5)
    assert (refused.text, refused.mean_log_prob) == ("", -np.inf)
    assert words in refused.unanswered
    assert lm.usage["lm_unanswered"] == 1
    assert (
        f"tiny: no answer to a prompt that ends with 'Q: {BLOCKED}? A:'" in capsys.readouterr().out
    )
    with pytest.raises(LongtailError, match=r"127\.0\.0\.1"):
        all_answered([first, refused])

    server.blocked = {}
    asked = len(server.requests)
    again = opened(None, chat=True).generate(PROMPTS, 5)
    assert (again[0], again[2]) == (first, last)
    assert not again[1].unanswered
    assert len(server.requests) == asked + 1, "only what was refused"


@pytest.mark.parametrize(("status", "raised"), [(400, LongtailError), (500, Unreachable)])
def test_a_server_that_refuses_all_stops_at_once(opened, server, status, raised):
    lm = opened(None, chat=True)
    asked = len(server.requests)
    server.faults = [error(status, message="no such model")] * 100
    with pytest.raises(LongtailError, match=f"answers {status} .*no such model"):
        lm.generate(PROMPTS, 5)
    assert len(server.requests) < asked + 40


def test_a_quota_that_ends_is_no_fault_of_a_prompt(opened, server):
    lm = opened(None, chat=True)
    server.blocked = {BLOCKED: error(429, code="insufficient_quota", message="no credits left")}
    with pytest.raises(Unreachable, match="no credits left"):
        lm.generate(PROMPTS, 5)
    assert lm.usage["lm_unanswered"] == 0


def test_a_refusal_of_the_first_request_stops(opened, server):
    server.blocked = {"one two three": error(400, message="x", **FILTER)}
    with pytest.raises(LongtailError, match="content_filter"):
        opened(None, chat=True)


def test_an_answer_that_was_kept_filtered_is_asked_again(opened, server):
    lm = opened(None, chat=True)
    expected = lm.generate(PROMPTS, 5)
    kept = lm._client._ledger
    for (key,) in kept._db.execute("SELECT key FROM asked").fetchall():
        kept.put({key: b'{"finish_reason": "content_filter", "message": {"content": null}}'})
    assert opened(None, chat=True).generate(PROMPTS, 5) == expected


def test_a_question_whose_vote_lacks_an_answer_has_none():
    votes = [Generation("a", -1.0, 2, 1), Generation("", -np.inf, 0, unanswered="filtered")]
    votes += [Generation("b", -1.0, 2, 1)] * 2
    elected = ensemble.vote(votes, np.log([[0.9, 0.1], [0.5, 0.5]]))
    assert [made.unanswered for made in elected] == ["filtered", ""]
    assert [made.text for made in elected] == ["", "b"]


def test_a_question_whose_mixture_is_refused_has_no_answer(opened, server, tiny):
    prompts = [Prompt(text) for text in tiny_models.words(4, 5, at_most=12)]
    lm = opened(logprobs=20)
    ids = open_model(tiny).tokenizer(prompts[1].context)["input_ids"]
    server.blocked = {json.dumps(ids)[1:-1]: error(500, message="CUDA error")}
    made = lm.generate_mixture(prompts, np.log([[0.5, 0.5]] * 2), 2)
    assert "CUDA error" in made[0].unanswered
    assert not made[1].unanswered


HALVES = {
    rb'{"a": "x\ud83d"}': "x\ufffd",
    rb'{"a": "\uDE00x"}': "\ufffdx",
    rb'{"a": "\ud83d\ud83d\ude00"}': "\ufffd\U0001f600",
    rb'{"a": "\\ud83d \n"}': "\\ud83d \n",
    b'{"a": "x\xf0\x9f"}': "x\ufffd",
}


@pytest.mark.parametrize(("body", "text"), HALVES.items())
def test_u_fffd_stands_for_a_part_of_a_character(body, text):
    assert json.loads(with_whole_characters(body)) == {"a": text}


def test_half_of_a_character_is_replaced_and_counted(opened, server):
    lm = opened(None, chat=True)
    server.blocked = {BLOCKED: choice({"content": "Paris \ud83d"})}
    generations = lm.generate(PROMPTS, 5)
    assert (generations[1].text, lm.usage["lm_mended"]) == ("Paris \ufffd", 1)
    assert lm.generate(PROMPTS, 5)[1].text == "Paris \ufffd", "as it is kept"


LONG = Prompt(" ".join(["word"] * 520))


def test_a_server_that_cuts_prompts_is_refused(opened, server):
    lm = opened(None, chat=True, max_tokens=1000)
    server.blocked = {"word word": usage(300)}
    with pytest.raises(
        LongtailError, match=r"300 tokens .* 520 words, 300 in half .*OLLAMA_CONTEXT"
    ):
        lm.generate([LONG], 5)


def usage(tokens: int, **details) -> Fault:
    message = {"role": "assistant", "content": "Paris"}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    counts = {"prompt_tokens": tokens, "completion_tokens": 1} | details
    return Fault(body=json.dumps({"choices": choices, "usage": counts}).encode())


WHOLE = {  # words of a request -> the count in its answer
    "all": {"word word": usage(700)},
    "none": {"word word": usage(0)},
    "cached ones apart": {"word word": usage(200, prompt_tokens_details={"cached_tokens": 500})},
    "as Anthropic": {"word word": usage(200, cache_read_input_tokens=500)},
    "no details": {"word word": usage(700, prompt_tokens_details=None)},
    # a prompt with another beginning is in no cache
    "new ones alone": {"word word": usage(700), '"content": "word word': usage(200)},
    # half of a prompt has half of its tokens, and twice of it has more
    "words put together": {
        "word word": usage(170),
        LONG.context: usage(330),
        f"{LONG.context} {LONG.context}": usage(640),
    },
}


@pytest.mark.parametrize("counts", WHOLE.values(), ids=WHOLE)
def test_a_count_that_may_be_right_is_taken(opened, server, capsys, counts):
    lm = opened(None, chat=True, max_tokens=1000)
    server.blocked = counts
    assert lm.generate([LONG], 5)[0].text == "Paris"
    assert "cuts" not in capsys.readouterr().out


def test_a_count_that_no_context_has_is_said_once(opened, server, capsys):
    lm = opened(None, chat=True, max_tokens=1000, concurrency=1)
    server.blocked = {"word word": usage(20)}
    prompts = [LONG, Prompt(f"a {LONG.context}")]
    assert [made.text for made in lm.generate(prompts, 5)] == ["Paris", "Paris"]
    assert capsys.readouterr().out.count("cuts it, or counts wrong") == 1


class Cutting:
    """Has a chat's server count the tokens of a message, 1.3 a word, at most as many as `context`."""

    def __init__(self, server, context: int, *, refuses: bool = False) -> None:
        self.context = context
        self.refuses = refuses
        self._server = server
        self._converse = server.converse

    def __call__(self, body: dict) -> dict:
        words = body["messages"][0]["content"].split()
        tokens = int(1.3 * len(words))
        if tokens > self.context and self.refuses:
            raise Failing("maximum context length")
        short = body | {"messages": [{"role": "user", "content": "Where?"}]}
        answer = self._converse(short)
        answer["usage"]["prompt_tokens"] = min(tokens, self.context)
        return answer


def long_prompts(*sizes: int) -> list[Prompt]:
    return [Prompt(" ".join([f"word{size}"] * size)) for size in sizes]


@pytest.mark.parametrize(
    ("context", "sizes"),
    [(2048, (1630, 1903)), (2048, (1630,)), (512, (450,)), (2033, (1700, 1850)), (300, (260, 400))],
)
def test_prompts_that_are_cut_little_are_noticed(opened, server, monkeypatch, context, sizes):
    monkeypatch.setattr(server, "converse", Cutting(server, context))
    lm = opened(None, chat=True, max_tokens=4000, concurrency=1)
    with pytest.raises(LongtailError, match=rf"{context} in twice of it: the server cuts it"):
        lm.generate(long_prompts(*sizes), 5)


def test_counts_that_do_not_grow_with_prompts_of_three_tokens_a_word_tell_that_they_are_cut():
    counts = Counts()
    prompts = [(2700, 900), (2500, 1300), (2500, 1400), (2700, 880), (2700, 930)]
    told = [counts.may_be_cut(tokens, words) for tokens, words in prompts]
    assert told == [False, False, True, False, True]


@pytest.mark.parametrize("refuses", [True, False])
def test_prompts_that_fit_are_not_taken_for_cut(opened, server, monkeypatch, capsys, refuses):
    """Also where one has the size of a context, and where two of one size differ in words."""
    monkeypatch.setattr(server, "converse", Cutting(server, 2200, refuses=refuses))
    lm = opened(None, chat=True, max_tokens=4000, concurrency=1)
    prompts = long_prompts(100, 300, 301, 1576, 1577, 400)
    assert not any(made.unanswered for made in lm.generate(prompts, 5))
    assert "cuts" not in capsys.readouterr().out
