"""Batches of texts of like length, for encoders and cross-encoders."""

from collections.abc import Iterator

import numpy as np

WINDOW = 8192  # texts tokenised and sorted by length at once


def longest_first(lengths: np.ndarray, most_tokens: int) -> Iterator[np.ndarray]:
    """Yield the rows of texts with `lengths` (n,) tokens each, batch by batch, the longest first.

    A batch has at most `most_tokens` tokens, padding included, or a single text.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        size = max(1, most_tokens // longest)
        yield order[start : start + size]
        start += size
