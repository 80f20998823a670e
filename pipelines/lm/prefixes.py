"""Keys and values of what was read: common beginnings of prompts, read once, and texts that are continued."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from pipelines.lm.ragged import Ragged, padded, spans

BLOCK = 16  # lengths of prefixes are multiples of it, so that many are equal and are read in batches, unpadded
MIN_SAVED = 0.2  # share of all tokens: saving fewer does not pay for more and smaller passes
States = tuple[torch.Tensor, torch.Tensor]  # keys and values


def shared(rows: Ragged, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group sequences by their common beginnings; returns the length of each one's prefix and its group, (rows,) each.

    A prefix has at most `limits` (rows,) tokens. Members of a group have so many first tokens in common, the number
    that saves the most tokens. Sequences without a prefix have length 0 and group 0.
    """
    n, width = len(limits), int(limits.max(initial=0))
    nothing = np.zeros(n, np.int64), np.zeros(n, np.int64)
    if n < 2 or width < BLOCK:
        return nothing
    table, _ = padded(rows.slice(np.arange(n), 0, limits), width, -1)
    table = (table + 1).astype(">u4")  # big-endian, so that order by bytes is order by tokens
    order = np.argsort(table.view(f"S{4 * width}").ravel(), kind="stable")
    table, limits = table[order], limits[order]
    same = table[1:] == table[:-1]
    common = np.where(
        same.all(1), width, same.argmin(1)
    )  # first tokens in common with the sequence before
    common = np.minimum(common, np.minimum(limits[1:], limits[:-1]))
    best, saved = nothing, MIN_SAVED * rows.lengths.sum()
    minimum = BLOCK
    while minimum <= width:
        cuts = common < minimum
        starts = np.flatnonzero(np.concatenate([[True], cuts]))
        members = np.diff(np.append(starts, n))
        inside = np.concatenate([[width], np.where(cuts, width, common)])
        lengths = np.where(members > 1, np.minimum.reduceat(inside, starts) // BLOCK * BLOCK, 0)
        if (saves := int((lengths * (members - 1)).sum())) > saved:
            saved, best = saves, (np.empty(n, np.int64), np.empty(n, np.int64))
            groups = np.where(lengths > 0, np.arange(1, len(starts) + 1), 0)
            best[0][order], best[1][order] = np.repeat(lengths, members), np.repeat(groups, members)
        minimum *= 2
    return best


def read_prefixes(model, ids: torch.Tensor) -> DynamicCache:
    """Keys and values that `model` makes of prefixes of one length; `ids` are (prefixes, length) token ids."""
    # A DynamicCache without a configuration keeps all tokens, even if a layer looks at the last ones only.
    return model.base_model(
        input_ids=ids, past_key_values=DynamicCache(), use_cache=True
    ).past_key_values


class Held:
    """Prefixes of any lengths, 0 included, for texts that are read in many batches."""

    @torch.inference_mode()
    def __init__(self, model, beginnings: Ragged) -> None:
        self._groups = []  # for each length: the numbers of its prefixes, and what was read of them, None of no tokens
        for length in np.unique(beginnings.lengths):
            numbers = np.flatnonzero(beginnings.lengths == length)
            ids = torch.from_numpy(
                beginnings.take(numbers).values.reshape(len(numbers), length)
            ).to(model.device)
            self._groups.append((numbers, read_prefixes(model, ids) if length else None))

    def of(
        self, owners: np.ndarray
    ) -> Iterator[tuple[np.ndarray, DynamicCache | None, np.ndarray]]:
        """Yield, by prefix length: numbers of texts, what was read, and which of it each, as of `owners`, continues."""
        for numbers, read in self._groups:
            texts = np.flatnonzero(np.isin(owners, numbers))
            if len(texts):
                yield texts, read, np.searchsorted(numbers, owners[texts])


class Continuing(Cache):
    """The cache of one forward pass over texts of which number i continues prefix owners[i] of `read`, if any are.

    What they have is put into `kept`, if it is given, as that of its texts (rows,) with `lengths` (rows,) tokens.
    """

    def __init__(
        self,
        read: DynamicCache | None,
        owners: np.ndarray,
        kept: KeysAndValues | None,
        texts: np.ndarray,
        lengths: np.ndarray,
    ) -> None:
        super().__init__(
            layers=[_Shared(layer, torch.from_numpy(owners)) for layer in read.layers]
            if read
            else []
        )
        self._kept, self._texts, self._lengths = kept, texts, lengths

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_, **__
    ) -> States:
        states = key_states, value_states
        if self.layers:
            states = self.layers[layer_idx].update(*states)
        if self._kept:
            self._kept.keep(layer_idx, states, self._texts, self._lengths)
        return states


class _Shared(DynamicLayer):
    """A layer's keys and values, where row i of a batch continues prefix owners[i]."""

    def __init__(self, layer: DynamicLayer, owners: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = layer.keys, layer.values, True
        self._owners = owners.to(layer.keys.device)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__) -> States:
        return self._joined(self.keys, key_states), self._joined(self.values, value_states)

    def _joined(self, past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        past_of_rows = past.expand(len(new), -1, -1, -1) if len(past) == 1 else past[self._owners]
        return torch.cat([past_of_rows, new], dim=-2)


class KeysAndValues:
    """Keys and values of texts of `lengths` (texts,) tokens, padded on the left, with room for `new_tokens` more."""

    def __init__(self, lengths: np.ndarray, new_tokens: int) -> None:
        longest = int(lengths.max(initial=0))
        self._padding, self._columns = longest - lengths, longest + new_tokens
        self.real = (
            np.arange(longest) >= self._padding[:, None]
        )  # (texts, columns): which columns hold tokens
        self._cache: Cache | None = None
        self._layers: list[States] = []  # (texts, heads, columns, width) each

    def keep(self, layer: int, states: States, texts: np.ndarray, lengths: np.ndarray) -> None:
        """Keep a layer's keys and values, (texts, heads, tokens, width) each, of the first `lengths` tokens of each."""
        if layer == len(self._layers):  # memory is taken when the first states come
            shapes = ((len(self.real), one.shape[1], self._columns, one.shape[3]) for one in states)
            self._layers.append(
                tuple(one.new_zeros(shape) for one, shape in zip(states, shapes, strict=True))
            )
        rows, tokens = np.repeat(np.arange(len(texts)), lengths), spans(0 * lengths, lengths)
        places = texts[rows], self._padding[texts][rows] + tokens, rows, tokens
        to_text, column, row, token = map(torch.from_numpy, places)
        for whole, part in zip(self._layers[layer], states, strict=True):
            whole[to_text, :, column] = part[row, :, token]

    def append(self) -> Cache:
        """Note that a token of each text follows; returns the cache of the tokens before."""
        if self._cache is None:
            self._cache = Cache(
                layers=[_Filled(*pair, self.real.shape[1]) for pair in self._layers]
            )
        self.real = np.pad(self.real, ((0, 0), (0, 1)), constant_values=True)
        return self._cache

    @property
    def bytes(self) -> int:
        return sum(one.nbytes for pair in self._layers for one in pair)


class _Filled(DynamicLayer):
    """A layer's keys and values, (texts, heads, columns, width) each, whose first `length` columns are filled."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, length: int) -> None:
        super().__init__()
        self._whole, self.is_initialized = (keys, values), True
        self._fill(length)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__) -> States:
        start = self.keys.shape[2]
        self._fill(start + key_states.shape[2])
        self.keys[:, :, start:], self.values[:, :, start:] = key_states, value_states
        return self.keys, self.values

    def _fill(self, length: int) -> None:
        self.keys, self.values = (whole[:, :, :length] for whole in self._whole)
