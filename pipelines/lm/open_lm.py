"""Open the language model that the params name: local weights, or a model on a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.lm.language_model import LanguageModel, LocalAbilities, no_tokens
from pipelines.lm.model_files import check_config, count_parameters, max_tokens
from pipelines.lm.sizes import CPU_CACHE_BYTES
from pipelines.lm.token_prompts import read_tokenizer
from pipelines.params.param_types import LMName, Section
from pipelines.params.params import Compute
from pipelines.params.params_models import LM, LSR
from pipelines.storage.atomic import SCRATCH
from pipelines.work import workers

if TYPE_CHECKING:
    from pipelines.lm.local import LocalModel

MODELS = Path("data/models/lm")
BYTES_PER_WEIGHT = {"auto": 4, "fp32": 4, "bf16": 2, "int8": 1}
WORKING_SHARE = 1.2  # memory of a working model, as a share of its weights'
TORCH_BYTES = 1 << 29  # bytes that a process takes with torch and no model


class SupervisingSettings(Section):
    """The sections of params.yaml that name the language model that supervises LSR."""

    lm: dict[LMName, LM]
    lsr: LSR


def supervising_lm(settings: SupervisingSettings) -> tuple[Path, LM]:
    """Folder and settings of the language model that LSR tunes the retriever to."""
    name = settings.lsr.lm
    return MODELS / name, settings.lm[name]


def open_lm(folder: Path, lm: LM, compute: Compute, *, scoring: bool = False) -> LanguageModel:
    """Open the model whose weights are in `folder`, or whose tokenizer if it is on a server.

    With `scoring` a local model reads texts without its chat template. Raises LongtailError where
    the folder has no causal language model, the server does not answer, or `scoring` is needed and
    the server can't score.
    """
    if lm.http:
        from pipelines.lm.http_model import HttpModel

        model = HttpModel(folder, lm, os.environ.get("LONGTAIL_API_KEY"), SCRATCH / "completions")
        if scoring:
            model.require_scores()
        return model
    return open_local(folder, *_settings(lm, compute, scoring))


def open_local(
    folder: Path, lm: LM, compute: Compute, chat: bool, deterministic: bool
) -> LocalModel:
    """Open a local model in this process.

    If it is `deterministic`, torch sums in a fixed order on GPUs too.
    """
    if deterministic:
        # Without it, cuBLAS sums in no fixed order. torch reads it when it is imported.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    from pipelines.lm.local import LocalModel

    torch.use_deterministic_algorithms(deterministic)
    return LocalModel(
        folder,
        name=Path(folder).name,
        dtype=lm.dtype,
        batch_tokens=lm.batch_tokens,
        device=compute.device,
        threads=compute.threads,
        chat=chat,
    )


def _settings(lm: LM, compute: Compute, scoring: bool) -> tuple:
    """What `open_local` needs besides the folder.

    The model is deterministic if torch is so in this process.
    """
    import torch

    chat = lm.chat and not scoring
    return lm, compute, chat, torch.are_deterministic_algorithms_enabled()


@contextmanager
def lm_at_work(
    folder: Path, lm: LM, compute: Compute, *, scoring: bool = False
) -> Iterator[LanguageModel | LMWorkers]:
    """Yield the model for `workers.map_texts`, for this process or many. A served one is for one.

    Raises LongtailError as `open_lm` does, where the weights are opened.
    """
    if lm.http:
        yield open_lm(folder, lm, compute, scoring=scoring)
        return
    settings = _settings(lm, compute, scoring)
    if not compute.dask and compute.workers == 1:
        yield open_local(folder, *settings)
        return
    with LMWorkers(folder, settings) as lm_workers:
        yield lm_workers


class LMWorkers(workers.Workers, LocalAbilities):
    """A local model in many processes.

    It says what the model is and can do. The model itself is where its work is.
    """

    def __init__(self, folder: Path, settings: tuple) -> None:
        """A worker opens the model by `open_local(folder, *settings)`."""
        lm, compute, chat = settings[:3]
        check_config(folder)
        parameters = count_parameters(folder) or 0
        # On a CPU, each number format is compared with fp32 first.
        dtype = "fp32" if compute.device == "cpu" else lm.dtype
        weights_bytes = int(WORKING_SHARE * BYTES_PER_WEIGHT[dtype] * parameters)
        memory = weights_bytes + TORCH_BYTES + CPU_CACHE_BYTES
        model = workers.Model(open_local, folder, settings, parameters, memory)
        super().__init__(model, compute)
        self.name = Path(folder).name
        self.usage = no_tokens()
        self.begins = "" if chat else " "

    @cached_property
    def max_tokens(self) -> int:
        """The most tokens of prompt and continuation together."""
        return max_tokens(self.model.folder, read_tokenizer(self.model.folder))
