"""Multiplications and additions: how many a model needs, and how many a core does in a second."""

from functools import partial

import numpy as np
import torch
from transformers import BertConfig

from benchmarks import measure

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SQUARE = 2048  # rows and columns of the matrices that are multiplied
PRODUCTS = 6  # the fastest counts


def products_per_second(dtype: str) -> float:
    """Operations a second of one core in products of two large squares.

    They are done by torch.matmul or, in fp32, by oneDNN, whichever is faster.
    """
    square = torch.randn(SQUARE, SQUARE, dtype=DTYPES[dtype])
    ways = {"matmul": partial(torch.matmul, square, square)}
    if dtype == "fp32":
        bias = square[0]
        ways["oneDNN"] = partial(torch.nn.functional.linear, square.to_mkldnn(), square, bias)

    runs = measure.in_turns(ways, PRODUCTS)
    seconds = min(run.cpu for run in runs.values())
    return 2 * SQUARE**3 / seconds


def of_encoder(tokens: np.ndarray, shape: BertConfig) -> float:
    """Operations of a forward pass over texts of so many tokens, without padding."""
    tokens = tokens.astype(float)
    attention_weights = 4 * shape.hidden_size**2
    feed_forward_weights = 2 * shape.hidden_size * shape.intermediate_size
    weights = shape.num_hidden_layers * (attention_weights + feed_forward_weights)
    attention = 2 * shape.num_hidden_layers * shape.hidden_size * tokens**2
    return float(2 * (weights * tokens + attention).sum())
