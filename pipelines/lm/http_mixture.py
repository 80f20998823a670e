"""REPLUG's mixture on a server: what the likeliest tokens, which are all that it shows, say about the next token.

A server shows N tokens after a prompt. No token that it hides there is likelier than the least likely one that it
shows, nor than all that is missing to a sum of 1. So the mixture gives each token a probability between two bounds.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice

import numpy as np

from pipelines.lm.language_model import Generation, answer_of

TOKEN_ID = re.compile(r"token_id\D(\d+)")  # how vLLM writes a token if it is asked for ids

Shown = Mapping[int | str, float]  # a token's id, or a text that several tokens have or none -> its log-probability


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
    least = np.zeros((len(shown), len(column) + 1))  # the last column stands for any token that no prompt shows
    most = np.zeros_like(least)
    for prompt, tokens in enumerate(shown):
        probable = np.exp(np.array(list(tokens.values())))
        hidden = max(0.0, 1.0 - float(probable.sum()))
        most[prompt] = at_most = min(hidden, probable.min(initial=1.0))
        for token, probability in zip(tokens, probable.tolist(), strict=True):
            if isinstance(token, int):
                least[prompt, column[token]] = most[prompt, column[token]] = probability
            else:
                most[prompt, column[token]] = max(probability, at_most if len(tokens) >= count else hidden)
    largest = high.max()
    lower, upper = np.exp(low - largest) @ least, np.exp(high - largest) @ most
    leader = int(lower.argmax())
    decided = lower[leader] > np.delete(upper, leader).max(initial=0.0)
    return list(column)[leader] if decided else None, least[:, leader], most[:, leader]


class Mixture:
    """A question's answer, a token at a time, under the mixture of its prompts, to whose ids it is added."""

    def __init__(self, prompts: Sequence[list[int]], log_weights: np.ndarray, count: int, *, moving: bool) -> None:
        """`log_weights` (k,) are -inf for prompts that are not read; if `moving`, they follow the sequence mixture."""
        read = np.isfinite(log_weights)
        self.prompts = [list(prompt) for prompt, counts in zip(prompts, read.tolist(), strict=True) if counts]
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


def generate(
    mixtures: Sequence[Mixture], ask: Callable[[list[list[int]]], list[Shown]], tokenizer, max_tokens: int, stop: str
) -> list[Generation]:
    """The mixtures' answers; `ask` gives what the server shows after prompts. All of them go on side by side."""
    ends = {*tokenizer.all_special_ids}  # a model may end a text with others than the tokenizer's own end token

    def decode(tokens: Sequence[int]) -> str:
        return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    unfinished = mixtures
    for _ in range(max_tokens):
        shown = iter(ask([prompt for mixture in unfinished for prompt in mixture.prompts]))
        after = [(mixture, list(islice(shown, len(mixture.prompts)))) for mixture in unfinished]
        going_on = [mixture for mixture, of_prompts in after if mixture.follow(of_prompts, ends)]
        unfinished = [mixture for mixture in going_on if stop not in decode(mixture.tokens).lstrip()]
    return [
        Generation(*answer_of(one.tokens, one.log_probs, stop, decode), one.read, one.made, one.decided)
        for one in mixtures
    ]
