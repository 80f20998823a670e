"""A server's answer to one prompt, checked, and REPLUG's mixture of such answers, a token at a time.

A server shows N tokens after a prompt. No token that it hides there is likelier than the least likely one that it
shows, nor than all that is missing to a sum of 1. So the mixture gives each token a probability between two bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Annotated, Any

import msgspec
import numpy as np

from pipelines import reasoning
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Generation, answer_of, up_to

ROUNDING = 1e-3  # nats: how far above 0 a log-probability may come out
TOLERANCE = (
    0.5  # nats: how far two passes of a server may differ at one token, in whatever number format
)
FLOOR = -9999.0  # what servers write for a log-probability that they do not know
TOKEN_ID = re.compile(r"token_id\D(\d+)")  # how vLLM writes a token if it is asked for ids
Shown = Mapping[
    int | str, float
]  # a token's id, or a text that several tokens have or none -> its log-probability


class Unable(LongtailError):
    """The server refused a request as one that it can't do, or did something else."""


class Silent(LongtailError):
    """The model said nothing, or nothing but its reasoning."""


class Token(msgspec.Struct):
    token: str
    logprob: float | None = None
    top_logprobs: list[Token] = []


class LogProbs(msgspec.Struct):
    """Lists with an entry per token, empty where none is shown; llama.cpp has them in `content`, as chats do."""

    tokens: list[str] | None = None  # the tokens' texts
    token_logprobs: list[float | None] | None = None  # None for a text's first token
    text_offset: list[int] | None = None  # the character at which the token begins
    top_logprobs: list[dict[str, float | None] | None] | None = (
        None  # the likeliest tokens at this position
    )
    content: list[Token] | None = None

    def __post_init__(self) -> None:
        if self.content and not self.tokens:
            self.tokens = [token.token for token in self.content]
            self.token_logprobs = [token.logprob for token in self.content]
            self.top_logprobs = [
                {top.token: top.logprob for top in token.top_logprobs} for token in self.content
            ]
        for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            setattr(self, field, getattr(self, field) or [])
        shown = chain(self.token_logprobs, *(top.values() for top in self.top_logprobs if top))
        largest = max(filter(None, shown), default=0.0)
        if largest > ROUNDING:
            raise ValueError(f"a log-probability of {largest:g}, which is above 0")


class Message(msgspec.Struct):
    """A chat's message. Servers that keep the reasoning apart show it in one of the other fields."""

    content: str | msgspec.UnsetType | None = msgspec.UNSET  # None: nothing is said
    reasoning: Any = None
    reasoning_content: Any = None

    def __post_init__(self) -> None:
        self.reasoning = bool(self.reasoning or self.reasoning_content)
        if self.content is msgspec.UNSET and not self.reasoning:
            raise ValueError("a message without content")
        self.content = self.content or ""


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
    finish_reason: str | None = None
    scored: bytes | None = None  # float32, all that is kept of a scored prompt

    def __post_init__(self) -> None:
        if self.text is None and self.message is None:
            raise ValueError("a choice without text or message")
        self.text = self.text or (self.message.content if self.message else "")
        self.logprobs = self.logprobs or LogProbs()

    def prompt_log_probs(self, count: int, positions: np.ndarray) -> np.ndarray:
        """Log-probabilities, float32, of the tokens at `positions` of a prompt of `count` tokens, with `echo`.

        Raises Unable where the server does not show them.
        """
        if self.scored is not None:
            return np.frombuffer(self.scored, "<f4").astype(np.float32)
        values = np.array(self.logprobs.token_logprobs, np.float32)
        values[values <= FLOOR] = np.nan
        complete = len(self.logprobs.tokens or values) == len(values) in (count, count + 1)
        values = values[:count]
        if not complete or not np.isfinite(values[positions]).all():
            known = np.count_nonzero(np.isfinite(values[1:]))
            expected = f"{known} log-probabilities where a prompt's tokens have {count - 1}"
            raise Unable(
                f"gives {expected if known else 'no log-probabilities'} (echo with logprobs)"
            )
        return values[positions]

    def likeliest(self) -> dict[str, float]:
        """Text and log-probability of the tokens shown for the first position."""
        shown = (self.logprobs.top_logprobs or [None])[0] or {}
        return {text: value for text, value in shown.items() if _known(value)}

    def spoken(self) -> tuple[bool, str]:
        """Whether the model reasoned before it answered, and the text without the reasoning.

        Raises Silent where nothing is left: an answer that was cut, or never begun, is not an empty answer.
        """
        reasoned, text = reasoning.split(self.text)
        apart = bool(self.message and self.message.reasoning)
        silent = bool(
            self.message and self.finish_reason == "length"
        )  # the reasoning is hidden, as OpenAI's is
        if not text.strip() and (apart or silent or text != self.text):
            raise Silent(
                f"says nothing but reasoning (finish_reason: {self.finish_reason}); switch that off, there or in "
                "http.extra (as chat_template_kwargs: {enable_thinking: false}, or reasoning_effort: none), raise "
                "new_tokens, or use a model that answers at once"
            )
        return apart or bool(reasoned.strip()), text

    def answer(self, stop: str, votes: bool = True) -> tuple[str, float]:
        """The text `up_to` the stop string, and the mean log-probability of the tokens that begin before its end.

        The mean is nan where the server shows none of its own (no `votes`), and where tokens are those of reasoning,
        too. Raises Unable where another token was likelier, and Silent as `spoken` does.
        """
        reasoned, text = self.spoken()
        text, shown = up_to(text, stop), self.logprobs
        if reasoned or not votes or not (shown.tokens and shown.token_logprobs):
            return text, float("nan" if text else "-inf")
        if not all(map(_known, shown.token_logprobs)):
            raise Unable(f"answers with {fault(shown.token_logprobs)}")
        log_probs = np.array(shown.token_logprobs, np.float64)
        largest = np.array(
            [
                max(filter(_known, (tokens or {}).values()), default=-np.inf)
                for tokens in shown.top_logprobs
            ]
        )
        if len(largest) == len(log_probs) and (largest - log_probs > TOLERANCE).any():
            position = int((largest - log_probs).argmax())
            raise Unable(
                f"answers {shown.tokens[position]!r} where another token is likelier by "
                f"{largest[position] - log_probs[position]:.1f} nats; switch its penalties off, there or in http.extra "
                "(as repeat_penalty: 1.0)"
            )
        if not text:
            return text, float("-inf")
        told = (
            shown.text_offset and shown.text_offset[-1] > shown.text_offset[0]
        )  # SGLang shows -1 for each token
        starts = np.asarray(
            shown.text_offset if told else np.cumsum([0, *map(len, shown.tokens)])[:-1]
        )
        return text, float(log_probs[starts - starts[0] < len(text)].mean())


def fault(values: Sequence[float | None]) -> str:
    """What is wrong with the log-probabilities of tokens that a model chose itself; nothing for those that can be."""
    unknown = [value for value in values if not _known(value)]
    if len(unknown) == len(values):
        return "no log-probabilities"
    if not any(values):
        return "log-probabilities that are all 0"
    return f"log-probabilities of {FLOOR:g} or null" if unknown else ""


def _known(value: float | None) -> bool:
    return value is not None and value > FLOOR


def decide(
    shown: Sequence[Shown], count: int, low: np.ndarray, high: np.ndarray
) -> tuple[int | None, np.ndarray, np.ndarray]:
    """The likeliest next token of a mixture, and the least and the largest probability (k,) that each prompt gives it.

    `shown` are the likeliest tokens after each of the k prompts, of which the server was asked for `count`; `low` and
    `high` (k,) are bounds of the logs of the prompts' weights. The token is None where another one may be as likely. A
    text of no known token may be likelier than others, and is never the likeliest. Where fewer than `count` tokens are
    shown, one of the same text may be hidden.
    """
    column = {token: i for i, token in enumerate(dict.fromkeys(chain.from_iterable(shown)))}
    least = np.zeros(
        (len(shown), len(column) + 1)
    )  # the last column stands for any token that no prompt shows
    most = np.zeros_like(least)
    for prompt, tokens in enumerate(shown):
        probable = np.exp(np.array(list(tokens.values())))
        hidden = max(0.0, 1.0 - float(probable.sum()))
        most[prompt] = at_most = min(hidden, probable.min(initial=1.0))
        for token, probability in zip(tokens, probable.tolist(), strict=True):
            if isinstance(token, int):
                least[prompt, column[token]] = most[prompt, column[token]] = probability
            else:
                most[prompt, column[token]] = max(
                    probability, at_most if len(tokens) >= count else hidden
                )
    largest = high.max()
    lower, upper = np.exp(low - largest) @ least, np.exp(high - largest) @ most
    leader = int(lower.argmax())
    decided = lower[leader] > np.delete(upper, leader).max(initial=0.0)
    return list(column)[leader] if decided else None, least[:, leader], most[:, leader]


class Mixture:
    """A question's answer, a token at a time, under the mixture of its prompts, to whose ids it is added."""

    def __init__(
        self, prompts: Sequence[list[int]], log_weights: np.ndarray, count: int, *, moving: bool
    ) -> None:
        """`log_weights` (k,) are -inf for prompts that are not read; if `moving`, they follow the sequence mixture."""
        read = np.isfinite(log_weights)
        self.prompts = [
            list(prompt) for prompt, counts in zip(prompts, read.tolist(), strict=True) if counts
        ]
        self._low = self._high = log_weights[read]
        self._count, self._moving = count, moving
        self.tokens: list[int] = []
        self.log_probs: list[float] = []  # of each token under the mixture, at least
        self.read = self.made = 0  # tokens of all prompts that were sent, and of all answers
        self.decided = True

    def follow(self, shown: Sequence[Shown], ends: set[int]) -> bool:
        """Add the token that the mixture of what is `shown` after each prompt decides; False at one of `ends`."""
        self.read += sum(map(len, self.prompts))
        self.made += len(self.prompts)
        token, least, most = decide(shown, self._count, self._low, self._high)
        self.decided = token is not None
        if token is None or token in ends:
            return False
        with np.errstate(divide="ignore"):  # a prompt may hide the token
            low, high = self._low + np.log(least), self._high + np.log(most)
        self.log_probs.append(float(np.logaddexp.reduce(low) - np.logaddexp.reduce(self._high)))
        self.tokens.append(token)
        if self._moving:
            self._low, self._high = low, high
        for prompt in self.prompts:
            prompt.append(token)
        return True


def generate_under(
    mixtures: Sequence[Mixture],
    ask: Callable[[list[list[int]]], list[Shown]],
    tokenizer,
    max_tokens: int,
    stop: str,
) -> list[Generation]:
    """The mixtures' answers; `ask` gives what the server shows after prompts. All of them go on side by side."""
    ends = {
        *tokenizer.all_special_ids
    }  # a model may end a text with others than the tokenizer's own end token

    def decode(tokens: Sequence[int]) -> str:
        return tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    unfinished = mixtures
    for _ in range(max_tokens):
        shown = iter(ask([prompt for mixture in unfinished for prompt in mixture.prompts]))
        after = [(mixture, list(islice(shown, len(mixture.prompts)))) for mixture in unfinished]
        going_on = [mixture for mixture, of_prompts in after if mixture.follow(of_prompts, ends)]
        unfinished = [
            mixture for mixture in going_on if stop not in decode(mixture.tokens).lstrip()
        ]
    return [
        Generation(
            *answer_of(one.tokens, one.log_probs, stop, decode), one.read, one.made, one.decided
        )
        for one in mixtures
    ]
