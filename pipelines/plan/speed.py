"""How fast models read: a device's matrix products, and the share of them that each work reaches.

This machine's products are measured. A run for a GPU that this machine does not have is planned for
an H200, whose products were measured. An H100 multiplies as fast.
"""

import timeit
from functools import cache

from pipelines.params.params import Compute
from pipelines.plan.model_sizes import Size

CPU = "CPU"
GPU = "GPU"  # of this machine
H200 = "H200"

# Multiplications and additions a second in bf16, by torch.matmul of large squares.
H200_PRODUCTS = 788e12
# A model reaches this share of a CPU's products, in all works.
CPU_SHARE = 0.5
# Shares of a GPU's products in bf16, by the plan's works and the parameters of models. They were
# measured on one H200, with random weights in the shapes of BERT base, a Llama of 1 billion
# parameters and one of 7 billion, before the sizes of batches followed the GPU's memory.
MEASURED_PARAMETERS = (1e9, 7e9)
GPU_SHARES = {
    "indexes": (0.24, 0.24),  # documents of 125 tokens
    "training": (0.20, 0.20),  # LSR's steps of 16 queries with 20 documents
    "answers": (0.08, 0.20),  # 15 demonstrations, without passages
    "scores": (0.47, 0.65),
    "LSR": (0.47, 0.65),  # scores too
}
# LSR's step in fp32 took five times as long as in bf16: 1.5 and 7.6 steps a second.
FP32_SLOWDOWN = 5.0
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


def number_format(dtype: str, device: str) -> str:
    """The number format to plan for: `auto` counts as bf16 on a GPU, and as fp32 on a CPU."""
    if dtype != "auto":
        return dtype
    return "fp32" if device == CPU else "bf16"


def tokens_per_second(
    size: Size | None, work: str, threads: int, compute: Compute, dtype: str, passes: float = 1.0
) -> float | None:
    """How many tokens a model reads in a second; None for an unknown size.

    `work` is a key of GPU_SHARES. `passes` are the passes that a token takes; a backward pass
    counts as two.
    """
    if size is None:
        return None
    device = device_of(compute)
    is_half = number_format(dtype, device) != "fp32"
    if device == CPU:
        speed = CPU_SHARE * matrix_products(threads, CPU, is_half)
    else:
        speed = _gpu_speed(work, size.parameters, device, threads)
        if not is_half:
            speed /= FP32_SLOWDOWN
    operations = 2.0 * size.multiplied * passes
    return speed / operations


def _gpu_speed(work: str, parameters: int, device: str, threads: int) -> float:
    """Multiplications and additions a second that a model reaches on a GPU in bf16.

    A token takes some time in any model, and more by the number of parameters. A straight line
    through the two measured models says how much.
    """
    small, large = MEASURED_PARAMETERS
    small_share, large_share = GPU_SHARES[work]
    small_time = small / small_share
    large_time = large / large_share
    slope = (large_time - small_time) / (large - small)
    time = small_time + slope * (parameters - small)
    share = parameters / time

    products = H200_PRODUCTS
    if device == GPU:
        products = matrix_products(threads, GPU, True)
    return share * products


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
