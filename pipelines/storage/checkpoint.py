"""What a killed training goes on from: weights, the optimizer's moments, torch's random state, what is done already.

It lies in .longtail/checkpoints/<stage>/<key>/saved-<n>/. The key names all that the weights depend on, so that with
other inputs, params, code or libraries training starts anew.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pipelines.errors import LongtailError
from pipelines.storage.atomic import SCRATCH, atomic
from pipelines.storage.work_store import key_of

EVERY = 15.0  # seconds


class Checkpoints:
    """Those of one training. A new one is there, whole, before the last one goes."""

    def __init__(self, stage: str, *parts: Any) -> None:
        """`parts` are as for `key_of`: the training's inputs, params and own code; arrays by their `digest`."""
        libraries = [(name, version(name)) for name in ("numpy", "torch", "transformers")]
        key = key_of(*parts, libraries, torch.get_num_threads(), Path(__file__))
        self._stage, self._folder = stage, folder(stage) / key
        self._last = time.monotonic()

    def load(
        self, weights: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer
    ) -> dict[str, Any]:
        """Put the last one into `weights`, `optimizer` and torch's generator; returns its progress, {} without one."""
        saved = self._saved()
        if not saved:
            return {}
        try:
            progress = json.loads((saved[-1] / "progress.json").read_text(encoding="utf-8"))
            tensors = load_file(saved[-1] / "state.safetensors")
        except (OSError, ValueError, SafetensorError) as error:
            raise LongtailError(
                f"{saved[-1]}: damaged ({error}); remove it, to go on without it"
            ) from None
        torch.set_rng_state(tensors.pop("random"))
        for name, tensor in tensors.items():
            number, what = name.split(".")
            weight = weights[int(number)]
            if what == "weight":
                weight.data.copy_(tensor)
            else:  # Adam counts steps on the CPU
                optimizer.state[weight][what] = tensor.to(
                    weight.device if tensor.ndim else "cpu", copy=True
                )
        print(f"{self._stage}: goes on from step {progress['step']}", flush=True)
        return progress

    def due(self) -> bool:
        return time.monotonic() - self._last >= EVERY

    def save(
        self,
        progress: dict[str, Any],
        weights: Sequence[torch.Tensor],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Keep the present state, but not the learning rate; `progress` is JSON, and has the number of `step`s done."""
        tensors = {"random": torch.get_rng_state()}
        for i, weight in enumerate(weights):
            tensors[f"{i}.weight"] = weight.detach().contiguous()
            tensors |= {
                f"{i}.{name}": value.contiguous()
                for name, value in optimizer.state.get(weight, {}).items()
            }
        saved = self._saved()
        number = int(saved[-1].name[-8:]) + 1 if saved else 0
        with atomic(self._folder / f"saved-{number:08d}") as whole:
            whole.mkdir()
            save_file(tensors, whole / "state.safetensors")
            (whole / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
        for old in saved:
            shutil.rmtree(old)
        self._last = time.monotonic()

    def _saved(self) -> list[Path]:
        return sorted(self._folder.glob("saved-*"))


def digest(arrays: Iterable[np.ndarray]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return found.hexdigest()


def folder(stage: str) -> Path:
    """Where a stage's checkpoints lie, by key."""
    return SCRATCH / "checkpoints" / stage


def forget_checkpoints(stage: str) -> None:
    """Remove all of a stage's, once its result is written."""
    shutil.rmtree(folder(stage), ignore_errors=True)
