"""What a killed LSR training goes on from beside its checkpoint: what was made by encoders on the way.

In the checkpoints' folder lie model-<step>/, a Hugging Face folder, of the encoders that are still asked for, the best
so far among them; index-<step>/<corpus>/ by the last of them that needed one; and round-<number>/ (validation.json,
candidates.safetensors).
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
from safetensors.numpy import load_file, save_file

from pipelines import shards
from pipelines.checkpoint import Checkpoints
from pipelines.retrieval.encoder import Encoder


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


class Rounds(Checkpoints):
    """The checkpoints of one LSR training, and its rounds."""

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
            save_file(arrays, folder / "candidates.safetensors")

    def read(self, number: int) -> tuple[dict[str, float], list[Candidates]]:
        """What was written of a round."""
        arrays = load_file(self._round(number) / "candidates.safetensors")
        names = [one.name for one in dataclasses.fields(Candidates)]
        sides = [Candidates(*(arrays[f"{i}.{name}"] for name in names)) for i in range(len(arrays) // len(names))]
        return json.loads((self._round(number) / "validation.json").read_text(encoding="utf-8")), sides

    def keep(
        self, progress: Progress, encoder: Encoder, optimizer: torch.optim.Optimizer, models: Iterable[int]
    ) -> None:
        """Save the state of this moment; of the encoders before, keep only those after the steps `models`."""
        self.save(dataclasses.asdict(progress), encoder.parameters(), optimizer)
        past = {one for one in self._folder.glob("round-*") if one < self._round(progress.round)}
        unasked = {*self._folder.glob("model-*")} - {self.model(step) for step in models}
        for old in {*past, *unasked}:
            shutil.rmtree(old)

    def _round(self, number: int) -> Path:
        return self._folder / f"round-{number:06d}"
