"""Folders with a model's files: save a pretrained model to one, and tell a saved model's size, family and limits."""

import json
import math
import os
import pickle
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from safetensors import SafetensorError

from pipelines.errors import LongtailError
from pipelines.lm import model_kinds
from pipelines.storage import shards

os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "true")  # else transformers has the Hub convert older weights
# What transformers raises for a folder that is not whole, or that another library is needed for:
UNREADABLE = (OSError, ValueError, KeyError, ImportError, SafetensorError, pickle.UnpicklingError)
LAYER = re.compile(r"\.\d+\.")  # in a weight's name, the number of its layer
NO_LIMIT = 1 << 30  # tokenizers without a limit report this number, or a larger one
WITHOUT_POSITIONS = 2048  # tokens read at once by a model without a limit (ALiBi): what BLOOM was trained on
CACHE_BYTES = 1 << 29  # keys and values of texts that are continued at once, or those of `batch_tokens` tokens if more


def save_pretrained(kind, section: str, path: str | None, revision: str | None, out: Path) -> dict[str, float]:
    """Save a pretrained model and its tokenizer to the folder `out`, in safetensors; returns its number of parameters.

    `kind` is a transformers Auto class, `path` a local folder or a name on the Hub, which needs a pinned `revision`.
    Raises LongtailError where one of them is not set, nothing can be loaded, or the weights are another model's.
    """
    check_pinned(f"{section}.path", path, revision)
    check_readable(path, revision)
    tokenizer = load_tokenizer(path, revision=revision)
    model, loading_info = load_pretrained(kind, path, revision)
    check_complete(path, model, loading_info)
    with shards.atomic(out) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {"parameters": float(model.num_parameters())}


def check_readable(path: str | Path, revision: str | None, subfolder: str = "") -> None:
    """Raise LongtailError where `path` has no model, or one whose weights can't be read."""
    from transformers.utils import cached_file

    folder = Path(path, subfolder)
    try:
        if folder.is_dir():
            model_kinds.check_folder(folder)
        else:
            config = cached_file(path, "config.json", revision=revision, subfolder=subfolder)
            model_kinds.check_quantised(model_kinds.read_object(Path(config)))
    except OSError as error:
        raise LongtailError(f"{path}: no model could be loaded: {_one_line(error)}") from None
    except LongtailError as error:
        raise LongtailError(f"{path}: {error}") from None


def load_tokenizer(path: str | Path, **place: str | None):
    """The tokenizer at `path`; LongtailError where there is none, for which transformers may make an empty one."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False, **place)
    except UNREADABLE as error:
        raise LongtailError(f"{path}: no tokenizer could be loaded: {_one_line(error)}") from None
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise LongtailError(f"{path}: a tokenizer without a vocabulary; expected tokenizer.json beside config.json")
    return tokenizer


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def load_pretrained(kind, path: str | Path, revision: str | None, **options) -> tuple:
    """The model of class `kind` at `path`, and what transformers says of its loading; `options` are from_pretrained's.

    Safetensors are preferred to PyTorch's older pickles, whose tensors are read without running code. Raises
    LongtailError where nothing can be loaded.
    """
    options |= {
        "revision": revision,
        "weights_only": True,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,
    }
    try:
        return kind.from_pretrained(path, trust_remote_code=False, **options)
    except pickle.UnpicklingError:
        raise LongtailError(
            f"{path}: its weights are a pickle that asks for more than tensors; none of its code was run; "
            "expected weights in safetensors, or a pickle of tensors alone"
        ) from None
    except (*UNREADABLE, RuntimeError) as error:
        raise LongtailError(f"{path}: no model could be loaded: {_one_line(error)}") from None


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
    """Raise LongtailError where `path` lacks weights of `model`, or has others: transformers draws these at random."""
    if missing := sorted(loading_info["missing_keys"]):
        raise LongtailError(
            f"{path}: has no weights for {len(missing)} of the parameters of {type(model).__name__}, {missing[0]} for "
            "one; expected a checkpoint of that model"
        )
    for name, shape, expected in sorted(loading_info["mismatched_keys"]):
        raise LongtailError(
            f"{path}: weights that do not fit config.json: {name} has the shape {list(shape)}, expected "
            f"{list(expected)}; fetch both again"
        )
    same = lambda name: LAYER.sub(".N.", name).removeprefix(f"{model.base_model_prefix}.")  # noqa: E731
    read = set(map(same, model.state_dict()))
    if further := sorted(name for name in loading_info["unexpected_keys"] if LAYER.search(name) and same(name) in read):
        raise LongtailError(
            f"{path}: weights of more layers than config.json says: {further[0]} for one, which the model lacks; fetch "
            "both again"
        )


def count_parameters(folder: Path) -> int | None:
    """How many parameters the weights in `folder` have; None where it has no safetensors files.

    Only the files' headers are read. The attention masks in GPT-2's files are no parameters: they are named bias, and
    have several dimensions. Raises LongtailError for a damaged file.
    """
    tensors: dict[str, dict] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= model_kinds.read_header(file)
    shapes = [
        tensor["shape"] for name, tensor in tensors.items() if not name.endswith(".bias") or len(tensor["shape"]) < 2
    ]
    return sum(map(math.prod, shapes)) if shapes else None


def family(folder: Path) -> str | None:
    """The architecture that config.json in `folder` names, such as gpt2, opt or bloom; None where it names none."""
    file = folder / "config.json"
    return json.loads(file.read_text(encoding="utf-8")).get("model_type") if file.is_file() else None


def max_tokens(folder: Path, tokenizer) -> int:
    """How many tokens the model in `folder` reads at once; its weights are not read."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()
    limits = [getattr(config, key, None) for key in ("max_position_embeddings", "n_positions", "seq_length")]
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":  # a longer text changes the frequencies for its whole batch
        limits.append(rope["original_max_position_embeddings"])
    limits.append(getattr(config, "index_topk", None))  # with more tokens, padding may change what is looked at
    limits = [int(limit) for limit in [*limits, tokenizer.model_max_length] if limit and limit < NO_LIMIT]
    return min(limits, default=WITHOUT_POSITIONS)
