"""The language model as a black box (REPLUG §3): score, next-token distribution, greedy generation, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Prompt:
    """What the model reads: its own first token if it has one, the document, the context.

    The caller ends `document` with the separator it wants. Too long a prompt loses the far (left) end of the context,
    never its near end and never the beginning of the document. Only where the document would leave the context less
    than half of the room does the document lose its end.
    """

    context: str
    document: str = ""


@dataclass(frozen=True)
class Generation:
    text: str  # up to the stop string, which is left out
    mean_log_prob: float  # nats per token of `text`; -inf for an empty text, which has none; nan where not known
    prompt_tokens: int  # as the model saw them: after truncation, first tokens included; 0 where not known
    new_tokens: int = 0  # made of each prompt read, the stop string's included; 0 where not known


@dataclass(frozen=True)
class Scores:
    """One array per continuation, one entry per token of it: nats, and UTF-8 bytes that add up to the text's own."""

    log_probs: list[np.ndarray]  # float32
    bytes: list[np.ndarray]  # int32


class LanguageModel(Protocol):
    name: str
    max_tokens: int  # of prompt and continuation together
    scores: bool  # whether `score` works: not every server shows log-probabilities of prompts
    mixes: bool  # whether `generate_mixture` works: servers show only the likeliest tokens
    usage: Mapping[str, float]  # requests, tokens and cost since it was opened; empty where no server is asked

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> Scores:
        """log p(token | prompt, tokens before it) for every token of every continuation."""

    def next_token(self, prompts: Sequence[Prompt]) -> np.ndarray:
        """Log-probabilities of the token after each prompt, (prompts, vocabulary) float32; -inf where not shown."""

    def token_id(self, text: str) -> int:
        """The id of a text that is one token; LongtailError for any other."""

    def seen(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        """What is left of each prompt where `max_tokens` are generated after it: too long a one is cut."""

    def generate(self, prompts: Sequence[Prompt], max_tokens: int, stop: str = "\n") -> list[Generation]:
        """The greedy continuation of each prompt, up to `stop`, the model's end token, or `max_tokens` tokens."""

    def generate_mixture(
        self,
        prompts: Sequence[Prompt],
        log_weights: np.ndarray,
        max_tokens: int,
        stop: str = "\n",
        *,
        sequence_mixture: bool = False,
    ) -> list[Generation]:
        """The greedy text of each question under a mixture of its prompts: sum_d w_d p(token | prompt d, text so far).

        `prompts` are k in a row for each question, `log_weights` (questions, k) the logarithms of the prompts' weights.
        A prompt of weight 0 (-inf) is not read. With `sequence_mixture` a prompt's weight at each token is its first
        weight times the probability that it gave to the text so far, divided by the sum over the k prompts. Raises
        LongtailError if the backend does not show the probabilities of all tokens.
        """
