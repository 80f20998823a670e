"""What a model needs of texts that were read, to continue them token by token: keys and values, or its own cache."""

from __future__ import annotations

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

from pipelines.lm.ragged import spans


class OwnCache:
    """The cache that a model makes itself of `texts` texts. With padding on the left, all of them end in one column."""

    cache: Cache | None = None

    def __init__(self, texts: int) -> None:
        self.real = np.zeros((texts, 0), bool)  # (texts, columns): which columns hold tokens

    def append(self, real: np.ndarray) -> Cache | None:
        """Note that columns are to follow, (texts, columns) bool as in `real`; returns the cache of those before."""
        self.real = np.concatenate([self.real, real], axis=1)
        return self.cache


class KeysAndValues(OwnCache):
    """Keys and values of texts that are read in several batches, with room for `new_tokens` more tokens of each.

    `lengths` (texts,) are in tokens. A text's last token stands in the last column before the new ones.
    """

    def __init__(self, lengths: np.ndarray, new_tokens: int) -> None:
        longest = int(lengths.max(initial=0))
        self._padding, self._columns = longest - lengths, longest + new_tokens
        self.real = np.arange(longest) >= self._padding[:, None]
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []  # (texts, heads, columns, width) each

    def append(self, real: np.ndarray) -> Cache:
        if self.cache is None:
            self.cache = Cache(layers=[_Filled(*pair, self.real.shape[1]) for pair in self._layers])
        return super().append(real)

    @property
    def bytes(self) -> int:
        return sum(one.nbytes for pair in self._layers for one in pair)

    def part(self, texts: np.ndarray, first: int, counts: np.ndarray) -> _Part:
        """The place of `counts` (texts,) tokens of each of `texts` (texts,), from its token number `first` on."""
        rows, tokens = np.repeat(np.arange(len(texts)), counts), spans(0 * counts, counts)
        columns = self._padding[texts][rows] + first + tokens
        return _Part(self, *map(torch.from_numpy, (texts[rows], columns, rows, tokens)))

    def layer(self, number: int, like: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """A layer's keys and values. Memory for them is taken when the first states come, which they are `like`."""
        if number == len(self._layers):
            texts = len(self.real)
            self._layers.append(tuple(one.new_zeros(texts, one.shape[1], self._columns, one.shape[3]) for one in like))
        return self._layers[number]


class _Part:
    """`tokens` of `rows` of a batch are kept in `columns` of `texts` of `whole`; (tokens,) int64 each."""

    def __init__(
        self, whole: KeysAndValues, texts: torch.Tensor, columns: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor
    ) -> None:
        self._whole, self._to, self._of = whole, (texts, columns), (rows, tokens)

    def keep(self, layer: int, states: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Keep keys and values of a layer, (rows, heads, tokens, width) each; those of padding are left out."""
        (texts, columns), (rows, tokens) = self._to, self._of
        for whole, part in zip(self._whole.layer(layer, states), states, strict=True):
            whole[texts, :, columns] = part[rows, :, tokens]


class _Filled(DynamicLayer):
    """A layer's keys and values, (texts, heads, columns, width) each, whose first `length` columns are filled."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        super().__init__()
        self._whole, self.is_initialized = (keys, values), True
        self._fill(length)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.keys.shape[2]
        self._fill(start + key_states.shape[2])
        self.keys[:, :, start:], self.values[:, :, start:] = key_states, value_states
        return self.keys, self.values

    def _fill(self, length: int) -> None:
        self.keys, self.values = (whole[:, :, :length] for whole in self._whole)
