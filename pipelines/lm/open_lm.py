"""One way to the language model that the params name: a folder of weights, or a server."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from pipelines import params, shards
from pipelines.lm.language_model import LanguageModel

MODELS = Path("data/models/lm")


def main_lm(chosen: SimpleNamespace) -> tuple[Path, params.LM]:
    """Folder and settings of the main language model, the first of `lms`: it answers, and the retriever is tuned to it.

    `chosen` are params with the sections lm and lms.
    """
    name = chosen.lms[0]
    return MODELS / name, chosen.lm[name]


def open_lm(folder: Path, lm: params.LM, compute: params.Compute, *, scoring: bool = False) -> LanguageModel:
    """The model in `folder` (transformers), or behind `lm.http.url`; then `folder` has its tokenizer, if one is named.

    Raises LongtailError where the folder is no causal language model, the server does not answer, or `scoring` is asked
    of a server that can't: before any work, not after it.
    """
    if lm.source == "http":
        from pipelines.lm.http_model import HttpModel

        model = HttpModel(folder, lm, os.environ.get("LONGTAIL_API_KEY"), shards.SCRATCH / "completions")
        if scoring:
            model.require("score")
        return model
    from pipelines.lm.local import LocalModel

    return LocalModel(
        folder,
        name=folder.name,
        dtype=lm.dtype,
        batch_tokens=lm.batch_tokens,
        device=compute.device,
        threads=compute.threads,
    )
