"""Run a transformers model over texts of any lengths in batches.

Common beginnings are read once, and logits are made only where they are needed.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from pipelines import progress
from pipelines.lm.key_value_cache import KeysAndValues, PassCache, Prefixes, read_prefixes
from pipelines.lm.language_model import no_tokens
from pipelines.lm.ragged import Ragged, joined, longest_first, padded
from pipelines.lm.shared_prefixes import shared_prefixes
from pipelines.lm.sizes import Sizes
from pipelines.work.devices import to_device

CACHED_PER_NEW = 8  # cached tokens that count as one new token when a batch is sized
HEAD_TRIAL_TOKENS = 8  # tokens that the model's head is tried on


class Pass(NamedTuple):
    """A forward pass over a batch of texts."""

    rows: np.ndarray  # (texts,) their numbers
    outputs: object  # the model's, with hidden states or logits (texts, columns, ...)
    skipped: int  # columns of the texts that the outputs lack, because they were read before


class ForwardPasses:
    """Runs `model` over texts, at most `sizes.batch_tokens` tokens at a time.

    The token `pad` fills up shorter texts.
    """

    # whether texts can be continued from the keys and values of what was read before
    can_continue = False

    def __init__(self, model, pad: int, sizes: Sizes) -> None:
        self.model = model
        self.device = model.device
        self.sizes = sizes
        self.usage = no_tokens()
        self._pad = pad
        self._vocabulary = model.config.get_text_config().vocab_size
        self._head = _Head(model)
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def over(self, rows: Ragged, first: np.ndarray) -> Iterator[Pass]:
        """Run the model over all rows, and yield each pass.

        `first` (rows,) is the first column of each row that is needed. What rows have in common
        before it is read once.
        """
        if self.can_continue:
            prefix_lengths, groups = shared_prefixes(rows, first)
        else:
            prefix_lengths = np.zeros(len(first), np.int64)
            groups = np.zeros(len(first), np.int64)

        for length in np.unique(prefix_lengths)[::-1]:
            members = np.flatnonzero(prefix_lengths == length)
            if length:
                yield from self._with_prefixes(rows, members, groups[members], int(length))
            else:
                yield from self._continued(rows, members, None, members)

    def _with_prefixes(
        self, rows: Ragged, members: np.ndarray, groups: np.ndarray, length: int
    ) -> Iterator[Pass]:
        """`over` the rows `members`. Those of a group share their first `length` tokens."""
        _, leaders, owners = np.unique(groups, return_index=True, return_inverse=True)
        step = max(1, self.sizes.batch_tokens // length)
        for start in range(0, len(leaders), step):
            leading = members[leaders[start : start + step]]
            prefixes = rows.take(leading).slice(0, length)
            cache = read_prefixes(self.model, self._padded(prefixes))
            self._count_prefixes(prefixes)
            is_in_step = (start <= owners) & (owners < start + step)
            owners_in_step = owners[is_in_step] - start
            yield from self._continued(rows, members[is_in_step], cache, owners_in_step)

    def logits(
        self, outputs, rows: np.ndarray, columns: np.ndarray
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Logits (positions, vocabulary) float32 at rows and columns of a pass's outputs.

        They come in parts of at most `sizes.logits`, each with its slice of the positions.
        """
        states = outputs.last_hidden_state if self._head.separable else outputs.logits
        row_of_position = to_device(rows, states.device)
        column_of_position = to_device(columns, states.device)
        step = max(1, self.sizes.logits // self._vocabulary)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            logits = states[row_of_position[part], column_of_position[part]]
            if self._head.separable:
                logits = self._head(logits)
            yield part, logits.float()

    def after(
        self, rows: Ragged, passes: Iterable[Pass] | None = None
    ) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Yield row numbers, and the logits after their last tokens, (rows, vocabulary) float32.

        `passes` are those over the rows, if there were any.
        """
        last = rows.lengths - 1
        if passes is None:
            passes = self.over(rows, last)
        for batch in passes:
            columns = last[batch.rows] - batch.skipped
            texts = np.arange(len(columns))
            for part, logits in self.logits(batch.outputs, texts, columns):
                yield batch.rows[part], logits

    def hold(self, beginnings: Ragged) -> Prefixes:
        """Read common beginnings, for `decoding`."""
        self._count_prefixes(beginnings)
        return Prefixes(self.model, beginnings)

    def decoding(
        self,
        prompts: Ragged,
        held: Prefixes,
        beginnings: np.ndarray,
        new_tokens: int,
        total: int = 0,
    ) -> Generator[torch.Tensor, torch.Tensor, None]:
        """Yield logits (prompts, vocabulary) after each prompt, then after each token that is sent.

        A token (prompts,) is sent for each prompt, at most `new_tokens` times. Prompt i begins with
        the beginning number beginnings[i] of `held`. Progress counts prompts among `total`. A
        model that cannot continue texts reads them whole at every step.
        """
        if self.can_continue:
            yield from self._decoding_kept(prompts, held, beginnings, new_tokens, total)
            return

        texts = prompts
        while True:
            token = yield self._table(len(beginnings), self.after(texts), total)
            total = 0
            added = Ragged.of(token[:, None].tolist())
            texts = joined([texts, added])

    def _decoding_kept(
        self, prompts: Ragged, held: Prefixes, beginnings: np.ndarray, new_tokens: int, total: int
    ) -> Generator[torch.Tensor, torch.Tensor, None]:
        """`decoding` from kept keys and values."""
        n_prompts = len(beginnings)
        rows = np.arange(n_prompts)
        kept = KeysAndValues(prompts.lengths, new_tokens, self.device)

        def passes() -> Iterator[Pass]:
            for part in held.continued_by(beginnings):
                yield from self._continued(prompts, part.texts, part.cache, part.owners, kept)

        token = yield self._table(n_prompts, self.after(prompts, passes()), total)
        while True:
            cache, mask = kept.append()
            inputs = {"input_ids": token[:, None], "past_key_values": cache}
            if self._takes_positions:
                inputs["position_ids"] = mask.sum(1, keepdim=True) - 1
            outputs = self._run(attention_mask=mask, **inputs)
            self._count(n_prompts)
            parts = [logits for _, logits in self.logits(outputs, rows, 0 * rows)]
            token = yield torch.cat(parts)

    def bytes_kept(self) -> int:
        """Bytes of the keys and values of one token."""
        kept = KeysAndValues(np.ones(1, np.int64), 0, self.device)
        one_token = Ragged.of([[self._pad]])
        first = np.zeros(1, np.int64)
        for _ in self._continued(one_token, first, None, first, kept):
            pass
        return kept.bytes

    def batches(self, lengths: np.ndarray, max_tokens: int | None = None) -> Iterator[np.ndarray]:
        """Row numbers in batches of similar length, the longest first.

        Memory then runs out early if at all. A batch has at most `sizes.batch_tokens` tokens.
        `max_tokens` replaces this limit for batches that no forward pass reads at once.
        """
        limit = max_tokens or self.sizes.batch_tokens
        makes_all_logits = max_tokens is None and not self._head.separable
        if makes_all_logits:
            limit = min(limit, self.sizes.logits // self._vocabulary)
        return longest_first(lengths, limit)

    def _table(
        self, n_rows: int, parts: Iterable[tuple[np.ndarray, torch.Tensor]], total: int
    ) -> torch.Tensor:
        """Logits that come in `parts`, as a tensor (n_rows, vocabulary) float32.

        Progress counts rows among `total`.
        """
        table = torch.empty(n_rows, self._vocabulary, device=self.device)
        for rows, logits in parts:
            table[to_device(rows, self.device)] = logits.to(self.device)
            progress.advance(len(rows), total)
        return table

    def _continued(
        self,
        rows: Ragged,
        members: np.ndarray,
        cache: DynamicCache | None,
        owners: np.ndarray,
        kept: KeysAndValues | None = None,
    ) -> Iterator[Pass]:
        """`over` the rows `members` (members,).

        Row members[i] continues prefix owners[i] of `cache`. Without a cache it continues none. The
        rows' keys and values are put into `kept`, if it is given.
        """
        skipped = cache.get_seq_length() if cache else 0
        remaining = rows.lengths[members] - skipped
        self._count(int(remaining.sum()), skipped * len(members))
        sizes = np.maximum(remaining, (remaining + skipped) // CACHED_PER_NEW)
        for batch in self.batches(sizes):
            numbers = members[batch]
            lengths = remaining[batch]
            inputs: dict[str, Any] = {}
            tokens = rows.take(numbers).slice(skipped, lengths)
            inputs["input_ids"] = self._padded(tokens)
            if cache or kept:
                inputs["past_key_values"] = PassCache(
                    read=cache,
                    owners=owners[batch],
                    kept=kept,
                    texts=numbers,
                    lengths=lengths + skipped,
                    device=self.device,
                )
            yield Pass(numbers, self._run(**inputs), skipped)

    def _count(self, read: int, shared: int = 0) -> None:
        self.usage["lm_tokens_read"] += read
        self.usage["lm_tokens_shared"] += shared

    def _count_prefixes(self, prefixes: Ragged) -> None:
        """Count prefixes as read once. The texts that continue them count them as shared."""
        n_tokens = len(prefixes.values)
        self._count(n_tokens, -n_tokens)

    def _padded(self, rows: Ragged) -> torch.Tensor:
        """Token ids (rows, longest), padded on the right, where a causal model never sees it."""
        longest = int(rows.lengths.max())
        ids, _ = padded(rows, longest, self._pad)
        return to_device(ids, self.device)

    def _run(self, **inputs):
        """One forward pass: hidden states if the head can be run alone, else all logits."""
        inputs["use_cache"] = "past_key_values" in inputs
        model = self.model.base_model if self._head.separable else self.model
        return model(**inputs)


class _Head:
    """The part of `model` that makes logits of hidden states, run only where logits are needed.

    `separable` says whether that gives the model's own numbers, which a few tokens show. Otherwise
    it must not be called.
    """

    def __init__(self, model) -> None:
        self._layers = _GivenStates()
        self._model = copy.copy(model)  # shares the weights
        self._model._modules = {**model._modules, model.base_model_prefix: self._layers}
        self.separable = model.base_model is not model and self._agrees(model)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) of the hidden states (n, width)."""
        self._layers.hidden = hidden[None]
        ids = hidden.new_zeros(1, len(hidden), dtype=torch.int64)
        return self._model(input_ids=ids).logits[0]

    @torch.inference_mode()
    def _agrees(self, model) -> bool:
        vocabulary = model.config.get_text_config().vocab_size
        ids = torch.arange(HEAD_TRIAL_TOKENS, device=model.device)[None] % vocabulary
        expected = model(input_ids=ids).logits[0]
        hidden = model.base_model(input_ids=ids).last_hidden_state[0]
        try:
            logits = self(hidden)
        except (AttributeError, TypeError):
            # The model needs more from its layers than their last hidden states.
            return False
        return torch.allclose(expected, logits, rtol=1e-3, atol=1e-3)


class _GivenStates(nn.Module):
    """Takes the place of a model's layers and returns the hidden states it was given."""

    hidden: torch.Tensor

    @property
    def decoder(self) -> _GivenStates:
        """OPT calls its layers' `decoder`."""
        return self

    def forward(self, *_, **__) -> BaseModelOutputWithPastAndCrossAttentions:
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=self.hidden)
