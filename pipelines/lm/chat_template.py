"""Read from a chat template what stands before and after a user's message.

The template is told not to have the model reason, where it can be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple

from jinja2 import TemplateError

from pipelines import reasoning
from pipelines.errors import LongtailError

Content = str | list[dict[str, str]]  # of a message
MESSAGE = "\ue000"  # stands for the user's message
# How templates take a message: as a text, or as a list of typed parts.
CONTENTS: tuple[Content, ...] = (MESSAGE, [{"type": "text", "text": MESSAGE}])
# What a template may raise for a message that it does not take.
UNRENDERED = (TemplateError, ValueError, TypeError, KeyError, IndexError, AttributeError)
# The end of what stands before a message within the model's turn.
MODELS_TURN = re.compile(
    r"((^|[\n>|#\]])[^\w\n]*(?i:assistant|model|bot|gpt)\W*|\b(ASSISTANT|Assistant|GPT|Bot): *)$"
)
TODAY = re.compile(r"""strftime_now\((["'])(.*?)\1\)""")
DAY = date(2024, 7, 26)  # takes the place of today, so that prompts do not change every day
# A template's variable -> the values that switch reasoning off. A text counts only where the
# template itself has it.
SWITCHES = {
    "enable_thinking": (False,),  # Qwen3, GLM, SmolLM3, EXAONE, Hunyuan, ERNIE, Nemotron 3, Apertus
    "thinking": (False,),  # DeepSeek V3.1, Granite, Kimi K2.5, Holo
    "reasoning": (False,),  # Command A
    "thinking_budget": (0,),  # Seed-OSS
    "reasoning_effort": ("none", "no_think", "off", "disabled", "minimal"),  # Mistral, Hunyuan
    "thinking_mode": ("disabled", "off", "no_think", "chat"),  # MiniMax
}
# A system message that switches reasoning off -> the words of a template that looks for it.
MESSAGES = {
    "/no_think": "/no_think",  # Nemotron Nano 2
    "detailed thinking off": "detailed thinking",  # Llama Nemotron
}


class Frame(NamedTuple):
    """What a chat template puts around a user's message."""

    before: str
    after: str
    switch: str  # what switches the model's reasoning off; "" where nothing does
    begun: str  # the mark with which the template itself begins the reasoning
    may_reason: bool  # whether reasoning may come without a mark of its beginning


class _Switch(NamedTuple):
    words: str  # for a message
    system: str = ""  # a system message
    variables: dict[str, Any] = {}  # noqa: RUF012 - never changed


def read_frame(tokenizer, name: str) -> Frame:
    """The frame of the chat template of `tokenizer`, the one of the model called `name`.

    Raises LongtailError where there is no template, or a user's message does not stand in what it
    makes once, in the user's turn.
    """
    if not tokenizer.chat_template:
        raise LongtailError(
            f"params.yaml: lm.{name}.chat is true, but the tokenizer of {name} has "
            "no chat template; set it to false, or name an instruction-tuned model"
        )
    try:
        template = TODAY.sub(_fixed_day, tokenizer.get_chat_template())
    except ValueError as error:  # of several templates, none is the default
        raise _refusal(name, f"is not one: {error}") from None
    content, rendered = _first_rendered(tokenizer, template, name)
    words = ""
    for switch in _switches(template):
        switched, problem = _rendered(tokenizer, template, switch, content)
        if not problem and switched != rendered:
            rendered = switched
            words = switch.words
            break

    before, _, after = rendered.partition(MESSAGE)
    knows_marks = reasoning.ANY_MARK.search(template) is not None
    return Frame(
        before=before,
        after=after,
        switch=words,
        begun=reasoning.begun_by(after),
        may_reason=knows_marks and not reasoning.is_ended_by(after),
    )


def _first_rendered(tokenizer, template: str, name: str) -> tuple[Content, str]:
    """The first of CONTENTS that the template takes, and what it makes of that."""
    problems = []
    for content in CONTENTS:
        rendered, problem = _rendered(tokenizer, template, _Switch(""), content)
        if not problem:
            return content, rendered
        problems.append(problem)
    raise _refusal(name, problems[0])


def _refusal(name: str, problem: str) -> LongtailError:
    return LongtailError(
        f"the chat template of {name} {problem}; set lm.{name}.chat to false, or name a model "
        "with another template"
    )


def _fixed_day(call: re.Match) -> str:
    return repr(DAY.strftime(call[2]))


def _switches(template: str) -> Iterator[_Switch]:
    """The switches that a template has, the likeliest first."""
    variables: dict[str, Any] = {}
    for name, values in SWITCHES.items():
        if not re.search(rf"\b{name}\b", template):
            continue
        for value in values:
            if not isinstance(value, str) or re.search(rf"[\"']{value}[\"']", template):
                variables.setdefault(name, value)
    settings = [f"{name}={value!r}" for name, value in variables.items()]
    yield _Switch(", ".join(settings), variables=variables)

    for message, words in MESSAGES.items():
        if words in template:
            yield _Switch(f"the system message {message!r}", system=message)


def _rendered(tokenizer, template: str, switch: _Switch, content: Content) -> tuple[str, str]:
    """What a template makes of a user's message, and what is wrong with that, "" if nothing is."""
    messages = [{"role": "user", "content": content}]
    if switch.system:
        system: Content = switch.system
        if content != MESSAGE:
            system = [{"type": "text", "text": switch.system}]
        messages.insert(0, {"role": "system", "content": system})
    try:
        rendered = tokenizer.apply_chat_template(
            messages,
            chat_template=template,
            tokenize=False,
            add_generation_prompt=True,
            **switch.variables,
        )
    except UNRENDERED as error:
        return "", f"takes no message of a user alone: {' '.join(str(error).split())}"

    count = rendered.count(MESSAGE)
    if count != 1:
        return "", f"has a user's message {count} times, expected it once"
    if MODELS_TURN.search(rendered.partition(MESSAGE)[0]):
        return "", "has a user's message in the model's turn, expected it in the user's"
    return rendered, ""
