"""Keep the keys and values of tokens that a model has read, for texts that continue them.

`Prefixes` are common beginnings of prompts, which are read once. `KeysAndValues` are those of texts
that are decoded together, a token at a time. transformers asks both through its class Cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from pipelines.lm.ragged import Ragged, spans
from pipelines.work.devices import to_device

States = tuple[torch.Tensor, torch.Tensor]  # keys and values


def read_prefixes(model, ids: torch.Tensor) -> DynamicCache:
    """Keys and values that `model` makes of prefixes of one length, `ids` (prefixes, length)."""
    # A DynamicCache without a configuration keeps all tokens, even if a layer looks at few.
    cache = DynamicCache()
    outputs = model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
    return outputs.past_key_values


class _PrefixesOfLength(NamedTuple):
    numbers: np.ndarray  # (prefixes,)
    cache: DynamicCache | None  # keys and values; None of no tokens


@dataclass
class Continuations:
    """Texts that continue prefixes of one length."""

    texts: np.ndarray  # (texts,) their numbers
    cache: DynamicCache | None  # keys and values of the prefixes; None of no tokens
    owners: np.ndarray  # (texts,) the prefix in `cache` that each text continues


class Prefixes:
    """Prefixes of any lengths, 0 included, for texts that are read in many batches."""

    @torch.inference_mode()
    def __init__(self, model, beginnings: Ragged) -> None:
        """Have `model` read the beginnings."""
        self._groups: list[_PrefixesOfLength] = []
        for length in np.unique(beginnings.lengths):
            numbers = np.flatnonzero(beginnings.lengths == length)
            cache = None
            if length:
                ids = beginnings.take(numbers).values.reshape(len(numbers), length)
                cache = read_prefixes(model, to_device(ids, model.device))
            self._groups.append(_PrefixesOfLength(numbers, cache))

    def continued_by(self, owners: np.ndarray) -> Iterator[Continuations]:
        """Yield texts by the length of their prefix. Text i continues prefix owners[i]."""
        for numbers, cache in self._groups:
            texts = np.flatnonzero(np.isin(owners, numbers))
            if len(texts):
                owners_in_cache = np.searchsorted(numbers, owners[texts])
                yield Continuations(texts, cache, owners_in_cache)


class PassCache(Cache):
    """The cache of one forward pass, whose text i continues prefix owners[i] of `read`, if any.

    The texts' keys and values are put into `kept`, if it is given. There they are those of its
    texts `texts` (rows,) with `lengths` (rows,) tokens.
    """

    def __init__(
        self,
        read: DynamicCache | None,
        owners: np.ndarray,
        kept: KeysAndValues | None,
        texts: np.ndarray,
        lengths: np.ndarray,
        device: torch.device,
    ) -> None:
        layers = []
        if read:
            owners_there = to_device(owners, device)
            layers = [_PrefixLayer(layer, owners_there) for layer in read.layers]
        super().__init__(layers=layers)
        self._kept = kept
        if kept:
            self._places = kept.places(texts, lengths)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_, **__
    ) -> States:
        """The keys and values of a layer that the pass attends to: the prefixes' and its own."""
        states = (key_states, value_states)
        if self.layers:
            states = self.layers[layer_idx].update(*states)
        if self._kept:
            self._kept.keep(layer_idx, states, self._places)
        return states


class _PrefixLayer(DynamicLayer):
    """A layer's keys and values, where row i of a batch continues prefix owners[i]."""

    def __init__(self, layer: DynamicLayer, owners: torch.Tensor) -> None:
        super().__init__()
        self.keys = layer.keys
        self.values = layer.values
        self.is_initialized = True
        self._owners = owners.to(layer.keys.device)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__) -> States:
        keys = self._joined(self.keys, key_states)
        return keys, self._joined(self.values, value_states)

    def _joined(self, past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        if len(past) == 1:
            past = past.expand(len(new), -1, -1, -1)  # without a copy
        else:
            past = past[self._owners]
        return torch.cat([past, new], dim=-2)


class _Places(NamedTuple):
    """Where the tokens of a pass stand, and where their states are kept, (tokens,) each."""

    row: torch.Tensor  # in the pass
    token: torch.Tensor
    text: torch.Tensor  # among the texts that are decoded together
    column: torch.Tensor


class KeysAndValues:
    """Keys and values of texts that are decoded together, padded on the left.

    They have `lengths` (texts,) tokens, and room for `new_tokens` more.
    """

    def __init__(self, lengths: np.ndarray, new_tokens: int, device: torch.device) -> None:
        self._device = device
        self._n_filled = int(lengths.max(initial=0))  # columns
        self._padding = self._n_filled - lengths
        columns = np.arange(self._n_filled + new_tokens)
        is_real = columns >= self._padding[:, None]
        # (texts, columns): 1 where a column holds a token, or will
        self._real = to_device(is_real.astype(np.int64), device)
        self._cache: Cache | None = None
        self._layers: list[States] = []  # (texts, heads, columns, width) each

    def places(self, texts: np.ndarray, lengths: np.ndarray) -> _Places:
        """Where the first `lengths` (rows,) tokens of each of `texts` (rows,) are kept."""
        row = np.repeat(np.arange(len(texts)), lengths)
        token = spans(0 * lengths, lengths)
        column = self._padding[texts][row] + token
        arrays = (row, token, texts[row], column)
        return _Places(*[to_device(array, self._device) for array in arrays])

    def keep(self, layer: int, states: States, places: _Places) -> None:
        """Keep a layer's keys and values (texts, heads, tokens, width) of a pass."""
        if layer == len(self._layers):  # memory is taken when the first states come
            keys, values = states
            self._layers.append((self._zeros(keys), self._zeros(values)))

        row, token, text, column = [place.to(states[0].device) for place in places]
        for all_states, new_states in zip(self._layers[layer], states, strict=True):
            all_states[text, :, column] = new_states[row, :, token]

    def _zeros(self, states: torch.Tensor) -> torch.Tensor:
        """Room for all texts' states of a layer."""
        _, heads, _, width = states.shape
        n_texts, n_columns = self._real.shape
        return states.new_zeros((n_texts, heads, n_columns, width))

    def append(self) -> tuple[Cache, torch.Tensor]:
        """Note that a token of each text follows.

        Returns the cache of the tokens before, and a mask (texts, columns) of them and this token.
        """
        if self._cache is None:
            layers = [_FilledLayer(keys, values, self._n_filled) for keys, values in self._layers]
            self._cache = Cache(layers=layers)
        self._n_filled += 1
        return self._cache, self._real[:, : self._n_filled]

    @property
    def bytes(self) -> int:
        """Bytes of memory."""
        return sum(keys.nbytes + values.nbytes for keys, values in self._layers)


class _FilledLayer(DynamicLayer):
    """A layer's keys and values, of which the first `length` columns are filled.

    They are (texts, heads, columns, width) each.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        super().__init__()
        self._all_keys = keys
        self._all_values = values
        self.is_initialized = True
        self._fill(length)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__) -> States:
        start = self.keys.shape[2]
        self._fill(start + key_states.shape[2])
        self.keys[:, :, start:] = key_states
        self.values[:, :, start:] = value_states
        return self.keys, self.values

    def _fill(self, length: int) -> None:
        self.keys = self._all_keys[:, :, :length]
        self.values = self._all_values[:, :, :length]
