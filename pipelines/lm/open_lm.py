"""Open the language model that the params name: a local folder of weights, in one process or many, or a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pipelines.errors import LongtailError
from pipelines.lm.language_model import LanguageModel, no_tokens
from pipelines.lm.model_files import CACHE_BYTES, count_parameters, max_tokens
from pipelines.lm.token_prompts import read_tokenizer
from pipelines.params import params
from pipelines.storage.atomic import SCRATCH
from pipelines.work import workers

if TYPE_CHECKING:
    from pipelines.lm.local import LocalModel

MODELS = Path("data/models/lm")
WIDTHS = {"fp32": 4, "bf16": 2, "int8": 1}  # bytes of a weight
ROOM = 1.2  # memory of a working model, in its weights
TORCH = 1 << 29  # bytes that a process takes with torch and no model


def supervising_lm(chosen: SimpleNamespace) -> tuple[Path, params.LM]:
    """Folder and settings of the language model that LSR tunes the retriever to, by the sections lm and lsr."""
    name = chosen.lsr.lm
    return MODELS / name, chosen.lm[name]


def open_lm(
    folder: Path, lm: params.LM, compute: params.Compute, *, scoring: bool = False
) -> LanguageModel:
    """Open the model whose weights (or, of a served one, whose tokenizer) are in `folder`.

    With `scoring` a local model reads texts without its chat template. Raises LongtailError where the folder has no
    causal language model, the server does not answer, or `scoring` is needed and the server can't score.
    """
    if lm.source == "http":
        from pipelines.lm.http_model import HttpModel

        model = HttpModel(folder, lm, os.environ.get("LONGTAIL_API_KEY"), SCRATCH / "completions")
        if scoring:
            model.require("score")
        return model
    return open_local(folder, *_settings(lm, compute, scoring))


def open_local(
    folder: Path, lm: params.LM, compute: params.Compute, chat: bool, deterministic: bool
) -> LocalModel:
    """Open a local model in whichever process; `deterministic` has torch sum in a fixed order on GPUs too."""
    if deterministic:
        os.environ.setdefault(
            "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
        )  # without it, cuBLAS sums in no fixed order
    import torch

    from pipelines.lm.local import LocalModel

    torch.use_deterministic_algorithms(deterministic)
    options = {
        "dtype": lm.dtype,
        "batch_tokens": lm.batch_tokens,
        "device": compute.device,
        "threads": compute.threads,
    }
    return LocalModel(folder, name=Path(folder).name, chat=chat, **options)


def _settings(lm: params.LM, compute: params.Compute, scoring: bool) -> tuple:
    """What `open_local` needs besides the folder; the process that asks may have asked for fixed sums itself."""
    import torch

    return lm, compute, lm.chat and not scoring, torch.are_deterministic_algorithms_enabled()


@contextmanager
def lm_at_work(
    folder: Path, lm: params.LM, compute: params.Compute, *, scoring: bool = False
) -> Iterator[LanguageModel | LMWorkers]:
    """Yield the model for `workers.map_texts`: open in this process, as one that is served, or for many processes.

    Raises LongtailError as `open_lm` does, where the weights are opened.
    """
    if lm.source == "http" or (compute.executor, compute.workers) == ("local", 1):
        yield open_lm(folder, lm, compute, scoring=scoring)
        return
    with LMWorkers(folder, lm, compute, scoring) as many:
        yield many


class LMWorkers(workers.Workers):
    """A local model in many processes. It says what the model is and can do; the model itself is where its work is."""

    def __init__(self, folder: Path, lm: params.LM, compute: params.Compute, scoring: bool) -> None:
        if not (Path(folder) / "config.json").is_file():
            raise LongtailError(
                f"{folder}: no config.json, expected a causal language model in Hugging Face's layout"
            )
        parameters = count_parameters(folder) or 0
        width = (
            4 if compute.device == "cpu" else WIDTHS[lm.dtype]
        )  # on a CPU, each format is compared with fp32 first
        memory = int(ROOM * width * parameters) + TORCH + CACHE_BYTES
        settings = _settings(lm, compute, scoring)
        super().__init__(workers.Model(open_local, folder, settings, parameters, memory), compute)
        self.name, self.usage = Path(folder).name, no_tokens()
        self.scores = self.mixes = self.votes = True
        self.begins = "" if lm.chat and not scoring else " "

    @cached_property
    def max_tokens(self) -> int:
        return max_tokens(self.model.folder, read_tokenizer(self.model.folder))
