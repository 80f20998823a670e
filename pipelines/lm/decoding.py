"""What greedy decoding keeps track of.

That is questions, the weights of their prompts, and the tokens generated so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from pipelines.lm.ragged import Ragged
from pipelines.lm.shared_prefixes import shared_prefixes
from pipelines.work.devices import Fetched


class Questions:
    """Questions whose answers are generated, each under k prompts."""

    def __init__(self, tokens: Ragged, log_weights: np.ndarray, *, find_shared: bool) -> None:
        """`tokens` (questions * k sequences) are the prompts', `log_weights` are (questions, k).

        With `find_shared`, common beginnings of prompts are found.
        """
        shape = log_weights.shape
        self.tokens = tokens
        self.log_weights = log_weights
        self.prompts = np.arange(len(tokens.lengths)).reshape(shape)  # (questions, k): numbers
        self.read = np.isfinite(log_weights)  # (questions, k): whether each prompt is read
        self.lengths = np.where(self.read, tokens.lengths[self.prompts], 0)  # (questions, k)
        # (questions, k): the length of the common beginning of each prompt, and its group;
        # both are 0 for a prompt without one
        self.shared = np.zeros(shape, np.int64)
        self.groups = np.zeros(shape, np.int64)
        if find_shared:
            read_tokens = tokens.take(self.prompts[self.read])
            limits = self.lengths[self.read] - 1
            shared, groups = shared_prefixes(read_tokens, limits)
            self.shared[self.read] = shared
            self.groups[self.read] = groups

    def windows(self, max_tokens: int) -> Iterator[np.ndarray]:
        """Runs of questions whose prefixes, each counted once, have at most `max_tokens`."""
        start = 0
        prefixes: dict[int, int] = {}  # group -> length, of the questions from `start` on
        rows = zip(self.groups.tolist(), self.shared.tolist(), strict=True)
        for question, (groups, lengths) in enumerate(rows):
            prefixes_of_question = dict(zip(groups, lengths, strict=True))
            together = prefixes | prefixes_of_question
            if question > start and sum(together.values()) > max_tokens:
                yield np.arange(start, question)
                start = question
                together = prefixes_of_question
            prefixes = together
        if start < len(self.groups):
            yield np.arange(start, len(self.groups))

    def prefixes(self, window: np.ndarray) -> tuple[np.ndarray, Ragged]:
        """The groups of the prompts of the questions `window`, and each group's prefix."""
        groups, first = np.unique(self.groups[window], return_index=True)
        prompts = self.prompts[window].ravel()[first]
        lengths = self.shared[window].ravel()[first]
        return groups, self.tokens.take(prompts).slice(0, lengths)


class PromptWeights:
    """The weights of prompts, `matrix` (questions, prompts) float32.

    They are 0 for the prompts of other questions. If `moving`, they follow the text as the sequence
    mixture wants it (see LanguageModel.generate_mixture).
    """

    def __init__(
        self, questions: np.ndarray, log_weights: np.ndarray, device: torch.device, *, moving: bool
    ) -> None:
        """`questions` (prompts,) and `log_weights` (prompts,) are each prompt's."""
        # The logs of weight * probability of the text so far.
        prompts = np.arange(len(questions))
        logs = np.full((questions.max() + 1, len(questions)), -np.inf)
        logs[questions, prompts] = log_weights
        matrix = np.exp(logs).astype(np.float32)
        self.matrix = torch.from_numpy(matrix).to(device)
        self._logs = torch.from_numpy(logs).to(device) if moving else None

    def follow(self, logits: torch.Tensor, token: torch.Tensor) -> None:
        """Go on to the position after `token` (prompts,).

        `logits` (prompts, vocabulary) are those that the token was chosen by.
        """
        if self._logs is None:
            return
        log_probs = torch.log_softmax(logits.double(), dim=-1)
        self._logs += log_probs.gather(1, token[:, None])[:, 0]
        self.matrix = torch.softmax(self._logs, dim=1).float()


class GeneratedTexts:
    """The tokens of texts that are generated together, which end one after another."""

    def __init__(
        self,
        n_texts: int,
        max_tokens: int,
        *,
        ends: Sequence[int],
        completes_stop: np.ndarray,
        is_complete: Callable[[np.ndarray], bool],
    ) -> None:
        """A text ends before one of the tokens `ends`, or when its tokens are complete.

        Only the tokens with `completes_stop` (vocabulary,) bool can complete it.
        """
        self._ends = ends
        self._completes_stop = completes_stop
        self._is_complete = is_complete
        self._n_steps = 0
        self._lengths = np.full(n_texts, max_tokens)
        self._unfinished = np.ones(n_texts, bool)
        self._tokens = np.zeros((n_texts, max_tokens), np.int64)
        self._log_probs = np.zeros((n_texts, max_tokens), np.float32)

    @property
    def all_ended(self) -> bool:
        return not self._unfinished.any()

    def add(self, token: Fetched, log_prob: Fetched) -> None:
        """Add the next token of each text, and its log-probability, (texts,) each."""
        step = self._n_steps
        self._n_steps += 1
        tokens = token.numpy()
        self._tokens[:, step] = tokens
        self._log_probs[:, step] = log_prob.numpy()

        ended = self._unfinished & np.isin(tokens, self._ends)
        self._lengths[ended] = step
        self._unfinished[ended] = False
        may_be_complete = self._unfinished & self._completes_stop[tokens]
        for text in np.flatnonzero(may_be_complete):
            if self._is_complete(self._tokens[text, : step + 1]):
                self._lengths[text] = step + 1
                self._unfinished[text] = False

    def as_list(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The tokens of each text, and their log-probabilities."""
        texts = []
        for text, length in enumerate(self._lengths):
            texts.append((self._tokens[text, :length], self._log_probs[text, :length]))
        return texts
