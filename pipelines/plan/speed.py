"""How many tokens a model reads in a second: on this machine's CPU, or on an H200 by a table.

A CPU's matrix products are measured. An H100 is as fast as an H200.
"""

import timeit
from functools import cache

from pipelines.params.params import Compute

CPU = "CPU"
H200 = "H200"

# Microseconds of a token in bf16 on one H200, by kind of work: of a token in any model, and more
# for each billion of parameters. They were measured with random weights in the shapes of BERT base
# and Llamas of 1 and 7 billion parameters, before the sizes of batches followed the GPU's memory.
H200_MICROSECONDS = {
    "embeddings": (0.0, 10.58),
    "training": (0.0, 12.69),
    "answers": (22.21, 9.52),
    "scores": (1.74, 3.66),
}
# LSR's step in fp32 took five times as long as in bf16: 1.5 and 7.6 steps a second.
FP32_SLOWDOWN = 5.0
# A model reaches this share of a CPU's products, in all works.
CPU_SHARE = 0.5
SHAPE = (2048, 768, 3072)  # rows, inner width and columns of the products that are measured


def device_of(compute: Compute) -> str:
    """The device to plan for."""
    return CPU if compute.device == "cpu" else H200


def tokens_per_second(
    work: str, parameters: int, threads: int, compute: Compute, dtype: str
) -> float:
    """How many tokens a model reads in a second.

    `work` is a key of H200_MICROSECONDS, `dtype` one of params.yaml: `auto` is fp32 on a CPU and
    bf16 on a GPU.
    """
    if device_of(compute) == CPU:
        operations = 2.0 * parameters
        return CPU_SHARE * matrix_products(threads, dtype == "bf16") / operations

    of_any_model, of_a_billion = H200_MICROSECONDS[work]
    rate = 1e6 / (of_any_model + of_a_billion * parameters / 1e9)
    if dtype == "fp32":
        rate /= FP32_SLOWDOWN
    return rate


@cache
def matrix_products(threads: int, half: bool) -> float:
    """The CPU's multiplications and additions a second in products of SHAPE, at best."""
    import torch

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if half else torch.float32
    rows, inner, columns = SHAPE
    left = torch.randn(rows, inner, dtype=dtype)
    right = torch.randn(inner, columns, dtype=dtype)

    def product() -> None:
        left @ right

    operations = 2.0 * left.numel() * columns
    seconds = timeit.repeat(product, number=1, repeat=5)
    return operations / min(seconds[1:])  # the first product warms up
