"""Open the language model that the params name: a local folder of weights, or a server."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from pipelines import params, shards
from pipelines.lm.language_model import LanguageModel

MODELS = Path("data/models/lm")


def supervising_lm(chosen: SimpleNamespace) -> tuple[Path, params.LM]:
    """Folder and settings of the language model that LSR tunes the retriever to.

    `chosen` are params with the sections lm and lsr.
    """
    name = chosen.lsr.lm
    return MODELS / name, chosen.lm[name]


def open_lm(folder: Path, lm: params.LM, compute: params.Compute, *, scoring: bool = False) -> LanguageModel:
    """Open the model whose weights are in `folder`, or the one served at `lm.http.url`.

    For a served model, `folder` holds its tokenizer, if the params name one. With `scoring` a local model reads texts
    without its chat template: what follows them is no answer. Raises LongtailError where the folder has no causal
    language model, the server does not answer, or `scoring` is needed and the server can't score.
    """
    if lm.source == "http":
        from pipelines.lm.http_model import HttpModel

        model = HttpModel(folder, lm, os.environ.get("LONGTAIL_API_KEY"), shards.SCRATCH / "completions")
        if scoring:
            model.abilities.require("score")
        return model
    from pipelines.lm.local import LocalModel

    return LocalModel(
        folder,
        name=folder.name,
        dtype=lm.dtype,
        batch_tokens=lm.batch_tokens,
        device=compute.device,
        threads=compute.threads,
        chat=lm.chat and not scoring,
    )
