"""Store sequences of unequal length as one flat array and bounds, so that NumPy needs no loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """`lengths[i]` consecutive numbers from `starts[i]` on, for every i: (total,) int64."""
    lengths_before = np.cumsum(lengths) - lengths
    offsets = np.repeat(starts - lengths_before, lengths)
    return offsets + np.arange(len(offsets))


def bounds_of(lengths: np.ndarray) -> np.ndarray:
    """Where sequences of these lengths begin and end in a flat array, (sequences + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)])


@dataclass(frozen=True)
class Ragged:
    """Sequences of numbers. Sequence i is values[bounds[i]:bounds[i + 1]]."""

    values: np.ndarray  # (total,) int64
    bounds: np.ndarray  # (sequences + 1,) int64

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int] | np.ndarray]) -> Ragged:
        """The same sequences, from lists or arrays."""
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        bounds = bounds_of(lengths)
        values = np.fromiter(chain.from_iterable(sequences), np.int64, bounds[-1])
        return cls(values, bounds)

    @property
    def lengths(self) -> np.ndarray:
        """The number of values of each sequence, (sequences,) int64."""
        return np.diff(self.bounds)

    def take(self, rows: np.ndarray) -> Ragged:
        """The sequences `rows`, in that order."""
        return self._at(self.bounds[rows], self.lengths[rows])

    def slice(self, starts: int | np.ndarray, lengths: int | np.ndarray) -> Ragged:
        """`lengths` values of each sequence, from its value number `starts` on.

        Both are one number, or one per sequence.
        """
        positions = self.bounds[:-1] + starts
        return self._at(positions, np.broadcast_to(lengths, len(positions)))

    def _at(self, positions: np.ndarray, lengths: np.ndarray) -> Ragged:
        """`lengths` values from each position on."""
        values = self.values[spans(positions, lengths)]
        return Ragged(values, bounds_of(lengths))

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """Cut `values` (total,) into one array per sequence."""
        if len(self.bounds) == 1:
            return []
        return np.split(values, self.bounds[1:-1])

    def tolist(self) -> list[list[int]]:
        """The sequences as lists."""
        return [sequence.tolist() for sequence in self.split(self.values)]


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Sequence i of the result is sequence i of every part, one after another."""
    lengths = np.stack([part.lengths for part in parts])  # (parts, sequences)
    bounds = bounds_of(lengths.sum(0))
    values = np.empty(bounds[-1], np.int64)
    starts = bounds[:-1].copy()
    for part, part_lengths in zip(parts, lengths, strict=True):
        values[spans(starts, part_lengths)] = part.values
        starts += part_lengths
    return Ragged(values, bounds)


def padded(rows: Ragged, width: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids (sequences, width) int64, filled up with `pad`, and a bool mask of real tokens."""
    real = np.arange(width) < rows.lengths[:, None]
    values = np.full(real.shape, pad, np.int64)
    values[real] = rows.values
    return values, real


def longest_first(lengths: np.ndarray, max_tokens: int) -> Iterator[np.ndarray]:
    """Yield the rows of sequences with `lengths` (n,) tokens each, batch by batch, the longest
    first.

    A batch has at most `max_tokens` tokens, padding included, or a single sequence.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        n_rows = max(1, max_tokens // longest)
        yield order[start : start + n_rows]
        start += n_rows
