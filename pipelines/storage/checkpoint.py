"""Checkpoints of trainings, from which a killed training goes on.

A checkpoint has the weights, the optimizer's moments, torch's random state, and the progress so
far. It is the file FILE of the training's folder in the store of work (storage/work_store.py). The
folder's key stands for all that the weights depend on, so that a training with other inputs,
params, code or libraries starts anew.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from pipelines.errors import LongtailError
from pipelines.storage.atomic import atomic
from pipelines.storage.work_store import WorkStore, content_hash, content_key

FILE = "state.safetensors"
SECONDS_BETWEEN = 15.0  # seconds from one checkpoint to the next
LIBRARIES = ("numpy", "torch", "transformers")  # their versions can change the weights


class Checkpoints:
    """The checkpoints of one training. A new one takes the place of the last one."""

    def __init__(self, stage: str, key: str) -> None:
        """`key` is the `content_key` of the training's inputs, params and code.

        Arrays count there by their `digest`. The libraries that train are added here.
        """
        versions = [(name, version(name)) for name in LIBRARIES]
        depends_on = (key, versions, torch.get_num_threads())
        full_key = content_key(depends_on, content_hash(Path(__file__)))
        self._stage = stage
        self._folder = WorkStore().path(stage, full_key)
        self._file = self._folder / FILE
        self._last_save = time.monotonic()

    def load(
        self, weights: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer
    ) -> dict[str, Any]:
        """Put the last checkpoint into `weights`, `optimizer` and torch's random generator.

        Returns the progress that was saved with it, or {} if there is none.
        """
        if not self._file.exists():
            return {}
        try:
            with safe_open(self._file, "pt") as file:
                progress = json.loads(file.metadata()["progress"])
                names = file.keys()
                tensors = {name: file.get_tensor(name) for name in names}
        except (OSError, SafetensorError) as error:
            message = f"{self._file}: damaged ({error}); remove it, to go on without it"
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
        print(f"{self._stage}: goes on from step {progress['step']}")
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

        with atomic(self._file) as temporary:
            save_file(tensors, temporary, {"progress": json.dumps(progress)})
        self._last_save = time.monotonic()


def digest(arrays: Iterable[np.ndarray]) -> str:
    """A hash of the arrays' values, for a training's key."""
    arrays_hash = hashlib.blake2b(digest_size=16)
    for array in arrays:
        contiguous = np.ascontiguousarray(array).reshape(-1)
        arrays_hash.update(contiguous.view(np.uint8).data)
    return arrays_hash.hexdigest()
