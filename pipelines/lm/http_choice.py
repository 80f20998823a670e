"""A server's answer to one prompt, checked: its text and the tokens' log-probabilities."""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import msgspec
import numpy as np

from pipelines.errors import LongtailError
from pipelines.lm.language_model import up_to

ROUNDING = 1e-3  # nats: how far above 0 a log-probability may come out
TOLERANCE = 0.5  # nats: how far two passes of a server may differ at one token, in whatever number format


class Unable(LongtailError):
    """The server refused a request as one that it can't do, or did something else."""


class Token(msgspec.Struct):
    token: str
    logprob: float
    top_logprobs: list[Token] = []


class LogProbs(msgspec.Struct):
    """Lists with an entry per token; empty where the server shows none.

    Some servers, such as llama.cpp's, show all but `text_offset` in the form of the chat interface, as `content`.
    """

    tokens: list[str] | None = None  # the tokens' texts
    token_logprobs: list[float | None] | None = None  # None for a text's first token
    text_offset: list[int] | None = None  # the character at which the token begins
    top_logprobs: list[dict[str, float] | None] | None = None  # the likeliest tokens at this position
    content: list[Token] | None = None

    def __post_init__(self) -> None:
        if self.content and not self.tokens:
            self.tokens = [token.token for token in self.content]
            self.token_logprobs = [token.logprob for token in self.content]
            self.top_logprobs = [{top.token: top.logprob for top in token.top_logprobs} for token in self.content]
        for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            setattr(self, field, getattr(self, field) or [])
        largest = max(
            chain([0.0], filter(None, self.token_logprobs), *(top.values() for top in self.top_logprobs if top))
        )
        if largest > ROUNDING:
            raise ValueError(f"a log-probability of {largest:g}, which is above 0")


class Message(msgspec.Struct):
    content: str | None  # None: nothing is said


Count = Annotated[int, msgspec.Meta(ge=0)]


class Usage(msgspec.Struct):
    prompt_tokens: Count
    completion_tokens: Count = 0


class Choice(msgspec.Struct):
    """A server's answer to one prompt: the generated text, and the tokens' log-probabilities if it shows them.

    After a request with `echo`, both begin with the prompt's own. The chat interface gives a message for the text;
    `usage` is then known, because a request has one prompt.
    """

    text: str | None = None
    message: Message | None = None
    logprobs: LogProbs | None = None
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if self.text is None and self.message is None:
            raise ValueError("a choice without text or message")
        self.text = self.text or (self.message.content if self.message else "") or ""
        self.logprobs = self.logprobs or LogProbs()

    def prompt_log_probs(self, count: int, positions: np.ndarray) -> np.ndarray:
        """Log-probabilities, float32, of the tokens at `positions` of a prompt of `count` tokens, with `echo`.

        Raises Unable where the server does not show them.
        """
        values = np.array(self.logprobs.token_logprobs, np.float32)
        complete = len(self.logprobs.tokens or values) == len(values) in (count, count + 1)
        values = values[:count]
        if not complete or not np.isfinite(values[positions]).all():
            known = np.count_nonzero(np.isfinite(values[1:]))
            expected = f"{known} log-probabilities where a prompt's tokens have {count - 1}"
            raise Unable(f"gives {expected if known else 'no log-probabilities'} (echo with logprobs)")
        return values[positions]

    def likeliest(self) -> dict[str, float]:
        """Text and log-probability of the tokens shown for the first position."""
        return (self.logprobs.top_logprobs or [None])[0] or {}

    def answer(self, stop: str) -> tuple[str, float]:
        """The text `up_to` the stop string, and the mean log-probability of the tokens that begin before its end.

        The mean is nan where the server shows no log-probabilities. Raises Unable where another token was likelier.
        """
        text, shown = up_to(self.text, stop), self.logprobs
        if not (shown.tokens and shown.token_logprobs):
            return text, float("nan" if text else "-inf")
        log_probs = np.array(shown.token_logprobs, np.float64)
        largest = np.array([max((tokens or {}).values(), default=-np.inf) for tokens in shown.top_logprobs])
        if len(largest) == len(log_probs) and (largest - log_probs > TOLERANCE).any():
            position = int((largest - log_probs).argmax())
            raise Unable(
                f"answers {shown.tokens[position]!r} where another token is likelier by "
                f"{largest[position] - log_probs[position]:.1f} nats; switch its penalties off, there or in http.extra "
                "(as repeat_penalty: 1.0)"
            )
        if not text:
            return text, float("-inf")
        starts = np.asarray(shown.text_offset or np.cumsum([0, *map(len, shown.tokens)])[:-1])
        return text, float(log_probs[starts - starts[0] < len(text)].mean())
