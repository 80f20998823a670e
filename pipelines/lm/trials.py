"""What a model's trials found when it was first opened (see weights.py, shortcuts.py and local.py), for later openings.

A trial compares a model with itself. So it ends alike where all of these are the same: the model's files, its number
format, the device and its threads, the libraries, and the code of this folder. Results are kept by the hash of these,
in the project's scratch. A process outside of a project keeps none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from pipelines import shards, sums

FOLDER = shards.SCRATCH / "trials"
LIBRARIES = ("torch", "transformers", "tokenizers", "accelerate", "bitsandbytes")
SETTINGS = ("ATEN_", "DNNL_", "ONEDNN_", "MKL_", "CUBLAS_", "NVIDIA_", "TORCH_")  # begin variables that choose kernels

Found = bool | int | float


class Trials:
    """The results of the trials of the model in `folder`, by name."""

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if device == "cuda" else []
        machine = torch.cpu.get_capabilities(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        chosen = sorted(item for item in os.environ.items() if item[0].startswith(SETTINGS))
        libraries = [_version(name) for name in LIBRARIES]
        code = sorted(Path(__file__).parent.glob("*.py"))
        self._file = FOLDER / (
            f"{shards.key_of(sums.of(folder), dtype, device, gpus, machine, chosen, libraries, *code)}.json"
        )
        self.known = self._kept = _read(self._file)

    def found(self, name: str, trial: Callable[[], Found]) -> Found:
        """What the trial of this name found, in this process or an earlier one; without a result, it is done now."""
        if name not in self.known:
            self.known = self.known | {name: trial()}
        return self.known[name]

    def keep(self) -> None:
        """Keep the results, if some are new. Call this when the model can be used: a refusal is not kept."""
        if self.known != self._kept and shards.SCRATCH.is_dir():
            shards.write_json(self._file, self.known)


def _read(file: Path) -> dict[str, Found]:
    """The results in a file; none where it is missing or damaged."""
    with suppress(OSError, ValueError):
        results = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(results, dict) and all(isinstance(found, Found) for found in results.values()):
            return results
    return {}


def _version(library: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(library)
    return None
