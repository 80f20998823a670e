"""REPLUG's mixture of a server's answers, a token at a time (REPLUG §3.2).

A server shows N tokens after a prompt. No token that it hides there is likelier than the least
likely one that it shows, nor than all that is missing to a sum of 1. So the mixture gives each
token a probability between two bounds.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pipelines.lm.language_model import Generation, answer_of, no_answer
from pipelines.lm.token_prompts import PromptTokenizer

# A token -> its log-probability. A token is its id, or a text that no token or several have.
Shown = Mapping[int | str, float]


def generate_under(
    mixtures: Sequence["Mixture"],
    ask: Callable[[list[list[int]]], list[Shown | Generation]],
    tokenizer: PromptTokenizer,
    max_tokens: int,
    stop: str,
) -> list[Generation]:
    """The mixtures' answers, of which all go on side by side.

    `ask(prompts)` gives what the server shows after each prompt, or `no_answer` where it shows
    nothing. Then the prompt's question has no answer.
    """
    # A model may end a text with other special tokens than the tokenizer's end token.
    ends = set(tokenizer.tokenizer.all_special_ids)
    unfinished = list(mixtures)
    for _ in range(max_tokens):
        prompts = []
        for mixture in unfinished:
            prompts += mixture.prompts
        shown = ask(prompts)

        remaining = []
        start = 0
        for mixture in unfinished:
            end = start + len(mixture.prompts)
            goes_on = mixture.follow(shown[start:end], ends)
            if goes_on and stop not in tokenizer.decode(mixture.tokens).lstrip():
                remaining.append(mixture)
            start = end
        unfinished = remaining

    generations = []
    for mixture in mixtures:
        if mixture.unanswered:
            generations.append(no_answer(mixture.unanswered))
            continue
        text, mean_log_prob = answer_of(mixture.tokens, mixture.log_probs, stop, tokenizer.decode)
        generation = Generation(
            text,
            mean_log_prob,
            prompt_tokens=mixture.prompt_tokens,
            new_tokens=mixture.new_tokens,
            decided=mixture.decided,
        )
        generations.append(generation)
    return generations


class Mixture:
    """A question's answer under the mixture of its prompts, a token at a time.

    Each token of the answer is added to the prompts' ids.
    """

    def __init__(
        self, prompts: Sequence[list[int]], log_weights: np.ndarray, count: int, *, moving: bool
    ) -> None:
        """`log_weights` (k,) are -inf for prompts that are not read.

        The server is asked for the `count` likeliest tokens. If the weights are `moving`, they
        follow the text as the sequence mixture wants it (see LanguageModel.generate_mixture).
        """
        read = np.isfinite(log_weights)
        self.prompts: list[list[int]] = []
        for prompt, is_read in zip(prompts, read.tolist(), strict=True):
            if is_read:
                self.prompts.append(list(prompt))
        self._low = log_weights[read]  # bounds of the logs of the prompts' weights
        self._high = self._low
        self._count = count
        self._moving = moving
        self.tokens: list[int] = []
        self.log_probs: list[float] = []  # of each token under the mixture, at least
        self.prompt_tokens = 0  # tokens of all prompts that were sent
        self.new_tokens = 0  # tokens of all answers
        self.decided = True
        self.unanswered = ""  # why the server shows nothing

    def follow(self, shown: Sequence[Shown | Generation], ends: set[int]) -> bool:
        """Add the token that the mixture of what is `shown` after each prompt decides.

        Returns False where none is decided, or it is one of `ends`, or nothing is shown.
        """
        for tokens in shown:
            if isinstance(tokens, Generation):
                self.unanswered = tokens.unanswered
                return False
        self.prompt_tokens += sum(map(len, self.prompts))
        self.new_tokens += len(self.prompts)
        token, least, most = decide(shown, self._count, self._low, self._high)
        self.decided = token is not None
        if token is None or token in ends:
            return False

        with np.errstate(divide="ignore"):  # a prompt may hide the token
            low = self._low + np.log(least)
            high = self._high + np.log(most)
        log_prob = np.logaddexp.reduce(low) - np.logaddexp.reduce(self._high)
        self.log_probs.append(float(log_prob))
        self.tokens.append(token)
        if self._moving:
            self._low = low
            self._high = high
        for prompt in self.prompts:
            prompt.append(token)
        return True


def decide(
    shown: Sequence[Shown], count: int, low: np.ndarray, high: np.ndarray
) -> tuple[int | None, np.ndarray, np.ndarray]:
    """The likeliest next token of a mixture, and bounds of its probability after each prompt.

    `shown` are the likeliest tokens after each of the k prompts, of which the server was asked for
    `count`. `low` and `high` (k,) are bounds of the logs of the prompts' weights. The bounds that
    are returned are (k,) each. The token is None where another one may be as likely.

    A text of no known token may be likelier than others, and is never the likeliest. Where fewer
    than `count` tokens are shown, one of the same text may be hidden.
    """
    columns: dict[int | str, int] = {}
    for tokens in shown:
        for token in tokens:
            columns.setdefault(token, len(columns))

    # (k, tokens + 1): the last column stands for any token that no prompt shows
    least = np.zeros((len(shown), len(columns) + 1))
    most = np.zeros_like(least)
    for prompt, tokens in enumerate(shown):
        probabilities = np.exp(np.array(list(tokens.values())))
        missing = max(0.0, 1.0 - float(probabilities.sum()))
        largest_hidden = min(missing, probabilities.min(initial=1.0))
        most[prompt] = largest_hidden
        for token, probability in zip(tokens, probabilities.tolist(), strict=True):
            column = columns[token]
            if isinstance(token, int):
                least[prompt, column] = probability
                most[prompt, column] = probability
            else:
                same_text = largest_hidden if len(tokens) >= count else missing
                most[prompt, column] = max(probability, same_text)

    largest = high.max()
    lower = np.exp(low - largest) @ least
    upper = np.exp(high - largest) @ most
    leader = int(lower.argmax())
    largest_other = np.delete(upper, leader).max(initial=0.0)
    decided = lower[leader] > largest_other
    token = list(columns)[leader] if decided else None
    return token, least[:, leader], most[:, leader]
