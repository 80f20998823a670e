"""A capped corpus: source documents drawn by weight and hash, of which no more are read than are needed.

The keys -ln(u) / weight (Efraimidis and Spirakis, 2006) give all source documents one order, in which the first stay:
what becomes of one depends on its id, its weight and how far the corpus reaches, not on files, processes or rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines import draws, params
from pipelines.corpus.query_split import side

BUCKETS = 8192  # of keys: from 2 ** LOWEST up, PER_DOUBLING for each factor of two
PER_DOUBLING = 64
LOWEST = -80
CHARACTERS_PER_TOKEN = 4.0  # to begin with; later rounds take what was found
MARGIN = 1.1


class Draw(NamedTuple):
    """Which source documents one round reads: those with low < place <= high."""

    seed: int
    corpus: params.CorpusOf
    queries: params.Queries
    low: float = -1.0
    high: float = math.inf

    def place(self, source_document: str, source: str, side: str) -> float | None:
        """Its key; 0 for queries' source documents, which are all read; None where its subset has no weight."""
        weight = weight_of(self.corpus.weights, source)
        if weight == 0:
            return None
        return key(self.seed, source_document, weight) if side == "corpus" else 0.0

    def side(self, source_document: str, file: str) -> str:
        """See `split.side`."""
        return side(self.seed, source_document, file, self.corpus, self.queries)


def weight_of(weights: Mapping[str, float] | None, source: str) -> float:
    """The weight of a subset's documents: 1 without weights, 0 for a subset that they don't name."""
    return 1.0 if weights is None else weights.get(source, 0.0)


def key(seed: int, source_document: str, weight: float) -> float:
    """The document's place in the order of drawing, 0 or more; small ones come first."""
    return -math.log1p(-draws.uniform(seed, "corpus", source_document)) / weight


class Sizes:
    """Characters of the corpus's source documents by key: so many that it doesn't matter that a bucket holds many."""

    def __init__(self) -> None:
        self.characters = np.zeros(BUCKETS, dtype=np.int64)

    def add(self, key: float, characters: int) -> None:
        self.characters[_bucket(key)] += characters

    def load(self, path: Path) -> None:
        """Add what another process saved of the files that it read."""
        self.characters += np.frombuffer(path.read_bytes(), dtype=np.int64)

    def reach(self, characters: float, low: float) -> float:
        """The least bound above `low` with so many characters up to it; infinity where there aren't so many."""
        upto = np.cumsum(self.characters)
        first = 0 if low < 0 else _bucket(low) + 1
        bucket = max(int(np.searchsorted(upto, characters)), first)
        return math.inf if bucket >= BUCKETS - 1 or upto[bucket] == upto[-1] else _bound(bucket)

    def upto(self, high: float) -> int:
        """Characters of the source documents with keys up to a bound that `reach` gave."""
        return int(self.characters[: BUCKETS if high == math.inf else _bucket(high) + 1].sum())


def _bucket(key: float) -> int:
    """The bucket whose keys are above the last one's bound, and at most its own."""
    if key <= 2.0**LOWEST:
        return 0
    bucket = min(math.ceil((math.log2(key) - LOWEST) * PER_DOUBLING), BUCKETS - 1)
    # Rounding must not part a key from its bucket's bound.
    while bucket > 0 and key <= _bound(bucket - 1):
        bucket -= 1
    while bucket < BUCKETS - 1 and key > _bound(bucket):
        bucket += 1
    return bucket


def _bound(bucket: int) -> float:
    return 2.0 ** (LOWEST + bucket / PER_DOUBLING)
