"""Bits per byte (REPLUG §5.1): how well a language model predicts texts, whatever its tokens."""

import math

import numpy as np


def bits_per_byte(nats: np.ndarray | float, n_bytes: np.ndarray | int) -> np.ndarray | float:
    """-sum log p / (ln 2 * bytes), both summed over a corpus.

    It is not the mean of the queries' bits per byte.
    """
    return nats / (math.log(2) * n_bytes)
