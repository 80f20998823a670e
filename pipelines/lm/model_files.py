"""Folders with a model's files: save a pretrained model to one, and tell a saved model's size and family."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path

from pipelines import shards
from pipelines.errors import LongtailError


def save_pretrained(kind, section: str, path: str | None, revision: str | None, out: Path) -> dict[str, float]:
    """Save a pretrained model and its tokenizer to the folder `out`; returns its number of parameters.

    `kind` is a transformers Auto class. `path` is a local folder or the name of a model on the Hub, which needs a
    pinned `revision`. Only safetensors are read. Raises LongtailError where `<section>.path` or a needed
    `<section>.revision` is not set, nothing can be loaded, or the weights belong to another model.
    """
    from transformers import AutoTokenizer

    check_pinned(f"{section}.path", path, revision)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision, trust_remote_code=False)
        model, loading_info = kind.from_pretrained(
            path, revision=revision, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise LongtailError(f"{path}: no model could be loaded: {' '.join(str(error).split())[:300]}") from None
    check_complete(path, model, loading_info)
    with shards.atomic(out) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {"parameters": float(model.num_parameters())}


def check_pinned(key: str, path: str | None, revision: str | None) -> None:
    """Raise LongtailError where the param `key` has no path, or a Hub name without a revision."""
    if not path:
        raise LongtailError(f"params.yaml: {key} is null, expected a local folder or a Hub name")
    if not Path(path).is_dir() and not revision:
        raise LongtailError(
            f"params.yaml: {key.replace('path', 'revision')} is null; {path} is no local folder, and a Hub model "
            "needs a pinned commit"
        )


def check_complete(path: str | Path, model, loading_info: Mapping[str, Collection[str]]) -> None:
    """Raise LongtailError where `path` lacks weights of `model`: transformers draws missing weights at random."""
    if missing := sorted(loading_info["missing_keys"]):
        raise LongtailError(
            f"{path}: has no weights for {len(missing)} of the parameters of {type(model).__name__}, {missing[0]} for "
            "one; expected a checkpoint of that model"
        )


def count_parameters(folder: Path) -> int | None:
    """How many parameters the weights in `folder` have; None where it has no safetensors files.

    Only the files' headers are read. A tensor with two names is stored, and counted, once. The attention masks in
    GPT-2's files are not parameters; they are called a bias, but have more than one dimension.
    """
    shapes: dict[str, list[int]] = {}
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        shapes |= {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
    counted = [shape for name, shape in shapes.items() if not (name.endswith(".bias") and len(shape) > 1)]
    return sum(map(math.prod, counted)) if counted else None


def family(folder: Path) -> str | None:
    """The architecture that config.json in `folder` names, such as gpt2, opt or bloom; None where it names none."""
    file = folder / "config.json"
    return json.loads(file.read_text(encoding="utf-8")).get("model_type") if file.is_file() else None
