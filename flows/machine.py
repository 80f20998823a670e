"""The machine that `longtail init` writes a profile for, and how long the profile's work takes on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

import psutil

from flows.model_folders import LanguageModel
from pipelines.params.params import Compute
from pipelines.plan import amounts, speeds

GIB = 1 << 30
TOKENS = 128  # of a document
NEW_TOKENS = 15  # of an answer


class Machine(NamedTuple):
    cores: int
    memory: int  # bytes
    gpu: bool
    operations: float  # a second, of matrix products on one core or on the GPU


def this_machine() -> Machine:
    import torch

    gpu = torch.cuda.is_available()
    operations = speeds.matrix_products(1, "cuda" if gpu else "cpu", False)
    return Machine(os.cpu_count() or 1, psutil.virtual_memory().total, gpu, operations)


def answers(parts: dict, ways: Sequence[str], answer: dict, top_k: int) -> amounts.Reading:
    """What all `ways` ask a language model, at most; `answer` is the profile's section, `top_k` REPLUG's documents."""
    return amounts.answers(
        SimpleNamespace(
            parts=SimpleNamespace(**parts),
            ways=ways,
            answer=SimpleNamespace(**answer, passages=1, new_tokens=NEW_TOKENS),
            chunk=SimpleNamespace(tokens=TOKENS),
            replug=SimpleNamespace(top_k=top_k),
        )
    )


def answer_hours(asked: amounts.Reading, lms: Sequence[LanguageModel], compute: dict, machine: Machine) -> float:
    """Hours on the clock for all language models' answers, as `longtail plan` counts them; `compute` is the section."""
    settings = _compute(compute)
    of_process = speeds.SHARE * machine.operations * (1 if machine.gpu else settings.threads)
    seconds = [2.0 * tokens * lm.parameters / of_process for lm in lms for tokens in asked.stages]
    return speeds.together(seconds, speeds.side_by_side(settings, machine.gpu, machine.cores)) / 3600


def _compute(section: dict) -> Compute:
    return Compute(**{"executor": "local", "dask": None, "device": "cpu"} | section)


def shown(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(60 * hours))} minutes"
