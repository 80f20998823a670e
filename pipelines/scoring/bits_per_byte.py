"""Bits per byte (REPLUG §5.1): how well a language model predicts texts, whatever its tokens."""

import math
from typing import Any

import numpy as np


def bits_per_byte(nats: Any, n_bytes: Any) -> Any:
    """-sum log p / (ln 2 * bytes), both summed over a corpus; of numbers, or of arrays (n,).

    It is not the mean of the queries' bits per byte.
    """
    return nats / (math.log(2) * n_bytes)


def bits_per_byte_of_sums(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 2) sums of nats and of bytes."""
    nats, n_bytes = sums.T
    return bits_per_byte(nats, n_bytes)


def percent_saved(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 2) sums of nats: how far the first lies below the
    second, in %.

    The bytes are the same, so they cancel out.
    """
    nats, baseline = sums.T
    return 100 * (1 - nats / baseline)
