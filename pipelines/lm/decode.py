"""Greedy decoding with a transformers model and its key-value cache, of one prompt or a mixture (REPLUG §3.2)."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from pipelines.lm import prefixes
from pipelines.lm.forward_passes import ForwardPasses
from pipelines.lm.language_model import up_to
from pipelines.lm.ragged import Ragged


class Decoder:
    """What a model says after a batch of prompts, token by token, until the stop string, its end token or the limit.

    `passes` are the model's forward passes.
    """

    def __init__(self, model, tokenizer, passes: ForwardPasses) -> None:
        self.model, self.tokenizer, self._passes = model, tokenizer, passes
        ends = model.generation_config.eos_token_id  # a token, several, or none
        several = ends if isinstance(ends, list) else [ends]
        self._ends = [token for token in {*several, tokenizer.eos_token_id} if token is not None]
        self._holding = cache(self._tokens_holding)

    @torch.inference_mode()
    def greedy(
        self,
        prompts: Ragged,
        questions: np.ndarray,
        log_weights: np.ndarray,
        held: prefixes.Held,
        beginnings: np.ndarray,
        max_tokens: int,
        stop: str,
        *,
        total: int,
        sequence_mixture: bool,
    ) -> list[tuple[str, float, int]]:
        """For each question the text `up_to` the stop string, the mean log-prob of its tokens (nats; -inf if there are
        none), and how many tokens were generated, those of the stop string included.

        `questions` (prompts,) are the numbers 0, 1, ... of the questions that the prompts are for, `log_weights`
        (prompts,) the logs of their weights. Prompt i begins with the beginning number beginnings[i] of `held`.
        Progress counts prompts among `total`. The next token is the one with the largest sum over the question's
        prompts of weight * p(token | prompt, text so far). With `sequence_mixture` the weights follow the text: see
        `_Weights`.
        """
        n, device = questions.max() + 1, self.model.device
        passes = self._passes.decoding(prompts, held, beginnings, max_tokens, total)
        weights = _Weights(questions, log_weights, device, moving=sequence_mixture)
        of_prompts = torch.from_numpy(questions).to(device)
        completes_stop = self._holding(stop[-1])
        lengths = np.full(n, max_tokens)  # tokens up to the end token (left out) or the one that completes `stop`
        unfinished = np.ones(n, bool)
        tokens, log_probs = np.zeros((n, max_tokens), np.int64), np.zeros((n, max_tokens), np.float32)
        logits = next(passes)
        for step in range(max_tokens):
            # Probabilities, not their logs: the largest of a mixture is never small enough to underflow.
            likely, token = (weights.matrix @ torch.softmax(logits.float(), dim=-1)).max(1)
            tokens[:, step], log_probs[:, step] = token.cpu().numpy(), likely.log().cpu().numpy()
            ended = unfinished & np.isin(tokens[:, step], self._ends)
            lengths[ended], unfinished[ended] = step, False
            for text in np.flatnonzero(unfinished & completes_stop[tokens[:, step]]):
                if stop in self._decode(tokens[text, : step + 1]).lstrip():
                    lengths[text], unfinished[text] = step + 1, False
            if step + 1 == max_tokens or not unfinished.any():
                break
            weights.follow(logits, token[of_prompts])
            logits = passes.send(token[of_prompts])
        return [(*self._answer(tokens[i, :m], log_probs[i, :m], stop), int(m)) for i, m in enumerate(lengths)]

    def _answer(self, tokens: np.ndarray, log_probs: np.ndarray, stop: str) -> tuple[str, float]:
        """The text before `stop`, and the mean log-prob of its tokens."""
        whole, count = self._decode(tokens), len(tokens)
        text = up_to(whole, stop)
        # Tokens that belong to the stop string only do not count.
        while text != whole and count and len(self._decode(tokens[: count - 1])) >= len(text):
            count -= 1
        return text, float(log_probs[:count].mean()) if text else float("-inf")

    def _decode(self, tokens: np.ndarray) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _tokens_holding(self, character: str) -> np.ndarray:
        """Which tokens have `character` in their text, (vocabulary,) bool. Only these can complete a stop string."""
        size = self.model.config.get_text_config().vocab_size
        texts = self.tokenizer.batch_decode(np.arange(size)[:, None], clean_up_tokenization_spaces=False)
        return np.fromiter((character in text for text in texts), bool, size)


class _Weights:
    """The weights of prompts, `matrix` (questions, prompts) float32; 0 for the prompts of other questions.

    They stay as they are, or, if `moving`, follow the text as the sequence mixture wants it: a prompt's weight is its
    first weight times the probability that it gave to the text so far, divided by the sum over the question's prompts.
    """

    def __init__(self, questions: np.ndarray, log_weights: np.ndarray, device: torch.device, *, moving: bool) -> None:
        n, prompts = questions.max() + 1, np.arange(len(questions))
        matrix = np.zeros((n, len(prompts)), np.float32)
        matrix[questions, prompts] = np.exp(log_weights)
        self.matrix, self._moving = torch.from_numpy(matrix).to(device), moving
        if moving:
            logs = np.full(matrix.shape, -np.inf)  # log of first weight * probability of the text so far
            logs[questions, prompts] = log_weights
            self._logs = torch.from_numpy(logs).to(device)

    def follow(self, logits: torch.Tensor, token: torch.Tensor) -> None:
        """Move on to the place after `token` (prompts,), of which the model said `logits` (prompts, vocabulary)."""
        if self._moving:
            self._logs += torch.log_softmax(logits.double(), dim=-1).gather(1, token[:, None])[:, 0]
            self.matrix = torch.softmax(self._logs, dim=1).float()
