"""Read the common beginning of several prompts once, and use its keys and values for all of them."""

from __future__ import annotations

import math

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from pipelines.lm.ragged import Ragged, padded

BLOCK = 16  # lengths of prefixes are multiples of it, so that many are equal and are read in batches, unpadded
WINDOWS = ("sliding_window", "sliding_window_size", "window_size", "attention_window_size", "attention_chunk_size")
MIN_SAVED = 0.2  # share of all tokens: saving fewer does not pay for more and smaller passes


def shared(rows: Ragged, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group sequences by their common beginnings; returns the length of each one's prefix and its group, (rows,) each.

    A prefix has at most `limits` (rows,) tokens. Sequences form a group if they have a minimum of first tokens in
    common. All groups have the same minimum, the one that saves the most tokens. Sequences without a prefix have length
    0 and group 0.
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
    common = np.where(same.all(1), width, same.argmin(1))  # first tokens in common with the sequence before
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


class Prefixes:
    """Keys and values that `model` makes of prefixes of one length; `ids` are (prefixes, length) token ids."""

    def __init__(self, model, ids: torch.Tensor) -> None:
        # A DynamicCache without a configuration keeps all tokens, even if a layer looks at the last ones only.
        outputs = model.base_model(input_ids=ids, past_key_values=DynamicCache(), use_cache=True)
        self.length, self.layers = ids.shape[1], outputs.past_key_values.layers

    def cache_for(self, owners: torch.Tensor) -> Cache:
        """The cache for one forward pass over a batch whose row i continues prefix owners[i]."""
        return Cache(layers=[_Shared(layer, owners) for layer in self.layers])


class Held:
    """Keys and values of prefixes of any lengths, 0 included, for rows that are decoded in many passes."""

    @torch.inference_mode()
    def __init__(self, model, prefixes: Ragged) -> None:
        self.lengths = prefixes.lengths
        self._groups = []  # for each length: the numbers of its prefixes, and their Prefixes
        for length in np.unique(self.lengths[self.lengths > 0]):
            numbers = np.flatnonzero(self.lengths == length)
            ids = torch.from_numpy(prefixes.take(numbers).values.reshape(len(numbers), length)).to(model.device)
            self._groups.append((numbers, Prefixes(model, ids)))

    def copies(self, owners: np.ndarray) -> tuple[Cache | None, np.ndarray]:
        """A cache for rows that continue the prefixes `owners` (rows,), and a mask of its real columns (rows, longest).

        The cache is None where all of these prefixes are empty.
        """
        lengths = self.lengths[owners]
        real = np.arange(lengths.max(initial=0)) < lengths[:, None]
        if not real.size:
            return None, real
        layers: list[list[torch.Tensor]] = []
        for numbers, group in self._groups:
            rows = np.flatnonzero(np.isin(owners, numbers))
            if not len(rows):
                continue
            places = torch.from_numpy(np.searchsorted(numbers, owners[rows]))
            parts = [(layer.keys, layer.values) for layer in group.layers]  # (prefixes, heads, length, width) each
            if not layers:
                (n, columns), zeros = real.shape, torch.Tensor.new_zeros
                layers = [[zeros(part, (n, part.shape[1], columns, part.shape[3])) for part in pair] for pair in parts]
            for pair, filled in zip(parts, layers, strict=True):
                for part, whole in zip(pair, filled, strict=True):
                    whole[torch.from_numpy(rows).to(part.device), :, : group.length] = part[places.to(part.device)]
        cache = DynamicCache()
        for number, (keys, values) in enumerate(layers):
            cache.update(keys, values, number)
        return cache, real


def window(config) -> float:
    """The shortest distance, in tokens, that a layer looks back; inf where all layers see the whole text."""
    widths = (getattr(config, key, None) for key in WINDOWS)
    return min((width for width in widths if isinstance(width, int) and width > 0), default=math.inf)


class _Shared(DynamicLayer):
    """A layer's keys and values, where row i of a batch continues prefix owners[i]."""

    def __init__(self, layer: DynamicLayer, owners: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = layer.keys, layer.values, True
        self._owners = owners.to(layer.keys.device)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._joined(self.keys, key_states), self._joined(self.values, value_states)

    def _joined(self, past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        past_of_rows = past.expand(len(new), -1, -1, -1) if len(past) == 1 else past[self._owners]
        return torch.cat([past_of_rows, new], dim=-2)
