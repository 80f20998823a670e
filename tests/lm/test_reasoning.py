"""A model that reasons: its reasoning is cut off and counted, and an answer of nothing else is
never an empty one.

Log-probabilities that no model gives are no log-probabilities.
"""

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from http_faults import Fault

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.server_answers import Choice, are_known

PROMPT = [Prompt("Where is the Louvre?")]
WRITTEN = {  # who writes so -> a whole answer of "Paris"
    "DeepSeek R1": "<think>\nThe user asks.\n</think>\n\nParis",
    "a template that begins it": "The user asks.\n</think>\n\nParis",
    "thinking": "<thinking>They ask.</thinking>Paris",
    "gpt-oss": "<|channel|>analysis<|message|>They ask.<|end|><|start|>assistant<|channel|>final<|message|>Paris",
    "gpt-oss without its tokens": "analysisThe user asks.assistantfinalParis",
    "Magistral": "[THINK]They ask.[/THINK]Paris",
    "EXAONE": "<thought>\nThey ask.\n</thought>\n\nParis",
    "Kimi": "◁think▷They ask.◁/think▷Paris",
    "Command A": "<|START_THINKING|>They ask.<|END_THINKING|><|START_RESPONSE|>Paris<|END_RESPONSE|>",
    "Hunyuan": "<think>\nThey ask.\n</think>\n<answer>\nParis\n</answer>",
    "Marco-o1": "<Thought>\nThey ask.\n</Thought>\n<Output>\nParis\n</Output>",
    "MiniMax": "<mm:think>They ask.</mm:think>Paris",
    "twice": "<think>They</think>x<think>ask.</think>Paris",
}
APART = {  # who keeps it apart -> the message's field
    "vLLM": {"reasoning_content": "They ask."},
    "Ollama": {"reasoning": "They ask."},
}


def body(choice: dict) -> bytes:
    usage = {"prompt_tokens": 4, "completion_tokens": 9}
    return json.dumps(
        {"choices": [{"index": 0, "finish_reason": "stop"} | choice], "usage": usage}
    ).encode()


def said(content: object, finish_reason: str = "stop", **fields) -> dict:
    return {
        "message": {"role": "assistant", "content": content} | fields,
        "finish_reason": finish_reason,
    }


@pytest.fixture
def asked(opened, server) -> Callable:
    """Opens a chat model whose server answers each request with such a choice."""

    def open_chat(choice: dict):
        server.faults = [Fault(body=body(choice))] * 100
        return opened(None, chat=True)

    return open_chat


@pytest.mark.parametrize("content", WRITTEN.values(), ids=WRITTEN)
def test_reasoning_within_the_text_is_cut_off_counted_and_said(asked, capsys, content):
    lm = asked(said(content))
    assert "tiny: it reasons; that is cut off its answers, and counted" in capsys.readouterr().out
    (made,) = lm.generate(PROMPT, 15)
    assert (made.text.strip(), lm.usage["lm_reasoned"], lm.votes) == ("Paris", 1, False)
    assert math.isnan(made.mean_log_prob), "of tokens that are not the answer's"


@pytest.mark.parametrize("field", APART.values(), ids=APART)
def test_reasoning_that_a_server_keeps_apart_is_counted_too(asked, field):
    lm = asked(said("Paris", **field))
    assert (lm.generate(PROMPT, 15)[0].text, lm.usage["lm_reasoned"]) == ("Paris", 1)


@pytest.mark.parametrize(
    "content", ["Paris", "<think>\n\n</think>\n\nParis", "I think so", "Here is my response: Paris"]
)
def test_an_answer_without_reasoning_is_as_it_is(asked, content):
    lm = asked(said(content))
    assert lm.generate(PROMPT, 15)[0].text.strip() == content.rpartition("\n")[2]
    assert lm.usage["lm_reasoned"] == 0


def test_an_answer_may_name_the_mark_that_ends_reasoning(asked):
    answer = "The tag that ends it is </think>"
    lm = asked(said(f"<think>x</think>{answer}"))
    assert lm.generate(PROMPT, 15)[0].text == answer


SILENT = {
    "null": said(None, "length", reasoning_content="Let me think"),
    "empty": said("", "length", reasoning="Let me think"),
    "no content": {"message": {"role": "assistant", "reasoning_content": "Paris"}},
    "hidden": said("", "length"),
} | {
    name: said(text[:25] if "\n" in text else text.split(".")[0], "length")
    for name, text in WRITTEN.items()
}
del SILENT["a template that begins it"], SILENT["twice"]


@pytest.mark.parametrize("choice", SILENT.values(), ids=SILENT)
def test_nothing_but_reasoning_is_refused_when_opened(opened, server, choice):
    """It is never taken for an empty answer."""
    server.faults = [Fault(body=body(choice))] * 10
    with pytest.raises(
        LongtailError,
        match=r"tiny says nothing but reasoning .*http\.extra .*enable_thinking: false",
    ):
        opened(None, chat=True)
    assert len(server.requests) == 1
    server.faults = []
    lm = opened(None, chat=True)
    server.faults = [Fault(body=body(choice))] * 10
    with pytest.raises(LongtailError, match=r"says nothing but reasoning .*raise new_tokens"):
        lm.generate([Prompt("another")], 15)


def test_a_completion_that_begins_with_a_thought_is_refused(opened, server):
    server.faults = [Fault(body=body({"text": "<think>"}))] * 3
    with pytest.raises(LongtailError, match="says nothing but reasoning"):
        opened(None)


@pytest.mark.parametrize("values", [[-0.1, -2.0], [-1e-7, 0.0]])
def test_log_probabilities_of_an_answer_are_known(values):
    assert are_known(values)


@pytest.mark.parametrize(
    "values",
    [[], [None, None], [-9999.0, -9999.0], [0.0, 0.0], [0, -0.0], [None, -0.5], [-0.5, -9999.0]],
)
def test_what_no_model_gives_is_no_log_probability(values):
    assert not are_known(values)


def shown(*values: float | None, likeliest: float | None = -0.1) -> dict:
    tops = [{"token": f"t{n}", "logprob": likeliest} for n in range(5)]
    return {
        "content": [{"token": "Pa", "logprob": value, "top_logprobs": tops} for value in values]
    }


@pytest.mark.parametrize("value", [0.0, -9999.0, None])
def test_a_server_without_log_probabilities_only_answers(asked, value):
    """It neither votes nor chooses."""
    lm = asked(said("PaPa") | {"logprobs": shown(value, value, likeliest=value)})
    (made,) = lm.generate(PROMPT, 15)
    assert made.text == "PaPa"
    assert math.isnan(made.mean_log_prob)
    assert not lm.votes
    assert np.isnan(lm.choose(PROMPT, ["A", "B"])).all()


def test_one_that_is_missing_later_is_refused_and_not_averaged(asked, server):
    lm = asked(said("PaPa") | {"logprobs": shown(-0.1, -0.2)})
    assert lm.votes
    server.faults = [Fault(body=body(said("PaPa") | {"logprobs": shown(-0.1, None)}))] * 3
    with pytest.raises(LongtailError, match="answers with log-probabilities of -9999 or null"):
        lm.generate(PROMPT, 15)


@pytest.mark.parametrize("value", [0.0, -9999.0])
def test_prompts_are_not_scored_by_made_up_numbers(opened, server, monkeypatch, value):
    complete = server.complete

    def faked(asked: dict) -> dict:
        answer = complete(asked)
        for choice in answer["choices"]:
            choice["logprobs"]["token_logprobs"] = [
                p and value for p in choice["logprobs"]["token_logprobs"]
            ]
        return answer

    monkeypatch.setattr(server, "complete", faked)
    lm = opened()
    assert (lm.scores, lm.votes) == (False, False)


def test_a_choice_keeps_what_a_text_says_of_thoughts_within_it():
    assert Choice(text="She said <think> twice").spoken() == (False, "She said <think> twice")
