"""Greedy decoding with a transformers model and its key-value cache, of one prompt or a mixture (REPLUG §3.2)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import cache

import numpy as np
import torch
from transformers.cache_utils import Cache

from pipelines.lm import prefixes
from pipelines.lm.ragged import Ragged, joined, padded


class Decoder:
    """What `model` says after a batch of prompts, token by token, until the stop string, its end token or the limit.

    `after` gives the logits after a batch of whole texts: the way for models that don't go on from their cache alike.
    """

    cached = True  # whether they do

    def __init__(self, model, tokenizer, after: Callable[[Ragged], torch.Tensor]) -> None:
        self.model, self.tokenizer, self._after = model, tokenizer, after
        self._pad = tokenizer.pad_token_id or 0
        self._ends = _end_tokens(model, tokenizer)
        self._parameters = set(inspect.signature(model.forward).parameters)
        self._holding = cache(self._tokens_holding)

    @torch.inference_mode()
    def greedy(
        self,
        prompts: Ragged,
        owners: np.ndarray,
        weights: np.ndarray,
        max_tokens: int,
        stop: str,
        held: prefixes.Held,
        own: np.ndarray,
    ) -> list[tuple[str, float, int]]:
        """The texts 0, 1, ... max(owners), up to `stop`, the mean log-prob of their tokens (nats; -inf if none), and
        how many tokens were made, the stop string's included.

        Each next token of text i is the largest in the sum of weights (prompts,) * p(token | prompt, text so far) over
        the prompts whose `owners` (prompts,) is i: they all go on with the same text. Each prompt begins with that of
        the prefixes `held`, read before, whose number is in `own` (prompts,).
        """
        passes = self.passes(prompts, held, own) if self.cached else self._anew(prompts)
        mixed = np.zeros((n := owners.max() + 1, len(owners)), np.float32)
        mixed[owners, np.arange(len(owners))] = weights
        mixed, owner = (torch.from_numpy(array).to(self.model.device) for array in (mixed, owners))
        holds = self._holding(stop[-1])
        lengths = np.full(n, max_tokens)  # tokens made up to the end token (left out) or the one completing `stop`
        going = np.ones(n, bool)
        made, log_probs = np.zeros((n, max_tokens), np.int64), np.zeros((n, max_tokens), np.float32)
        logits = next(passes)
        for step in range(max_tokens):
            # Probabilities, not their logs: the largest of a mixture is never small enough to underflow.
            likely, token = (mixed @ torch.softmax(logits.float(), dim=-1)).max(1)
            made[:, step], log_probs[:, step] = token.cpu().numpy(), likely.log().cpu().numpy()
            ended = going & np.isin(made[:, step], self._ends)
            lengths[ended], going[ended] = step, False
            for text in np.flatnonzero(going & holds[made[:, step]]):
                if stop in self._decode(made[text, : step + 1]):
                    lengths[text], going[text] = step + 1, False
            if step + 1 == max_tokens or not going.any():
                break
            logits = passes.send(token[owner])
        return [(*self._answer(made[i, :m], log_probs[i, :m], stop), int(m)) for i, m in enumerate(lengths)]

    @torch.inference_mode()
    def hold(self, beginnings: Ragged) -> prefixes.Held:
        """What several prompts begin with, each read once for all batches of them."""
        return prefixes.Held(self.model, beginnings)

    def passes(
        self, prompts: Ragged, held: prefixes.Held, own: np.ndarray
    ) -> Generator[torch.Tensor, torch.Tensor, None]:
        """Logits (prompts, vocabulary) after each prompt and after each token (prompts,) that is sent; see `greedy`."""
        ids, mask, past = self._rest(prompts, held, own)
        while True:
            logits, past = self._step(ids, mask, past)
            ids = (yield logits)[:, None]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)

    def _anew(self, prompts: Ragged) -> Generator[torch.Tensor, torch.Tensor, None]:
        """The same, all read again at every step."""
        while True:
            token = yield self._after(prompts)
            prompts = joined([prompts, Ragged.of(token[:, None].tolist())])

    def _rest(
        self, prompts: Ragged, held: prefixes.Held, own: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor, Cache | None]:
        """Token ids to read, which of all columns are real, and the cache of what was read before.

        Padding is on the left, so that every row's new tokens stand in one column.
        """
        past, before = held.copies(own)
        shared = before.sum(1)
        rest = prompts.slice(np.arange(len(own)), shared, prompts.lengths - shared)
        ids, real = padded(rest, int(rest.lengths.max()), self._pad, left=True)
        mask = np.concatenate([before, real], axis=1).astype(np.int64)
        return *(torch.from_numpy(array).to(self.model.device) for array in (ids, mask)), past

    def _step(self, ids: torch.Tensor, mask: torch.Tensor, past: Cache | None) -> tuple[torch.Tensor, Cache]:
        """Logits after the last column, (rows, vocabulary), and the cache with all columns in it."""
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        wanted = {"position_ids": positions, "logits_to_keep": 1}
        extra = {name: value for name, value in wanted.items() if name in self._parameters}
        outputs = self.model(input_ids=ids, attention_mask=mask, past_key_values=past, use_cache=True, **extra)
        return outputs.logits[:, -1], outputs.past_key_values

    def _answer(self, tokens: np.ndarray, log_probs: np.ndarray, stop: str) -> tuple[str, float]:
        text, found, _ = self._decode(tokens).partition(stop)
        count = len(tokens)
        # Tokens that are only the stop string's do not count.
        while found and count and len(self._decode(tokens[: count - 1])) >= len(text):
            count -= 1
        return text, float(log_probs[:count].mean()) if count else float("-inf")

    def _decode(self, tokens: np.ndarray) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _tokens_holding(self, character: str) -> np.ndarray:
        """Which tokens have `character` in their text, (vocabulary,) bool: only those can complete a stop string."""
        size = self.model.config.get_text_config().vocab_size
        texts = self.tokenizer.batch_decode(np.arange(size)[:, None], clean_up_tokenization_spaces=False)
        return np.fromiter((character in text for text in texts), bool, size)


def _end_tokens(model, tokenizer) -> list[int]:
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return [token for token in {*several, tokenizer.eos_token_id} if token is not None]
