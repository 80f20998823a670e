"""A pretrained model and its tokenizer, from a local folder or a pinned commit on the Hub, into a folder of ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pipelines import shards
from pipelines.errors import LongtailError


def save_pretrained(kind, section: str, path: str | None, revision: str | None, out: Path) -> dict[str, float]:
    """Save the `kind` (a transformers Auto class) of model in a local folder or, pinned, on the Hub, and its tokenizer.

    Only safetensors are read. Raises LongtailError where `<section>.path` or a needed `<section>.revision` isn't set,
    nothing can be loaded, or the weights are another model's.
    """
    from transformers import AutoTokenizer

    check_pinned(f"{section}.path", path, revision)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision, trust_remote_code=False)
        model, found = kind.from_pretrained(
            path, revision=revision, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise LongtailError(f"{path}: no model could be loaded: {' '.join(str(error).split())[:300]}") from None
    check_complete(path, model, found)
    with shards.atomic(out) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {"parameters": float(model.num_parameters())}


def check_complete(path: str | Path, model, found: Mapping[str, Collection[str]]) -> None:
    """Raise LongtailError where `path` lacks weights of `model`, which transformers then draws at random.

    `found` is its loading info.
    """
    if missing := sorted(found["missing_keys"]):
        raise LongtailError(
            f"{path}: has no weights for {len(missing)} of the parameters of {type(model).__name__}, {missing[0]} for "
            "one; expected a checkpoint of that model"
        )


def check_pinned(key: str, path: str | None, revision: str | None) -> None:
    """Raise LongtailError where the param `key`, a path, isn't set, or its revision isn't and `path` is no folder."""
    if not path:
        raise LongtailError(f"params.yaml: {key} is null, expected a local folder or a Hub name")
    if not Path(path).is_dir() and not revision:
        raise LongtailError(
            f"params.yaml: {key.replace('path', 'revision')} is null; {path} is no local folder, and a Hub model "
            "needs a pinned commit"
        )
