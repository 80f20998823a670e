"""What a killed LSR training goes on from: weights, Adam's moments, candidates, curve, index and the best so far.

.longtail/lsr/<key>/ holds saved-<n>/ (state.safetensors, progress.json), index-<step>/<corpus>/ and best-<step>/, a
Hugging Face folder. The key names all inputs and params, so that with others training starts anew.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from pipelines import shards
from pipelines.retrieval.encoder import Encoder

FOLDER = shards.SCRATCH / "lsr"
Candidates = list[tuple[np.ndarray, np.ndarray]]  # of each side: rows (n,) of its queries, positions (n, k)


@dataclass
class Progress:
    step: int = 0  # steps done
    asked: int | None = None  # the step before which the present candidates were searched
    best: int | None = None  # the step of the best validation after the first, which is the untuned retriever's
    curve: list[dict[str, float]] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)
    looks: list[list[int]] = field(default_factory=list)  # probe and refine of each side's index; of data/index: none


class Checkpoints:
    """Those of one training. A new one is there, whole, before the last one goes."""

    def __init__(self, key: str) -> None:
        self._folder = FOLDER / key

    def index(self, step: int) -> Path:
        """Where the corpora lie as embedded by the encoder after so many steps."""
        return self._folder / f"index-{step:08d}"

    def best(self, step: int) -> Path:
        return self._folder / f"best-{step:08d}"

    def save(
        self, progress: Progress, encoder: Encoder, optimizer: torch.optim.Optimizer, candidates: Candidates
    ) -> None:
        tensors = {}
        for i, weight in enumerate(encoder.parameters()):
            tensors[f"weight.{i}"] = weight.detach()
            tensors |= {f"adam.{i}.{name}": value for name, value in optimizer.state.get(weight, {}).items()}
        for i, (rows, found) in enumerate(candidates):
            tensors |= {f"rows.{i}": torch.from_numpy(rows), f"found.{i}": torch.from_numpy(found)}
        saved = self._saved()
        number = int(saved[-1].name.removeprefix("saved-")) + 1 if saved else 0
        with shards.atomic(self._folder / f"saved-{number:08d}") as folder:
            folder.mkdir()
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "state.safetensors")
            (folder / "progress.json").write_text(json.dumps(dataclasses.asdict(progress)), encoding="utf-8")
        index = self.index(progress.validation[-1]["step"]) if progress.looks else None
        needed = {index, self.best(progress.best) if progress.best else None}
        for old in {*saved, *self._folder.glob("index-*"), *self._folder.glob("best-*")} - needed:
            shutil.rmtree(old)

    def load(self, encoder: Encoder, optimizer: torch.optim.Optimizer) -> tuple[Progress, Candidates]:
        """Put the last one's weights into `encoder` and its moments into `optimizer`; without one nothing is done."""
        saved = self._saved()
        if not saved:
            return Progress(), []
        tensors = load_file(saved[-1] / "state.safetensors")
        for i, weight in enumerate(encoder.parameters()):
            weight.data.copy_(tensors[f"weight.{i}"])
            own = {name: tensors.get(f"adam.{i}.{name}") for name in ("step", "exp_avg", "exp_avg_sq")}
            if own["step"] is not None:  # Adam counts steps on the CPU
                moments = {name: own[name].to(weight.device) for name in ("exp_avg", "exp_avg_sq")}
                optimizer.state[weight] = {"step": own["step"], **moments}
        sides = sum(name.startswith("rows.") for name in tensors)
        candidates = [(tensors[f"rows.{i}"].numpy(), tensors[f"found.{i}"].numpy()) for i in range(sides)]
        return Progress(**json.loads((saved[-1] / "progress.json").read_text(encoding="utf-8"))), candidates

    def _saved(self) -> list[Path]:
        return sorted(self._folder.glob("saved-*"))


def forget() -> None:
    """Remove all, once the result is written."""
    shutil.rmtree(FOLDER, ignore_errors=True)
