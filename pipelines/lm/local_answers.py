"""Read answers out of the tokens that a local model generated, without the reasoning before them.

A server's answers are read by `server_answers`. Both know reasoning by `pipelines.reasoning`.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import NamedTuple

import numpy as np

from pipelines import reasoning
from pipelines.lm.language_model import answer_of
from pipelines.lm.token_prompts import PromptTokenizer


class Answer(NamedTuple):
    """What a model answers."""

    text: str
    mean_log_prob: float  # of the answer's own tokens
    reasoned: bool = False  # whether reasoning came before it
    silent: bool = False  # whether the model said nothing but its reasoning
    led: bool = False  # whether a line that is no answer came before it


class _Start(NamedTuple):
    """Where the answer begins after reasoning, and after lines that are no answer."""

    token: int  # the first token that has a part of the answer
    skipped: int  # characters of this token that come before the answer
    reasoned: bool  # whether there is reasoning between its marks
    led: bool


class LocalAnswers:
    """Reads the answers to the prompts of `texts`.

    Outside of a chat template all that a model generates is its answer.
    """

    def __init__(self, texts: PromptTokenizer) -> None:
        self._texts = texts
        self._frame = texts.frame

    def is_complete(self, tokens: np.ndarray, stop: str) -> bool:
        """Whether the stop string ends the answer.

        Within reasoning, and after a line that is no answer, it ends nothing.
        """
        start = self._start(tokens)
        if not start and self._frame and self._frame.may_reason:
            return False
        first = start.token if start else 0
        text = self._text(start, tokens[first:])
        if self._frame and reasoning.is_lead(text.strip()):
            return False
        return stop in text.lstrip()

    def read(self, tokens: np.ndarray, log_probs: np.ndarray, stop: str) -> Answer:
        """The answer in generated tokens, up to the stop string.

        `log_probs` (tokens,) are the tokens'.
        """
        start = self._start(tokens)
        first = start.token if start else 0
        decode = partial(self._text, start)
        text, mean_log_prob = answer_of(tokens[first:], log_probs[first:], stop, decode)
        if not start:
            return Answer(text, mean_log_prob)
        silent = not (text or start.led)
        return Answer(text, mean_log_prob, start.reasoned, silent, start.led)

    def _start(self, tokens: np.ndarray) -> _Start | None:
        """Where the answer begins; None where nothing comes before it."""
        if not self._frame:
            return None
        # Some tokenizers know the marks of reasoning as special tokens.
        text = self._frame.begun + self._texts.decode(tokens, special=True)
        span = reasoning.find(text)
        begins = span.answer if span else 0
        lead = reasoning.after_leads(text[begins:])
        if not (span or lead):
            return None
        begins += lead

        def length(count: int) -> int:
            return len(self._frame.begun) + len(self._texts.decode(tokens[:count], special=True))

        counts = range(len(tokens) + 1)
        token = bisect_right(counts, begins, key=length) - 1
        thoughts = text[span.begins : span.ends] if span else ""
        return _Start(token, begins - length(token), bool(thoughts.strip()), led=lead > 0)

    def _text(self, start: _Start | None, tokens: np.ndarray) -> str:
        """The text of an answer's tokens, without what comes before it and marks around it."""
        text = self._texts.decode(tokens)
        if not start:
            return text
        return reasoning.AROUND.sub("", text[start.skipped :])
