"""What tests of LSR's training share: what it writes, and watching it."""

import shutil
from pathlib import Path

import torch
from small_project import TUNED

from pipelines.lsr.trainer import Trainer

METRICS = Path("data/metrics/lsr_dense.json")


def change(project, **changes):
    project.params.lsr = project.params.lsr.model_copy(update=changes)


def written() -> dict[str, bytes]:
    """The files of a training that is done."""
    return {str(path): path.read_bytes() for path in [*TUNED.rglob("*.*"), METRICS]}


def remove_training():
    for made in (TUNED, Path(".longtail")):
        shutil.rmtree(made)
    METRICS.unlink()


def weights(encoder) -> torch.Tensor:
    return torch.cat([weight.detach().ravel().clone() for weight in encoder.parameters()])


def watched(monkeypatch, owner, name, before):
    """`before` is called with the arguments of each call of a method, ahead of it."""
    real = getattr(owner, name)

    def call(*arguments, **keywords):
        before(*arguments)
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, name, call)


def steps_from_now(monkeypatch, before=lambda number: None) -> list[int]:
    """The numbers of the steps that are trained from now on; `before` is called ahead of each."""
    steps = []
    watched(monkeypatch, Trainer, "step", lambda _, number: (before(number), steps.append(number)))
    return steps
