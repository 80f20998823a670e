"""Prompts that begin alike: what several share is read once and its keys and values serve them all."""

from __future__ import annotations

import math

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from pipelines.lm.ragged import Ragged, padded

BLOCK = 16  # shared lengths are multiples of it: then many are the same, and prefixes are read in batches, unpadded
WINDOWS = ("sliding_window", "sliding_window_size", "window_size", "attention_window_size", "attention_chunk_size")
WORTH = 0.2  # of all tokens are to be saved: less does not pay for more and smaller passes


def shared(rows: Ragged, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many first tokens of each sequence are read for its whole group, 0 for none, and its group; both (rows,).

    `limits` (rows,) is the most that may be shared of each. Sequences belong together where they have at least so many
    first tokens in common: the number, the same for all, that saves the most. Those that share nothing are in group 0.
    """
    n, width = len(limits), int(limits.max(initial=0))
    nothing = np.zeros(n, np.int64), np.zeros(n, np.int64)
    if n < 2 or width < BLOCK:
        return nothing
    table, _ = padded(rows.slice(np.arange(n), np.zeros(n, np.int64), limits), width, -1)
    table = (table + 1).astype(">u4")  # big-endian, so that order by bytes is order by tokens
    order = np.argsort(table.view(f"S{4 * width}").ravel(), kind="stable")
    table, most = table[order], limits[order]
    same = table[1:] == table[:-1]
    common = np.where(same.all(1), width, same.argmin(1))  # with the sequence before
    common = np.minimum(common, np.minimum(most[1:], most[:-1]))
    best, saved = nothing, WORTH * rows.lengths.sum()
    least = BLOCK
    while least <= width:
        cuts = common < least
        starts = np.flatnonzero(np.concatenate([[True], cuts]))
        members = np.diff(np.append(starts, n))
        inside = np.concatenate([[width], np.where(cuts, width, common)])
        lengths = np.where(members > 1, np.minimum.reduceat(inside, starts) // BLOCK * BLOCK, 0)
        if (now := int((lengths * (members - 1)).sum())) > saved:
            saved, best = now, (np.empty(n, np.int64), np.empty(n, np.int64))
            groups = np.where(lengths > 0, np.arange(1, len(starts) + 1), 0)
            best[0][order], best[1][order] = np.repeat(lengths, members), np.repeat(groups, members)
        least *= 2
    return best


class Prefixes:
    """Keys and values of prefixes of one length, (prefixes, length) token ids, as `model` reads them."""

    def __init__(self, model, ids: torch.Tensor) -> None:
        # DynamicCache without a configuration keeps all tokens, also where a layer only looks at the last ones.
        read = model.base_model(input_ids=ids, past_key_values=DynamicCache(), use_cache=True)
        self.length, self.layers = ids.shape[1], read.past_key_values.layers

    def of(self, owners: torch.Tensor) -> Cache:
        """What a batch goes on from whose row i has prefix owners[i]: for one pass, since it keeps nothing of it."""
        return Cache(layers=[_Shared(layer, owners) for layer in self.layers])


class Held:
    """Keys and values of prefixes, some of them empty, for rows that go on from them as many passes as they like."""

    def __init__(self, model, prefixes: Ragged) -> None:
        self.lengths = prefixes.lengths
        self._groups = []  # the numbers of the prefixes of one length, and what was read of them
        for length in np.unique(self.lengths[self.lengths > 0]):
            own = np.flatnonzero(self.lengths == length)
            ids = torch.from_numpy(prefixes.take(own).values.reshape(len(own), length)).to(model.device)
            self._groups.append((own, Prefixes(model, ids)))

    def copies(self, own: np.ndarray) -> tuple[Cache | None, np.ndarray]:
        """What rows go on from that have the prefixes `own` (rows,), None where all are empty, and which of its columns
        are real, (rows, longest)."""
        lengths = self.lengths[own]
        real = np.arange(lengths.max(initial=0)) < lengths[:, None]
        if not real.size:
            return None, real
        layers: list[list[torch.Tensor]] = []
        for numbers, read in self._groups:
            rows = np.flatnonzero(np.isin(own, numbers))
            if not len(rows):
                continue
            places = torch.from_numpy(np.searchsorted(numbers, own[rows]))
            parts = [(layer.keys, layer.values) for layer in read.layers]  # (prefixes, heads, length, width) each
            layers = layers or [[_room(part, real.shape) for part in both] for both in parts]
            for both, filled in zip(parts, layers, strict=True):
                for part, whole in zip(both, filled, strict=True):
                    whole[torch.from_numpy(rows).to(part.device), :, : read.length] = part[places.to(part.device)]
        cache = DynamicCache()
        for number, (keys, values) in enumerate(layers):
            cache.update(keys, values, number)
        return cache, real


def _room(part: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    rows, columns = shape
    return part.new_zeros(rows, part.shape[1], columns, part.shape[3])


def reusable(model) -> bool:
    """Whether the model's past is said to be keys and values alone, as a transformer's is."""
    return not model._is_stateful


def window(config) -> float:
    """How many tokens any layer of a model looks back at the least, inf where all look back to the beginning."""
    known = (getattr(config, key, None) for key in WINDOWS)
    return min((width for width in known if isinstance(width, int) and width > 0), default=math.inf)


class _Shared(DynamicLayer):
    def __init__(self, layer: DynamicLayer, owners: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = layer.keys, layer.values, True
        self._owners = owners.to(layer.keys.device)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._joined(self.keys, key_states), self._joined(self.values, value_states)

    def _joined(self, past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        own = past.expand(len(new), -1, -1, -1) if len(past) == 1 else past[self._owners]
        return torch.cat([own, new], dim=-2)
