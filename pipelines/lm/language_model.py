"""The protocol of a language model: score texts, predict the next token, generate text.

This is the black box of REPLUG §3. Other rooms use a language model through this protocol alone.
`local.LocalModel` and `http_model.HttpModel` implement it, and `open_lm` opens the one that the
params name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pipelines.errors import LongtailError

# Remarks on answers.
ECHOED = "began with their prompt, which is taken off"
LED = "began with a line that is no answer, such as a greeting, which is taken off"


@dataclass(frozen=True)
class Prompt:
    """What the model reads: its first token, the document with its separator, and the context.

    A prompt that is too long is cut at the beginning of the context. If the document would leave
    the context less than half of the room, the document loses its end as well. Some models have no
    first token.
    """

    context: str
    document: str = ""


@dataclass(frozen=True)
class Generation:
    """A generated text."""

    text: str  # the generated text, cut by `up_to`, with the white space at its beginning
    mean_log_prob: float  # nats per token of `text`; -inf if it is empty, nan if unknown
    prompt_tokens: int  # tokens read: after cutting, first token included; 0 if unknown
    # generated for all prompts that were read, stop string included; 0 if unknown
    new_tokens: int = 0
    # why a server gave no answer, "" where there is one; the text is empty then
    unanswered: str = ""
    remarks: tuple[str, ...] = ()  # what is odd about the answer, such as ECHOED
    # False where a server shows too little of a mixture to decide a token: no answer, or a vote's
    decided: bool = True


def no_answer(reason: str) -> Generation:
    """What stands in the place of an answer that a server did not give."""
    return Generation("", float("-inf"), prompt_tokens=0, unanswered=reason)


def all_answered(generations: list[Generation]) -> list[Generation]:
    """The generations. Raises LongtailError where a server gave no answer to one of the prompts."""
    for generation in generations:
        if generation.unanswered:
            raise LongtailError(generation.unanswered)
    return generations


def up_to(text: str, stop: str) -> str:
    """The part of a text before `stop`, with the white space at its beginning.

    Of "\\n\\nParis\\n" it is "\\n\\nParis". White space alone is no text.
    """
    answer = text.lstrip()
    if not answer:
        return ""
    space = text[: len(text) - len(answer)]
    return space + answer.partition(stop)[0]


def answer_of(
    tokens: Sequence[int] | np.ndarray,
    log_probs: Sequence[float] | np.ndarray,
    stop: str,
    decode: Callable[[Any], str],
) -> tuple[str, float]:
    """The text of tokens `up_to` the stop string, and the mean log-probability of its tokens."""
    generated = decode(tokens)
    text = up_to(generated, stop)
    if not text:
        return text, float("-inf")

    # Tokens that belong to the stop string only do not count.
    count = len(tokens)
    if text != generated:
        while count and len(decode(tokens[: count - 1])) >= len(text):
            count -= 1
    return text, float(np.mean(log_probs[:count]))


@dataclass(frozen=True)
class Scores:
    """One array per continuation, with one entry per token."""

    log_probs: list[np.ndarray]  # nats, float32
    bytes: list[np.ndarray]  # UTF-8 bytes of each token, int32; their sum is the continuation's


def check_room(model: LanguageModel, new_tokens: int) -> None:
    """Raise LongtailError where `new_tokens` leave the model no room for a prompt."""
    if new_tokens >= model.max_tokens:
        raise LongtailError(
            f"{new_tokens} new tokens asked of {model.name}, which reads {model.max_tokens} at once"
        )


class LocalAbilities:
    """What every local model can do, see LanguageModel."""

    scores = True
    mixes = True
    votes = True


def no_tokens() -> dict[str, float]:
    """A local model's usage at first.

    It counts tokens read, without padding, and tokens of common beginnings that were read once.
    """
    return {"lm_tokens_read": 0.0, "lm_tokens_shared": 0.0}


class LanguageModel(Protocol):
    """A language model that is open."""

    name: str
    max_tokens: int  # the most tokens of prompt and continuation together
    scores: bool  # whether `score` works: some servers show no log-probabilities of prompts
    mixes: bool  # whether `generate_mixture` works: a server must show the likeliest tokens
    votes: bool  # whether generations have a mean log-prob: some servers show none
    begins: str  # stands before an answer's first word: a space after a text, nothing in a chat
    # since it was opened: requests, tokens, cost; of a local model tokens read and shared
    usage: dict[str, float]

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """log p(token | prompt, tokens before it) for every token of every continuation."""

    def fits(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> np.ndarray:
        """Whether `score` reads all of each prompt, (prompts,) bool."""

    def choose(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> np.ndarray:
        """Log-probabilities of each text as the token after each prompt, (prompts, texts).

        They are nan of texts that are several tokens, or where the model can't choose, and -inf
        where a server does not show them.
        """

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        """Each prompt as the model reads it before it generates `max_tokens`.

        What is too long is cut.
        """

    def generate(
        self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n"
    ) -> list[Generation]:
        """The greedy continuation of each prompt.

        It ends at the stop string (`up_to`), at the end token, or after `max_tokens` tokens.
        """

    def generate_mixture(
        self,
        prompts: Sequence[Prompt],
        log_weights: np.ndarray,
        max_tokens: int,
        stop: str = "\n",
        *,
        sequence_mixture: bool = False,
    ) -> list[Generation]:
        """The greedy text of each question under a mixture of its prompts.

        The mixture gives a token the probability sum_d w_d p(token | prompt d, text so far).
        `prompts` are k in a row for each question, and `log_weights` (questions, k) are the
        logarithms of the prompts' weights. A prompt of weight 0 (-inf) is not read. With
        `sequence_mixture` a prompt's weight at each token is its first weight times the probability
        that it gave to the text so far, divided by the sum over the k prompts.

        On a server the mean log-probability is the least that it can be, and a text is not
        `decided` where the shown tokens leave open which one comes next. Only a model that mixes
        has this.
        """
