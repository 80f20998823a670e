"""The machine that `longtail init` writes a profile for, and how long the profile's work takes on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

import psutil

from flows.model_folders import Encoder, LanguageModel
from pipelines.lsr import plan, speed, workload
from pipelines.sources.streams import DECOMPRESSORS

GIB = 1 << 30
TOKENS = 128  # of a document
NEW_TOKENS = 15  # of an answer
ENSEMBLE = 10  # documents in REPLUG's ensemble


class Machine(NamedTuple):
    cores: int
    memory: int  # bytes
    gpu: bool
    operations: float  # a second, of matrix products on one core or on the GPU


def this_machine() -> Machine:
    import torch

    gpu = torch.cuda.is_available()
    operations = speed.matrix_products(1, "cuda" if gpu else "cpu", gpu)
    return Machine(os.cpu_count() or 1, psutil.virtual_memory().total, gpu, operations)


def answer_hours(
    parts: dict, retrievers: Sequence[str], lms: Sequence[LanguageModel], n_shots: int, written: int, machine: Machine
) -> float:
    """Hours that all methods take, at most, to answer a question of each set, by all language models."""
    answer = {"max_questions": 1, "n_shots": n_shots, "passages": 1, "passage_tokens": written}
    asked = workload.answers(
        SimpleNamespace(
            parts=SimpleNamespace(**parts),
            retrievers=retrievers,
            answer=SimpleNamespace(**answer, new_tokens=NEW_TOKENS),
            chunk=SimpleNamespace(tokens=TOKENS),
            replug=SimpleNamespace(top_k=ENSEMBLE),
        )
    )
    return sum(_seconds(asked.tokens * lm.parameters, machine) for lm in lms) / 3600


def embedding_hours(corpora: Sequence[str], files: dict, encoder: Encoder, machine: Machine) -> str:
    """How long the documents take to embed, by the files' sizes; "" where that is less than a quarter of an hour."""
    paths = [file for corpus in corpora for file in files[corpus]]
    packed = (*DECOMPRESSORS, ".parquet")
    size = sum(file.stat().st_size * (1 if file.suffix in packed else 0.4) for file in paths)
    documents = int(size / plan.DOCUMENT)
    hours = _seconds(documents * TOKENS * encoder.parameters, machine) / 3600
    if hours < 0.25:
        return ""
    bound = f"corpus.{corpora[0]}.documents: 100000 would draw fewer"
    return f"To embed about {documents:,} documents takes about {shown(hours)} here; {bound}."


def _seconds(weights_read: float, machine: Machine) -> float:
    """Seconds of forward passes: two operations for each weight and token."""
    return 2 * weights_read / (speed.SHARE * machine.operations * (1 if machine.gpu else machine.cores))


def shown(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(60 * hours))} minutes"
