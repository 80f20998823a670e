"""Folders with a model's files: what can't be read, pretrained models saved to one, a saved model's size and limits."""

import json
import math
import os
import pickle
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pipelines.errors import LongtailError
from pipelines.storage.atomic import atomic
from pipelines.storage.file_kinds import check_stand_in

os.environ.setdefault(
    "DISABLE_SAFETENSORS_CONVERSION", "true"
)  # else transformers has the Hub convert older weights
# What transformers raises for a folder that is not whole, or that another library is needed for:
UNREADABLE = (OSError, ValueError, KeyError, ImportError, SafetensorError, pickle.UnpicklingError)
LAYER = re.compile(r"\.\d+\.")  # in a weight's name, the number of its layer
NO_LIMIT = 1 << 30  # tokenizers without a limit report this number, or a larger one
WITHOUT_POSITIONS = (
    2048  # tokens read at once by a model without a limit (ALiBi): what BLOOM was trained on
)
CACHE_BYTES = (
    1 << 29
)  # keys and values of texts that are continued at once, or those of `batch_tokens` tokens if more
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
QUANTISED = ("quantization_config", "compression_config", "quantization")  # keys of config.json
QUANTISED_BESIDE = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
ADAPTERS = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"}
SERVED = "or serve it and name the server under lm.<name>.http"
PLAIN = f"take the model's safetensors (or pytorch_model.bin) in Hugging Face's layout, {SERVED}"
OTHERS = {  # a file -> what a folder holds in place of weights that transformers reads
    "*.gguf": "weights for llama.cpp (GGUF)",
    "*.onnx": "weights for ONNX",
    "tf_model*.h5": "weights for TensorFlow",
    "flax_model*.msgpack": "weights for Flax",
    "consolidated*": "weights in Mistral's or LLaMA's own layout",
    "model-*.safetensors": "weights without model.safetensors.index.json",
    "pytorch_model-*.bin": "weights without pytorch_model.bin.index.json",
    "*.pt": "a checkpoint of PyTorch under a name of its own",
    "*.pth": "a checkpoint of PyTorch under a name of its own",
}


def save_pretrained(
    kind, section: str, path: str | None, revision: str | None, out: Path
) -> dict[str, float]:
    """Save a pretrained model and its tokenizer to the folder `out`, in safetensors; returns its number of parameters.

    `kind` is a transformers Auto class, `path` a local folder or a name on the Hub with a pinned `revision`. Raises
    LongtailError where nothing can be loaded, or the weights are another model's.
    """
    check_pinned(f"{section}.path", path, revision)
    check_readable(path, revision)
    tokenizer = load_tokenizer(path, revision=revision)
    model, loading_info = load_pretrained(kind, path, revision)
    check_complete(path, model, loading_info)
    with atomic(out) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {"parameters": float(model.num_parameters())}


def check_readable(path: str | Path, revision: str | None, subfolder: str = "") -> None:
    """Raise LongtailError where `path` has no model, or one whose weights can't be read."""
    from transformers.utils import cached_file

    folder = Path(path, subfolder)
    try:
        if folder.is_dir():
            check_folder(folder)
        else:
            config = cached_file(path, "config.json", revision=revision, subfolder=subfolder)
            check_quantised(read_object(Path(config)))
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
        raise LongtailError(
            f"{path}: a tokenizer without a vocabulary; expected tokenizer.json beside config.json"
        )
    return tokenizer


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def load_pretrained(kind, path: str | Path, revision: str | None, **options) -> tuple:
    """The model of class `kind` at `path`, and what transformers says of its loading; `options` are from_pretrained's.

    Safetensors are preferred to PyTorch's older pickles, whose tensors are read without running code. Raises
    LongtailError where nothing can be loaded.
    """
    options |= dict.fromkeys(
        ("weights_only", "output_loading_info", "ignore_mismatched_sizes"), True
    )
    try:
        return kind.from_pretrained(path, revision=revision, trust_remote_code=False, **options)
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
    if further := sorted(
        name
        for name in loading_info["unexpected_keys"]
        if LAYER.search(name) and same(name) in read
    ):
        raise LongtailError(
            f"{path}: weights of more layers than config.json says: {further[0]} for one, which the model lacks; fetch "
            "both again"
        )


def count_parameters(folder: Path) -> int | None:
    """How many parameters the safetensors in `folder` have, by their headers; None without such files.

    GPT-2's attention masks are none: they are named bias and have several dimensions. LongtailError for a damaged file.
    """
    tensors: dict[str, dict] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= read_header(file)
    shapes = [
        tensor["shape"]
        for name, tensor in tensors.items()
        if not name.endswith(".bias") or len(tensor["shape"]) < 2
    ]
    return sum(map(math.prod, shapes)) if shapes else None


def family(folder: Path) -> str | None:
    """The architecture that config.json in `folder` names, such as gpt2, opt or bloom; None where it names none."""
    file = folder / "config.json"
    return (
        json.loads(file.read_text(encoding="utf-8")).get("model_type") if file.is_file() else None
    )


def max_tokens(folder: Path, tokenizer) -> int:
    """How many tokens the model in `folder` reads at once; its weights are not read."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()
    limits = [
        getattr(config, key, None)
        for key in ("max_position_embeddings", "n_positions", "seq_length")
    ]
    rope = getattr(config, "rope_parameters", None) or {}
    if (
        rope.get("rope_type") == "longrope"
    ):  # a longer text changes the frequencies for its whole batch
        limits.append(rope["original_max_position_embeddings"])
    limits.append(
        getattr(config, "index_topk", None)
    )  # with more tokens, padding may change what is looked at
    limits = [
        int(limit) for limit in [*limits, tokenizer.model_max_length] if limit and limit < NO_LIMIT
    ]
    return min(limits, default=WITHOUT_POSITIONS)


def other_weights(name: str) -> str | None:
    """What a file of a model holds that transformers does not read, and what to do; None for any other file."""
    return next(
        (f"{what} ({name}); {PLAIN}" for pattern, what in OTHERS.items() if fnmatch(name, pattern)),
        None,
    )


def check_quantised(config: dict[str, Any], names: set[str] = frozenset()) -> None:
    """Raise LongtailError, which names no folder, for weights that config.json or a file beside it calls quantised."""
    for key in (*QUANTISED, *QUANTISED_BESIDE):
        said = config.get(key) or (config.get("text_config") or {}).get(key)
        if said or key in names:
            method = said.get("quant_method", key) if isinstance(said, dict) else key
            raise LongtailError(
                f"weights quantised by {method}, which are not read; take the checkpoint that they were made from, "
                f"{SERVED}"
            )


def check_folder(folder: Path) -> None:
    """Raise LongtailError, which names no folder, for one that is not whole, or has what transformers doesn't read."""
    names, config = {file.name for file in folder.iterdir()}, read_object(folder / "config.json")
    if names & ADAPTERS:
        base = (
            read_object(folder / "adapter_config.json").get("base_model_name_or_path")
            or "another model"
        )
        merge = "merge the two with PEFT's merge_and_unload and save the result with its tokenizer"
        raise LongtailError(f"an adapter (LoRA, PEFT) of {base}; {merge}, {SERVED}")
    if "artifact.metadata" in names:
        raise LongtailError(
            "a ColBERT, with a vector for each token; take an encoder that gives one vector for a text"
        )
    check_quantised(config, names)
    weights, tokenizers = (
        [name for name in known if name in names] for known in (WEIGHTS, TOKENIZERS)
    )
    if not weights:
        inside = sorted(file.name for pattern in ("*", "onnx/*") for file in folder.glob(pattern))
        known = next(filter(None, map(other_weights, inside)), None)
        raise LongtailError(known or f"a model without weights, in none of {', '.join(WEIGHTS)}")
    if not tokenizers:
        raise LongtailError(
            "a model without a tokenizer; expected tokenizer.json in Hugging Face's layout"
        )
    shards = (
        read_object(folder / weights[0]).get("weight_map") if weights[0].endswith(".json") else {}
    )
    listed = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else []
    whole = ("config.json", weights[0], *listed, *tokenizers)
    if missing := [name for name in whole if name not in names]:
        raise LongtailError(f"a model without {missing[0]}; fetch or copy it again")
    try:
        for name in whole:
            check_stand_in(folder / name)
            if name.endswith(".safetensors"):
                read_header(folder / name)
    except LongtailError as error:
        raise LongtailError(str(error).removeprefix(f"{folder}/")) from None
    if not config:
        raise LongtailError("config.json: no object of JSON with settings; fetch or copy it again")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # takes a second

    family, own_code = config.get("model_type"), "auto_map" in config
    if (family or own_code) and family not in CONFIG_MAPPING_NAMES:
        own = f"with code of its own ({family or 'auto_map'}), which is never run"
        new = f"of the type {family}, which the installed transformers does not know; take another, {SERVED}"
        raise LongtailError(f"a model {own if own_code else new}")


def read_header(file: Path) -> dict[str, dict]:
    """What the header of a file in safetensors says of each tensor. Raises LongtailError for one that is cut off."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            start = 8 + int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(min(start, size) - 8))
        header.pop("__metadata__", None)
        whole = (
            start + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
            <= size
        )
    except (ValueError, AttributeError):
        whole = False
    if not whole:
        raise LongtailError(
            f"{file}: damaged or cut off, expected weights in safetensors; fetch or make them again"
        )
    return header


def read_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} where there is no such file, or it holds none."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
