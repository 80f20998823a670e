"""Models whose files Longtail can't read, or only after they are expanded: what a folder holds, and what to do."""

import json
import re
from collections.abc import Collection
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.storage.file_kinds import check_stand_in

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
EXPANDED = {  # quant_method -> the libraries with which transformers expands such weights; all others are refused
    "fp8": ("accelerate",), "mxfp8": ("accelerate",), "mxfp4": ("accelerate",),
    "bitsandbytes": ("accelerate", "bitsandbytes"),
}  # fmt: skip
CONFIGS = {  # where config.json says how weights are quantised -> by what, if no method is named there
    "quantization": "mlx",  # whose quantization_config says the same
    "quantization_config": "a method without a name",
    "compression_config": "compressed-tensors",
}
QUANTISED = {  # a file beside quantised weights -> quant_method, where config.json doesn't say
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
    "hf_quant_config.json": "modelopt",
    "quanto_qmap.json": "quanto",
    "qmodel.pt": "hqq",
    "mlc-chat-config.json": "mlc",
}
ADAPTERS = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"}
RETRIEVERS = {  # a file beside a retriever's weights that says that it is no encoder of one vector for a text
    "artifact.metadata": "a ColBERT, with a vector for each token",
}
SENTENCEPIECE = b"\n"  # how its files begin; tiktoken's, which may have the same name, begin with a token
MERGED = "merge the two with PEFT's merge_and_unload and save the result with its tokenizer"
ORIGINAL = "take the checkpoint that they were made from"
PLAIN = "take the model's safetensors (or pytorch_model.bin) in Hugging Face's layout"
SERVED = "or serve it and name the server under lm.<name>.http"
OTHERS = {  # a file -> what a folder holds in place of weights that transformers reads, and what to do with it
    "*.gguf": ("weights for llama.cpp (GGUF)", f"{PLAIN}, {SERVED} (llama-server)"),
    "*.onnx": ("weights for ONNX", PLAIN),
    "tf_model*.h5": ("weights for TensorFlow", f"{PLAIN}, which transformers 4 writes with from_tf=True"),
    "*.ckpt.index": ("weights for TensorFlow", f"{PLAIN}, which transformers 4 writes with from_tf=True"),
    "flax_model*.msgpack": ("weights for Flax", f"{PLAIN}, which transformers 4 writes with from_flax=True"),
    "consolidated*.safetensors": ("weights in Mistral's own layout", f"{PLAIN}, {SERVED} (vLLM)"),
    "consolidated*.pth": ("weights in LLaMA's own layout", f"{PLAIN}, or convert it with transformers' script"),
    "model-*.safetensors": ("weights without model.safetensors.index.json", "fetch or copy it again"),
    "pytorch_model-*.bin": ("weights without pytorch_model.bin.index.json", "fetch or copy it again"),
    "*.pt": ("a checkpoint of PyTorch under a name of its own", PLAIN),
    "*.pth": ("a checkpoint of PyTorch under a name of its own", PLAIN),
}
FOLDERS = (".", "onnx", "openvino")  # where published models have such files
NO_WEIGHTS = ("", ".json", ".txt", ".md", ".model", ".py", ".jinja")  # what may lie beside weights
UNREAD_SCALES = re.compile(r"(weight_scale(_inv|_2)?|weight_packed|qweight|qzeros|scales|SCB|absmax|quant_map)$")


def quantised(config: dict[str, Any], names: Collection[str] = ()) -> str | None:
    """How weights are quantised, as config.json or a file beside it says; None for plain weights."""
    for said_by, unnamed in CONFIGS.items():
        if said := config.get(said_by) or (config.get("text_config") or {}).get(said_by):
            method = said.get("quant_method") if isinstance(said, dict) else None
            return str(method or ("bitsandbytes" if "load_in_4bit" in said else unnamed))
    return next((method for name, method in QUANTISED.items() if name in names), None)


def other_weights(name: str) -> str | None:
    """What a file of a model holds that transformers does not read, and what to do; None for any other file."""
    found = (f"{what} ({name}); {to_do}" for pattern, (what, to_do) in OTHERS.items() if fnmatch(name, pattern))
    return next(found, None)


def check_quantised(config: dict[str, Any], names: Collection[str] = ()) -> str | None:
    """`quantised`, where transformers expands such weights; else LongtailError, which names no folder."""
    method = quantised(config, names)
    if method is not None and method not in EXPANDED:
        raise LongtailError(f"weights quantised by {method}, which are not read; {ORIGINAL}, {SERVED} (vLLM)")
    if missing := [library for library in EXPANDED.get(method, ()) if not find_spec(library)]:
        needed = f"which need {' and '.join(missing)}; pip install 'longtail[large]'"
        raise LongtailError(f"weights quantised by {method}, {needed}, or {ORIGINAL}")
    return method


def check_folder(folder: Path) -> None:
    """Raise LongtailError, which names no folder, for one that is not whole, or has what transformers doesn't read."""
    names, config = {file.name for file in folder.iterdir()}, read_object(folder / "config.json")
    if names & ADAPTERS:
        base = read_object(folder / "adapter_config.json").get("base_model_name_or_path") or "another model"
        raise LongtailError(f"an adapter (LoRA, PEFT) of {base}; {MERGED}, {SERVED}")
    if found := next((f"{what} ({name})" for name, what in RETRIEVERS.items() if name in names), None):
        raise LongtailError(f"{found}, which is not computed; take an encoder that gives one vector for a text")
    check_quantised(config, names)
    weights, tokenizers = ([name for name in known if name in names] for known in (WEIGHTS, TOKENIZERS))
    if not weights:
        inside = sorted(
            file for place in FOLDERS for file in folder.glob(f"{place}/*") if file.suffix not in NO_WEIGHTS
        )
        if known := next(filter(None, (other_weights(file.name) for file in inside)), None):
            raise LongtailError(known)
        if inside:
            largest = max(inside, key=lambda file: file.stat().st_size).name
            raise LongtailError(f"weights of a kind that is not read ({largest}); {PLAIN}")
        raise LongtailError(f"a model without weights, in none of {', '.join(WEIGHTS)}")
    shards = read_object(folder / weights[0]).get("weight_map") if weights[0].endswith(".json") else {}
    listed = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else []
    if missing := [name for name in listed if name not in names]:
        raise LongtailError(f"a model without {missing[0]}, which {weights[0]} lists; fetch or copy it again")
    if not tokenizers:
        own = ", only with tekken.json, Mistral's own" * ("tekken.json" in names)
        raise LongtailError(f"a model without a tokenizer{own}; expected tokenizer.json in Hugging Face's layout")
    if "config.json" not in names:
        raise LongtailError("a model without config.json; fetch or copy it again")
    for name in ("config.json", weights[0], *listed, *tokenizers):
        try:
            check_stand_in(folder / name)
        except LongtailError as error:
            raise LongtailError(str(error).removeprefix(f"{folder}/")) from None
        if not (folder / name).stat().st_size:
            raise LongtailError(f"{name}: empty, expected data; fetch or copy it again")
        if name.endswith(".safetensors") and _cut(folder / name):
            raise LongtailError(f"{name}: damaged or cut off, expected weights in safetensors; fetch or copy it again")
    if not config:
        raise LongtailError("config.json: no object of JSON with settings; fetch or copy it again")
    family, own_code = config.get("model_type"), "auto_map" in config
    if (family or own_code) and not _known(family):
        own = f"with code of its own ({family or 'auto_map'}), which is never run"
        new = f"of the type {family}, which the installed transformers does not know; {PLAIN} of a known type, {SERVED}"
        raise LongtailError(f"a model {own if own_code else new}")
    pieces = [name for name in tokenizers if name.endswith(".model") and _starts(folder / name, SENTENCEPIECE)]
    if pieces and "tokenizer.json" not in names and not find_spec("sentencepiece"):
        raise LongtailError(
            f"a tokenizer only in {pieces[0]} (SentencePiece); where sentencepiece is installed, write tokenizer.json: "
            "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )


def _starts(file: Path, start: bytes) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(start)) == start


def _cut(file: Path) -> bool:
    """Whether a file in safetensors has no header, or ends before its last tensor does."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            start = 8 + int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(min(start, size) - 8))
        return start + max((tensor.get("data_offsets", [0])[-1] for tensor in header.values()), default=0) > size
    except (ValueError, AttributeError):
        return True


def _known(family: str) -> bool:
    """Whether transformers has code of its own for models of a family."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # takes a second

    return family in CONFIG_MAPPING_NAMES


def read_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} where there is no such file, or it holds none."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
