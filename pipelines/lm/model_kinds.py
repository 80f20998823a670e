"""Models whose files Longtail can't read: what a folder holds, and what to do."""

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.storage.file_kinds import check_stand_in

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
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


def other_weights(name: str) -> str | None:
    """What a file of a model holds that transformers does not read, and what to do; None for any other file."""
    return next((f"{what} ({name}); {PLAIN}" for pattern, what in OTHERS.items() if fnmatch(name, pattern)), None)


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
        base = read_object(folder / "adapter_config.json").get("base_model_name_or_path") or "another model"
        merge = "merge the two with PEFT's merge_and_unload and save the result with its tokenizer"
        raise LongtailError(f"an adapter (LoRA, PEFT) of {base}; {merge}, {SERVED}")
    if "artifact.metadata" in names:
        raise LongtailError("a ColBERT, with a vector for each token; take an encoder that gives one vector for a text")
    check_quantised(config, names)
    weights, tokenizers = ([name for name in known if name in names] for known in (WEIGHTS, TOKENIZERS))
    if not weights:
        inside = sorted(file.name for pattern in ("*", "onnx/*") for file in folder.glob(pattern))
        known = next(filter(None, map(other_weights, inside)), None)
        raise LongtailError(known or f"a model without weights, in none of {', '.join(WEIGHTS)}")
    if not tokenizers:
        raise LongtailError("a model without a tokenizer; expected tokenizer.json in Hugging Face's layout")
    shards = read_object(folder / weights[0]).get("weight_map") if weights[0].endswith(".json") else {}
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
        whole = start + max((tensor["data_offsets"][1] for tensor in header.values()), default=0) <= size
    except (ValueError, AttributeError):
        whole = False
    if not whole:
        raise LongtailError(f"{file}: damaged or cut off, expected weights in safetensors; fetch or make them again")
    return header


def read_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} where there is no such file, or it holds none."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
