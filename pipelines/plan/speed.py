"""How many tokens a model reads in a second: on this machine, or on an H200 by a table.

A CPU's matrix products are measured. A run for a GPU is planned by the table, scaled by the matrix
products of this machine's GPU if it has one. An H100 is as fast as an H200.
"""

import timeit
from functools import cache

from pipelines.params.params import Compute

CPU = "CPU"
GPU = "GPU"  # of this machine
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
# Multiplications and additions a second in bf16, by torch.matmul of large squares.
H200_PRODUCTS = 788e12
# LSR's step in fp32 took five times as long as in bf16: 1.5 and 7.6 steps a second.
FP32_SLOWDOWN = 5.0
# A model reaches this share of a CPU's products, in all works.
CPU_SHARE = 0.5
# Rows, inner width and columns of the products that are measured: a model's on a CPU. A GPU needs
# larger ones to be at work the whole time.
SHAPES = {CPU: (2048, 768, 3072), GPU: (8192, 8192, 8192)}


def device_of(compute: Compute) -> str:
    """The device to plan for: the CPU, this machine's GPU, or an H200 if it has none."""
    import torch

    if compute.device == "cpu":
        return CPU
    if torch.cuda.is_available():
        return GPU
    return H200


def tokens_per_second(
    work: str, parameters: int, threads: int, compute: Compute, dtype: str
) -> float:
    """How many tokens a model reads in a second.

    `work` is a key of H200_MICROSECONDS, `dtype` one of params.yaml: `auto` is fp32 on a CPU and
    bf16 on a GPU.
    """
    device = device_of(compute)
    if device == CPU:
        operations = 2.0 * parameters
        return CPU_SHARE * matrix_products(threads, CPU, dtype == "bf16") / operations

    of_any_model, of_a_billion = H200_MICROSECONDS[work]
    rate = 1e6 / (of_any_model + of_a_billion * parameters / 1e9)
    if device == GPU:
        rate *= matrix_products(threads, GPU, True) / H200_PRODUCTS
    if dtype == "fp32":
        rate /= FP32_SLOWDOWN
    return rate


@cache
def matrix_products(threads: int, device: str, half: bool) -> float:
    """This machine's multiplications and additions a second in products of SHAPES: the fastest of
    five.
    """
    import torch

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if half else torch.float32
    place = "cuda" if device == GPU else "cpu"
    rows, inner, columns = SHAPES[device]
    left = torch.randn(rows, inner, device=place, dtype=dtype)
    right = torch.randn(inner, columns, device=place, dtype=dtype)

    def product() -> None:
        left @ right
        if device == GPU:
            torch.cuda.synchronize()

    operations = 2.0 * left.numel() * columns
    seconds = timeit.repeat(product, number=1, repeat=5)
    return operations / min(seconds[1:])  # the first product warms up
