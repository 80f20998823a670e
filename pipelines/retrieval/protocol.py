"""A retriever: texts in, positions of documents out (REPLUG §3.1), dense or sparse alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Retriever(Protocol):
    count: int  # documents in the index

    def search(self, texts: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions (texts, min(k, count)) int64 and scores float32 of the best documents, ties by position."""
