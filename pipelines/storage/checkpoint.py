"""Checkpoints of trainings, from which a killed training goes on.

A checkpoint has the weights, the optimizer's moments, torch's random state, and the progress so
far. It lies in the store of work (storage/work_store.py) below .longtail/work/<stage>/<key>, as
saved-<n>. The key stands for all that the weights depend on, so that a training with other inputs,
params, code or libraries starts anew.
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
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_hash, content_key

SECONDS_BETWEEN = 15.0  # seconds from one checkpoint to the next
LIBRARIES = ("numpy", "torch", "transformers")  # their versions can change the weights


class Checkpoints:
    """The checkpoints of one training. The last one stays until a new one is complete."""

    def __init__(self, stage: str, key: str) -> None:
        """`key` is the `content_key` of the training's inputs, params and code.

        Arrays count there by their `digest`. The libraries that train are added here.
        """
        versions = [(name, version(name)) for name in LIBRARIES]
        depends_on = (key, versions, torch.get_num_threads())
        full_key = content_key(depends_on, content_hash(Path(__file__)))
        self._stage = stage
        self._folder = WorkStore().path(stage, full_key)
        self._last_save = time.monotonic()

    def load(
        self, weights: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer
    ) -> dict[str, Any]:
        """Put the last checkpoint into `weights`, `optimizer` and torch's random generator.

        Returns the progress that was saved with it, or {} if there is none.
        """
        saved = self._saved()
        if not saved:
            return {}

        last = saved[-1]
        try:
            progress = json.loads((last / "progress.json").read_text(encoding="utf-8"))
            tensors = load_file(last / "state.safetensors")
        except (OSError, ValueError, SafetensorError) as error:
            message = f"{last}: damaged ({error}); remove it, to go on without it"
            raise LongtailError(message) from None

        torch.set_rng_state(tensors.pop("random"))
        for name, tensor in tensors.items():
            number, quantity = name.split(".")
            weight = weights[int(number)]
            if quantity == "weight":
                weight.data.copy_(tensor)
            else:
                device = weight.device
                if tensor.ndim == 0 and not optimizer.defaults.get("fused"):
                    device = torch.device("cpu")  # where Adam counts steps, unless it is fused
                optimizer.state[weight][quantity] = tensor.to(device, copy=True)
        print(f"{self._stage}: goes on from step {progress['step']}", flush=True)
        return progress

    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.monotonic() - self._last_save >= SECONDS_BETWEEN

    def save(
        self,
        progress: dict[str, Any],
        weights: Sequence[torch.Tensor],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Save the present state, without the learning rate.

        `progress` is JSON, and has the number of `step`s done.
        """
        tensors = {"random": torch.get_rng_state()}
        for i, weight in enumerate(weights):
            tensors[f"{i}.weight"] = weight.detach().contiguous()
            for name, value in optimizer.state.get(weight, {}).items():
                tensors[f"{i}.{name}"] = value.contiguous()

        earlier = self._saved()
        number = int(earlier[-1].name[-8:]) + 1 if earlier else 0
        with atomic(self._folder / f"saved-{number:08d}") as folder:
            folder.mkdir()
            save_file(tensors, folder / "state.safetensors")
            (folder / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
        for checkpoint in earlier:
            shutil.rmtree(checkpoint)
        self._last_save = time.monotonic()

    def _saved(self) -> list[Path]:
        return sorted(self._folder.glob("saved-*"))


def digest(arrays: Iterable[np.ndarray]) -> str:
    """A hash of the arrays' values, for a training's key."""
    arrays_hash = hashlib.blake2b(digest_size=16)
    for array in arrays:
        contiguous = np.ascontiguousarray(array).reshape(-1)
        arrays_hash.update(contiguous.view(np.uint8).data)
    return arrays_hash.hexdigest()
