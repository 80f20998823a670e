"""A retriever: texts in, positions of documents out (REPLUG §3.1), dense or sparse alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Retriever(Protocol):
    count: int  # documents in the index

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions (texts, min(k, count)) int64 and scores float32 of the best documents, ties by position.

        `without` names a source document for each text whose documents are left out, "" or None for none: a query must
        not find its own page. Where fewer than k documents are left, the last positions are -1 and their scores -inf.
        """
