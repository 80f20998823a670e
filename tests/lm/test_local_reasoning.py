"""A local chat model that reasons: its template is told not to; else its reasoning is cut off and
counted, and never taken for an answer.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from local_models import open_model

from pipelines.answering.answer_letters import answer_by_letter
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt

PROMPTS = [Prompt("Where?"), Prompt("Who?")]
BEGIN = "{{ messages[-1].content }}<|model|>"
THOUGHTS = ["They", "\n", " ask", ".\n"]
QUIET = {"<|quiet|>": ["Velm"]}
LOUD = {"<|model|>": ["<think>", *THOUGHTS, "</think>", "\n\n", "Osk"]}


def template(condition: str, before: str = "") -> str:
    """A template with which the model answers at once where the condition holds."""
    return f"{before}{{{{ messages[-1].content }}}}<|model|>{{% if {condition} %}}<|quiet|>{{% endif %}}"


SWITCHES = {  # who has such a template -> the template, and the switch as it is said
    "Qwen3": (template("enable_thinking is defined and enable_thinking is false"), "enable_thinking=False"),
    "SmolLM3": (
        template(
            "not thinking_on",
            "{% if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif %}"
            "{% set thinking_on = enable_thinking and '/no_think' not in messages[0].content %}",
        ),
        "enable_thinking=False",
    ),
    "Kimi K2.5": (template("thinking is defined and not thinking"), "thinking=False"),
    "Command A": (template("not reasoning", "{% if reasoning is not defined %}{% set reasoning = true %}{% endif %}"), "reasoning=False"),
    "Seed-OSS": (template("thinking_budget is defined and thinking_budget == 0"), "thinking_budget=0"),
    "Mistral": (template("reasoning_effort == 'none'", "{% set reasoning_effort = reasoning_effort or 'high' %}"), "reasoning_effort='none'"),
    "Hunyuan": (template("reasoning_effort in ['no_think']"), "reasoning_effort='no_think'"),
    "MiniMax": (template('thinking_mode == "disabled"'), "thinking_mode='disabled'"),
    "Nemotron Nano": (template("'/no_think' in messages[0].content"), "the system message '/no_think'"),
    "Nemotron Super": (
        template("not enable_thinking", "{% set enable_thinking = '/no_think' not in messages[0].content %}"),
        "the system message '/no_think'",
    ),
    "Llama Nemotron": (
        template("'detailed thinking on' not in text", "{% set text = messages[0].content if "
        "messages[0].role == 'system' else 'detailed thinking on' %}"),
        "the system message 'detailed thinking off'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SWITCHES)
def test_a_template_is_told_not_to_reason(tmp_path, capsys, name):
    text, switch = SWITCHES[name]
    lm = open_model(tiny_models.saying(tmp_path, text, LOUD | QUIET), chat=True)
    said = capsys.readouterr().out
    assert f"tiny: its chat template is told not to reason ({switch})" in said
    assert "it reasons" not in said
    assert [made.text for made in lm.generate(PROMPTS, 15)] == ["Velm", "Velm"]
    assert (lm.usage["lm_reasoned"], lm.scores) == (0, True)


OPENING = BEGIN + "{{ '<think>\\n' }}"
WRITTEN = {  # who writes so -> the template, what the model says, special tokens
    "Qwen3": (BEGIN, LOUD["<|model|>"], ()),
    "special tokens": (BEGIN, LOUD["<|model|>"], ("<think>", "</think>")),
    "a template that begins it": (OPENING, [*THOUGHTS, "</think>", "\n\n", "Osk"], ()),
    "no beginning": ("{# <think> #}" + BEGIN, [*THOUGHTS, "</think>", "\n\n", "Osk"], ()),
    "a merged end": (BEGIN, ["<think>", *THOUGHTS, "</think", ">\n\nOsk"], ()),
    "marks around": (BEGIN, ["<think>", *THOUGHTS, "</think>", "<answer>\n", "Osk", "</answer>"], ()),
    "lines after": (BEGIN, [*LOUD["<|model|>"], "\n\n\n", "Because"], ()),
    "gpt-oss": (
        BEGIN,
        [
            "<|channel|>", "analysis", "<|message|>", *THOUGHTS, "<|end|>", "<|start|>", "assistant",
            "<|channel|>final", "<|message|>\n", "Osk",
        ],
        ("<|channel|>", "<|message|>", "<|end|>", "<|start|>"),
    ),
    "Gemma": (BEGIN, ["<|channel>", "thought", *THOUGHTS, "<channel|>", "Osk"], ("<|channel>", "<channel|>")),
    "Magistral": (BEGIN, ["[THINK]", *THOUGHTS, "[/THINK]", "Osk"], ("[THINK]", "[/THINK]")),
    "Seed-OSS": (BEGIN, ["<seed:think>", *THOUGHTS, "</seed:think>", "Osk"], ()),
    "Granite": (BEGIN, ["Here is my thought process:", *THOUGHTS, "Here is my response:", " ", "Osk"], ()),
    "Apriel": (
        BEGIN, ["Here are my reasoning steps:", *THOUGHTS, "[BEGIN FINAL RESPONSE]", "Osk", "[END FINAL RESPONSE]"], ()
    ),
    "a template that can't": (
        "{% if enable_thinking is defined and not enable_thinking %}{{ raise_exception('never') }}{% endif %}"
        + BEGIN,
        LOUD["<|model|>"],
        (),
    ),
}  # fmt: skip


def reasoning(folder: Path, name: str) -> Path:
    """The model that writes so."""
    text, said, special = WRITTEN[name]
    start = "<think>\n" if text == OPENING else "<|model|>"
    return tiny_models.saying(folder, text, {start: said}, special=special)


@pytest.mark.parametrize("name", WRITTEN)
def test_reasoning_is_cut_off_and_counted(tmp_path, capsys, name):
    """No line within it ends it. The log-probability is that of the answer's own tokens."""
    lm = open_model(reasoning(tmp_path, name), chat=True)
    assert "tiny: it reasons; that is cut off its answers, and counted" in capsys.readouterr().out
    generations = lm.generate(PROMPTS, 20)
    assert [made.text.strip() for made in generations] == ["Osk", "Osk"]
    assert (lm.usage["lm_reasoned"], lm.usage["lm_unanswered"]) == (2, 0)
    assert all(math.isfinite(made.mean_log_prob) for made in generations)


@pytest.mark.parametrize("name", sorted(WRITTEN.keys() - {"no beginning"}))
def test_nothing_but_reasoning_is_no_answer(tmp_path, name):
    lm = open_model(reasoning(tmp_path, name), chat=True)
    for made in lm.generate(PROMPTS, 4):
        assert made.unanswered.startswith("nothing but reasoning within 4 tokens; raise answer.new")
        assert made.text == ""


def test_one_that_only_reasons_has_no_answer(tmp_path):
    """The others have theirs."""
    lm = open_model(
        tiny_models.saying(tmp_path, "{{ messages[-1].content }}", LOUD | QUIET), chat=True
    )
    prompts = [Prompt("Where?<|quiet|>"), Prompt("Who?<|model|>"), Prompt("When?<|quiet|>")]
    generations = lm.generate(prompts, 4)
    assert [made.text for made in generations] == ["Velm", "", "Velm"]
    reasons = [made.unanswered for made in generations]
    assert [bool(reason) for reason in reasons] == [False, True, False]
    assert lm.usage["lm_unanswered"] == 1


def test_a_letter_is_not_read_from_reasoning(tmp_path):
    lm = open_model(tiny_models.saying(tmp_path, BEGIN, LOUD), chat=True)
    assert not lm.scores
    (made,) = answer_by_letter(lm, PROMPTS[:1], np.zeros((1, 1)))
    assert made.text == ""


def test_a_text_outside_of_the_template_is_as_it_was(tmp_path):
    lm = open_model(tiny_models.saying(tmp_path, SWITCHES["Qwen3"][0], LOUD))
    (made,) = lm.generate([Prompt("Where?<|model|>")], 15)
    assert made.text == "<think>They"
    assert lm.usage.keys() == {"lm_tokens_read", "lm_tokens_shared"}


def test_a_template_without_a_users_message_is_refused(tmp_path):
    refusing = (
        "{% if messages | length < 2 %}{{ raise_exception('a system message\nfirst') }}{% endif %}"
    )
    folder = tiny_models.saying(tmp_path, refusing + BEGIN, LOUD)
    with pytest.raises(
        LongtailError, match=r"of tiny takes no .*: a system message first; set"
    ) as e:
        open_model(folder, chat=True)
    assert "\n" not in str(e.value)
