"""How much a device works on at once, and how arrays get there.

On a GPU, the sizes of batches follow from its total memory, less what a model's weights take. The
free memory would differ from run to run, and with it the last digits. On a CPU, sizes follow from
the params alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# Shares of a GPU's memory. What is left is for libraries, and for an encoder beside a language
# model.
WORK_SHARE = 0.5  # of the memory beside a model's weights: what the model works on
HELD_SHARE = 0.4  # of all memory: embeddings that are held for searching


def total_memory(device: str) -> int | None:
    """Bytes of memory of a GPU, of several the smallest's; None for a CPU."""
    if torch.device(device).type != "cuda":
        return None
    gpus = range(torch.cuda.device_count())
    return min(torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus)


def working_memory(device: str, weights: int) -> int | None:
    """Bytes that a model with `weights` bytes of weights there may work with; None for a CPU."""
    total = total_memory(device)
    if total is None:
        return None
    return int(WORK_SHARE * max(0, total - weights))


def held_memory(device: str) -> int | None:
    """Bytes of embeddings that may stay on the device, of all indexes; None for a CPU."""
    total = total_memory(device)
    if total is None:
        return None
    return int(HELD_SHARE * total)


def has_bf16(device: str) -> bool:
    """Whether the device multiplies bf16 in hardware, several times faster than fp32."""
    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16"))


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Multiply matrices in fp32 with one of torch's precisions, inside the block only."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def to_device(array: np.ndarray, device: torch.device | str) -> torch.Tensor:
    """The array on a device. The copy to a GPU does not wait for the work that is queued there."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Fetched:
    """A tensor on its way from a device to this process, which goes on in the meantime."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._copied: torch.cuda.Event | None = None
        if tensor.device.type == "cuda":
            self._tensor = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._tensor.copy_(tensor, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(tensor.device))

    def numpy(self) -> np.ndarray:
        """The tensor as an array, once it is here."""
        if self._copied:
            self._copied.synchronize()
        return self._tensor.numpy()
