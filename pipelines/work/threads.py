"""How torch computes in this process: on how many threads, and with memory that it keeps."""

import ctypes

# Numbers of glibc's options, see mallopt(3).
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
UNUSED_BYTES = 1 << 29  # bytes of unused memory that the process keeps
LARGE_BYTES = 1 << 28  # larger pieces of memory are asked of the system one by one


def use(threads: int) -> None:
    """Have torch compute on `threads` threads, and use memory again that it has freed.

    glibc gives the memory of large tensors back, which costs up to a sixth of a forward pass on a
    CPU.
    """
    import torch

    torch.set_num_threads(threads)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:  # only glibc has it
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, UNUSED_BYTES)
