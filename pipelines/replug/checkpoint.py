"""What a killed LSR training goes on from: weights, Adam's moments, curve, and what was made by encoders on the way.

.longtail/lsr/<key>/ holds saved-<n>/ (state.safetensors, progress.json); model-<step>/, a Hugging Face folder, of the
encoders that are still asked for, the best so far among them; index-<step>/<corpus>/ by the last of them that needed
one; and round-<number>/ (validation.json, candidates.safetensors). The key names all inputs and params, so that with
others training starts anew.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from pipelines import shards
from pipelines.retrieval.encoder import Encoder

FOLDER = shards.SCRATCH / "lsr"


@dataclass
class Progress:
    step: int = 0  # steps done
    round: int = 0  # the one they are in, or were when it was saved
    curve: list[dict[str, float]] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Candidates:
    """Of one side's training queries in a round: documents, and what the language model says with each."""

    rows: np.ndarray  # (n,) of the side's queries, ascending
    found: np.ndarray  # (n, k) positions
    targets: np.ndarray  # (n, k) L(y | d, x)
    gains: np.ndarray  # (n, k) nats per token that the document helps the language model, over none


class Checkpoints:
    """Those of one training. A new one is there, whole, before the last one goes."""

    def __init__(self, key: str) -> None:
        self._folder = FOLDER / key

    def model(self, step: int) -> Path:
        """Where the encoder lies as it was after so many steps."""
        return self._folder / f"model-{step:08d}"

    def index(self, step: int) -> Path:
        """Where the corpora lie as embedded by that encoder."""
        return self._folder / f"index-{step:08d}"

    def forget_indexes(self, but: int) -> None:
        for old in {*self._folder.glob("index-*")} - {self.index(but)}:
            shutil.rmtree(old)

    def has(self, number: int) -> bool:
        return self._round(number).exists()

    def write(self, number: int, validation: dict[str, float], candidates: Sequence[Candidates]) -> None:
        """A round: `validation` is a row of Progress's, `candidates` are by side."""
        arrays = {
            f"{i}.{name}": np.ascontiguousarray(array)
            for i, one in enumerate(candidates)
            for name, array in vars(one).items()
        }
        with shards.atomic(self._round(number)) as folder:
            folder.mkdir()
            (folder / "validation.json").write_text(json.dumps(validation), encoding="utf-8")
            save_arrays(arrays, folder / "candidates.safetensors")

    def read(self, number: int) -> tuple[dict[str, float], list[Candidates]]:
        """What was written of a round."""
        arrays = load_arrays(self._round(number) / "candidates.safetensors")
        names = [one.name for one in dataclasses.fields(Candidates)]
        sides = [Candidates(*(arrays[f"{i}.{name}"] for name in names)) for i in range(len(arrays) // len(names))]
        return json.loads((self._round(number) / "validation.json").read_text(encoding="utf-8")), sides

    def save(
        self, progress: Progress, encoder: Encoder, optimizer: torch.optim.Optimizer, models: Iterable[int]
    ) -> None:
        """Keep the state of this moment; of the encoders before, only those after the steps `models`."""
        tensors = {}
        for i, weight in enumerate(encoder.parameters()):
            tensors[f"weight.{i}"] = weight.detach()
            tensors |= {f"adam.{i}.{name}": value for name, value in optimizer.state.get(weight, {}).items()}
        saved = self._saved()
        number = int(saved[-1].name.removeprefix("saved-")) + 1 if saved else 0
        with shards.atomic(self._folder / f"saved-{number:08d}") as folder:
            folder.mkdir()
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "state.safetensors")
            (folder / "progress.json").write_text(json.dumps(dataclasses.asdict(progress)), encoding="utf-8")
        past = {one for one in self._folder.glob("round-*") if one < self._round(progress.round)}
        unasked = {*self._folder.glob("model-*")} - {self.model(step) for step in models}
        for old in {*saved, *past, *unasked}:
            shutil.rmtree(old)

    def load(self, encoder: Encoder, optimizer: torch.optim.Optimizer) -> Progress:
        """Put the last one's weights into `encoder` and its moments into `optimizer`; without one nothing is done."""
        saved = self._saved()
        if not saved:
            return Progress()
        tensors = load_file(saved[-1] / "state.safetensors")
        for i, weight in enumerate(encoder.parameters()):
            weight.data.copy_(tensors[f"weight.{i}"])
            own = {name: tensors.get(f"adam.{i}.{name}") for name in ("step", "exp_avg", "exp_avg_sq")}
            if own["step"] is not None:  # Adam counts steps on the CPU
                moments = {name: own[name].to(weight.device) for name in ("exp_avg", "exp_avg_sq")}
                optimizer.state[weight] = {"step": own["step"], **moments}
        return Progress(**json.loads((saved[-1] / "progress.json").read_text(encoding="utf-8")))

    def _round(self, number: int) -> Path:
        return self._folder / f"round-{number:06d}"

    def _saved(self) -> list[Path]:
        return sorted(self._folder.glob("saved-*"))


def forget() -> None:
    """Remove all, once the result is written."""
    shutil.rmtree(FOLDER, ignore_errors=True)
