"""One way to the language model that the params name: a folder of weights, or a server."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines import params
from pipelines.lm.protocol import LanguageModel


def open_lm(folder: Path, lm: params.LM, compute: params.Compute, *, scoring: bool = False) -> LanguageModel:
    """The model in `folder` (transformers), or behind `lm.url`, where the tokenizer in `folder`, if any, counts tokens.

    Raises LongtailError where the folder is no causal language model, the server does not answer, or `scoring` is asked
    of a server that can't: before any work, not after it.
    """
    if lm.source == "http":
        from pipelines.lm.http import HttpModel

        key = os.environ.get("LONGTAIL_API_KEY")
        model = HttpModel(lm.url, lm.path, folder, max_tokens=lm.max_tokens, api_key=key)
        if scoring:
            model.require_scoring()
        return model
    from pipelines.lm.local import LocalModel

    name = Path(lm.path).name if lm.path else "tiny"
    return LocalModel(
        folder, name=name, dtype=lm.dtype, batch_tokens=lm.batch_tokens, device=compute.device, threads=compute.threads
    )
