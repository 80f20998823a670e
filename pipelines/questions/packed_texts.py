"""Columns of texts, or of lists of texts, in a fraction of the memory that Python's own take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines import neutral

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 1 << 12  # rows that are Python's at a time


class Packed(Sequence):
    """A column; it is read from place to place as a rule, so a block of it is Python's at a time."""

    def __init__(self, *, lists: bool = False) -> None:
        import pyarrow as pa

        self._make, self._type = pa.array, pa.list_(pa.large_string()) if lists else pa.large_string()
        self._parts: list[pa.Array] = []  # of BLOCK values each, but for the last
        self._number, self._block = -1, []

    def add(self, values: Sequence) -> None:
        """Up to BLOCK more; all calls but the last bring as many."""
        try:
            self._parts.append(self._make(values, self._type))
        except UnicodeEncodeError:  # halves of a surrogate pair, which no file can hold
            self._parts.append(self._make(neutral.values(values), self._type))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator:
        for part in self._parts:
            yield from part.to_pylist()

    def __getitem__(self, place: int) -> Any:
        number = place // BLOCK
        if number != self._number:  # whoever asks goes on from place to place as a rule
            self._number, self._block = number, self._parts[number].to_pylist()
        return self._block[place % BLOCK]

    def take(self, places: np.ndarray) -> list:
        """The values at these places, which ascend."""
        taken = []
        for number, part in enumerate(self._parts):
            low, high = np.searchsorted(places, [number * BLOCK, (number + 1) * BLOCK])
            taken += part.take(places[low:high] - number * BLOCK).to_pylist() if high > low else []
        return taken

    def only(self, places: np.ndarray) -> Packed:
        """A column of the values at these places, which ascend."""
        values, made = self.take(places), Packed()
        made._type = self._type
        for start in range(0, len(values), BLOCK):
            made.add(values[start : start + BLOCK])
        return made
