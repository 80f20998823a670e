"""How torch computes in this process: on how many threads, and with memory that it keeps."""

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's mallopt(3)
KEPT, LARGE = (
    1 << 29,
    1 << 28,
)  # bytes: unused memory that is kept, and what is asked of the system by itself


def use(threads: int) -> None:
    """Have torch compute on `threads` threads, and use memory again that it has freed.

    glibc gives the memory of large tensors back, which costs up to a sixth of a forward pass on a CPU.
    """
    import torch

    torch.set_num_threads(threads)
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_MMAP_THRESHOLD, LARGE)
        mallopt(M_TRIM_THRESHOLD, KEPT)
