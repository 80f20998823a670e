"""Check, load and save folders with a model's files, and read a saved model's size and limits."""

import json
import math
import os
import pickle
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NoReturn

from safetensors import SafetensorError

from pipelines.errors import LongtailError
from pipelines.storage.atomic import atomic, read_json
from pipelines.storage.file_kinds import check_stand_in

# Otherwise transformers has the Hub convert older weights.
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "true")
# What transformers raises for a folder that is not complete, or that needs another library.
UNREADABLE = (OSError, ValueError, KeyError, ImportError, SafetensorError, pickle.UnpicklingError)
LAYER = re.compile(r"\.\d+\.")  # in a weight's name, the number of its layer
NO_LIMIT = 1 << 30  # tokenizers without a limit report this number, or a larger one
# Tokens read at once by a model without a limit (ALiBi): those that BLOOM was trained on.
TOKENS_WITHOUT_LIMIT = 2048
MESSAGE_LENGTH = 300  # characters of a library's message that are shown
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
# Types whose model in transformers was made from the code that the models' folders name.
PORTED = {"nomic_bert", "eurobert", "gte", "jina_embeddings_v3"}
ADAPTERS = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"}
SERVE = "or serve it and name the server under lm.<name>.http"
TAKE_OTHERS = (
    f"take the model's safetensors (or pytorch_model.bin) in Hugging Face's layout, {SERVE}"
)
# A file's pattern -> what a folder holds in place of weights that transformers reads.
OTHER_WEIGHTS = {
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


def check_own_code(folder: Path, auto_class: str) -> None:
    """Look at the code that a model's folder names as its own, which is never run.

    `auto_class` is the class of transformers that loads the model. Raises LongtailError where this
    code would take its place or the tokenizer's, as many encoders give other vectors by it. Most
    language models were taken over into transformers, so a line is printed for them. The error
    names no folder.
    """
    code: dict[str, Any] = {}  # a class of transformers -> the folder's own
    for name in ("config.json", "tokenizer_config.json"):
        classes = read_object(folder / name).get("auto_map") or {}
        if not isinstance(classes, dict):  # the older form, of tokenizers alone
            classes = {"AutoTokenizer": classes}
        code |= classes
    if not code:
        return

    family = read_object(folder / "config.json").get("model_type")
    names = ", ".join(code)
    decides = auto_class in code or "AutoTokenizer" in code
    if decides and auto_class != "AutoModelForCausalLM" and family not in PORTED:
        raise LongtailError(
            f"a model with code of its own ({names}), which is never run, and transformers' model "
            f"of the type {family} may give other numbers; take a model whose files name no code "
            "(no auto_map)"
        )
    message = f"its own code is not run ({names}); transformers' of the type {family} is"
    print(f"warning: {folder}: {message}")


def save_pretrained(
    auto_class, section: str, path: str | None, revision: str | None, out: Path
) -> dict[str, float]:
    """Save a pretrained model and its tokenizer to the folder `out`, in safetensors.

    `auto_class` is one of transformers, `path` a local folder or a name on the Hub with a pinned
    `revision`. Returns the number of parameters. Raises LongtailError where nothing can be loaded,
    or the weights are another model's.
    """
    check_pinned(f"{section}.path", path, revision)
    check_readable(path, revision, auto_class.__name__)
    tokenizer = load_tokenizer(path, revision=revision)
    model, loading_info = load_pretrained(auto_class, path, revision)
    check_complete(path, model, loading_info)
    padding_token(path, model, tokenizer)
    with atomic(out) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {"parameters": float(model.num_parameters())}


def check_readable(
    path: str | Path, revision: str | None, auto_class: str, subfolder: str = ""
) -> None:
    """Raise LongtailError where `path` has no model, or one that can't be read.

    `auto_class` is the class of transformers that loads it.
    """
    from transformers.utils import cached_file

    folder = Path(path, subfolder)
    try:
        if folder.is_dir():
            check_folder(folder)
        else:
            config = cached_file(path, "config.json", revision=revision, subfolder=subfolder)
            check_quantised(read_object(Path(config)))
        check_own_code(settings_folder(path, revision) / subfolder, auto_class)
    except OSError as error:
        raise LongtailError(f"{path}: no model could be loaded: {_one_line(error)}") from None
    except LongtailError as error:
        raise LongtailError(f"{path}: {error}") from None


def settings_folder(path: str | Path, revision: str | None) -> Path:
    """A local folder with the JSON files of the model at `path`, which may be a name on the Hub."""
    from huggingface_hub import snapshot_download

    if Path(path).is_dir():
        return Path(path)
    return Path(snapshot_download(str(path), revision=revision, allow_patterns="*.json"))


def load_tokenizer(path: str | Path, **place: str | None):
    """The tokenizer at `path`.

    Raises LongtailError where there is none, for which transformers may make an empty one.
    """
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
    return " ".join(str(error).split())[:MESSAGE_LENGTH]


def load_pretrained(auto_class, path: str | Path, revision: str | None, **options) -> tuple:
    """The model of a transformers class at `path`, and transformers' report of its loading.

    `options` are those of from_pretrained. Safetensors are preferred to PyTorch's older pickles,
    whose tensors are read without running code. Raises LongtailError where nothing can be loaded.
    """
    try:
        return auto_class.from_pretrained(
            path,
            revision=revision,
            trust_remote_code=False,
            weights_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    except pickle.UnpicklingError:
        raise LongtailError(
            f"{path}: its weights are a pickle that asks for more than tensors; none of its code "
            "was run; expected weights in safetensors, or a pickle of tensors alone"
        ) from None
    except (*UNREADABLE, RuntimeError) as error:
        raise LongtailError(f"{path}: no model could be loaded: {_one_line(error)}") from None


def check_config(folder: Path) -> None:
    """Raise LongtailError where `folder` has no config.json, as every model has."""
    if not Path(folder, "config.json").is_file():
        raise LongtailError(
            f"{folder}: no config.json, expected a causal language model in Hugging Face's layout"
        )


def check_pinned(key: str, path: str | None, revision: str | None) -> None:
    """Raise LongtailError where the param `key` has no path, or a Hub name without a revision."""
    if not path:
        raise LongtailError(f"params.yaml: {key} is null, expected a local folder or a Hub name")
    if not Path(path).is_dir() and not revision:
        raise LongtailError(
            f"params.yaml: {key.replace('path', 'revision')} is null; {path} is no local folder, "
            "and a Hub model needs a pinned commit"
        )


def check_complete(path: str | Path, model, loading_info: Mapping[str, Collection[str]]) -> None:
    """Raise LongtailError where `path` lacks weights of `model`, or has others.

    transformers would draw what is missing at random.
    """
    missing = sorted(loading_info["missing_keys"])
    if missing:
        raise LongtailError(
            f"{path}: has no weights for {len(missing)} of the parameters of "
            f"{type(model).__name__}, {missing[0]} for one; expected a checkpoint of that model"
        )
    for name, shape, expected in sorted(loading_info["mismatched_keys"]):
        raise LongtailError(
            f"{path}: weights that do not fit config.json: {name} has the shape {list(shape)}, "
            f"expected {list(expected)}; fetch both again"
        )

    def without_layer(name: str) -> str:
        return LAYER.sub(".N.", name).removeprefix(f"{model.base_model_prefix}.")

    known = set(map(without_layer, model.state_dict()))
    for name in sorted(loading_info["unexpected_keys"]):
        if LAYER.search(name) and without_layer(name) in known:
            raise LongtailError(
                f"{path}: weights of more layers than config.json says: {name} for one, which the "
                "model lacks; fetch both again"
            )


def padding_token(path: str | Path, model, tokenizer, *, chat: bool = False) -> int:
    """The id of the token that fills up shorter texts, for which any of the model's does.

    Raises LongtailError where another token that texts have, or with `chat` its template, is beyond
    the model's embeddings.
    """
    n_tokens = model.get_input_embeddings().num_embeddings
    pad = tokenizer.pad_token_id or 0
    template = str(tokenizer.chat_template) if chat else ""
    of_texts = {*tokenizer("a")["input_ids"], tokenizer.bos_token_id}
    added = tokenizer.added_tokens_decoder
    for token, number in tokenizer.get_vocab().items():
        if number < n_tokens:
            continue
        is_special = number in added and added[number].special
        if not is_special or number in of_texts or token in template:
            raise LongtailError(
                f"{path}: its tokenizer has the token {token!r} ({number}), but the model has "
                f"embeddings of {n_tokens} tokens; take the tokenizer that it was trained with"
            )
    return pad if pad < n_tokens else 0


def count_parameters(folder: Path) -> int | None:
    """How many parameters the safetensors in `folder` have, by their headers.

    None without such files. GPT-2's attention masks do not count. They are named bias and have
    several dimensions. Raises LongtailError for a damaged file.
    """
    tensors: dict[str, dict] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= read_header(file)
    sizes = []
    for name, tensor in tensors.items():
        is_mask = name.endswith(".bias") and len(tensor["shape"]) >= 2
        if not is_mask:
            sizes.append(math.prod(tensor["shape"]))
    return sum(sizes) if sizes else None


def family(folder: Path) -> str | None:
    """The architecture that config.json in `folder` names, such as gpt2; None where it has none."""
    return read_object(folder / "config.json").get("model_type")


def max_tokens(folder: Path, tokenizer) -> int:
    """How many tokens the model in `folder` reads at once; its weights are not read."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()
    # With more tokens than index_topk, padding may change what is looked at.
    keys = ("max_position_embeddings", "n_positions", "seq_length", "index_topk")
    limits = [getattr(config, key, None) for key in keys]
    limits.append(tokenizer.model_max_length)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        # A longer text changes the frequencies for all of its batch.
        limits.append(rope["original_max_position_embeddings"])

    known = [int(limit) for limit in limits if limit and limit < NO_LIMIT]
    return min(known, default=TOKENS_WITHOUT_LIMIT)


def other_weights(name: str) -> str | None:
    """What a model's file holds that transformers does not read, and what to do.

    None for any other file.
    """
    for pattern, content in OTHER_WEIGHTS.items():
        if fnmatch(name, pattern):
            return f"{content} ({name}); {TAKE_OTHERS}"
    return None


def check_quantised(config: dict[str, Any], names: set[str] = frozenset()) -> None:
    """Raise LongtailError for weights that config.json, or a file beside it, calls quantised.

    The message names no folder.
    """
    text_config = config.get("text_config") or {}
    for key in (*QUANTISED, *QUANTISED_BESIDE):
        quantisation = config.get(key) or text_config.get(key)
        if not quantisation and key not in names:
            continue
        method = key
        if isinstance(quantisation, dict):
            method = quantisation.get("quant_method", key)
        raise LongtailError(
            f"weights quantised by {method}, which are not read; take the checkpoint that they "
            f"were made from, {SERVE}"
        )


def check_folder(folder: Path) -> None:
    """Raise LongtailError for a folder that lacks files, or has what transformers doesn't read.

    The message names no folder.
    """
    names = {file.name for file in folder.iterdir()}
    config = read_object(folder / "config.json")
    if names & ADAPTERS:
        adapter = read_object(folder / "adapter_config.json")
        base = adapter.get("base_model_name_or_path") or "another model"
        merge = "merge the two with PEFT's merge_and_unload and save the result with its tokenizer"
        raise LongtailError(f"an adapter (LoRA, PEFT) of {base}; {merge}, {SERVE}")
    if "artifact.metadata" in names:
        raise LongtailError(
            "a ColBERT, with a vector for each token; take an encoder that gives one vector for a "
            "text"
        )
    check_quantised(config, names)

    _check_files(folder, names)
    if not config:
        raise LongtailError("config.json: no object of JSON with settings; fetch or copy it again")
    _check_family(config)


def _check_files(folder: Path, names: set[str]) -> None:
    """Raise LongtailError where the folder lacks one of a model's files, or one is damaged."""
    weights = [name for name in WEIGHTS if name in names]
    if not weights:
        _refuse_without_weights(folder)
    tokenizers = [name for name in TOKENIZERS if name in names]
    if not tokenizers:
        raise LongtailError(
            "a model without a tokenizer; expected tokenizer.json in Hugging Face's layout"
        )

    shards = _shards(folder / weights[0])
    needed = ["config.json", weights[0], *shards, *tokenizers]
    for name in needed:
        if name not in names:
            raise LongtailError(f"a model without {name}; fetch or copy it again")
    try:
        for name in needed:
            check_stand_in(folder / name)
            if name.endswith(".safetensors"):
                read_header(folder / name)
    except LongtailError as error:
        raise LongtailError(str(error).removeprefix(f"{folder}/")) from None


def _refuse_without_weights(folder: Path) -> NoReturn:
    """Raise LongtailError that says what the folder has in place of weights."""
    files = [*folder.glob("*"), *folder.glob("onnx/*")]
    for name in sorted(file.name for file in files):
        other = other_weights(name)
        if other:
            raise LongtailError(other)
    raise LongtailError(f"a model without weights, in none of {', '.join(WEIGHTS)}")


def _shards(weights: Path) -> list[str]:
    """The names of the files that an index of weights lists; none for a file that is no index."""
    if weights.suffix != ".json":
        return []
    files = read_object(weights).get("weight_map")
    if not isinstance(files, dict):
        return []
    return sorted({str(name) for name in files.values()})


def _check_family(config: dict[str, Any]) -> None:
    """Raise LongtailError for an architecture that transformers does not know."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # takes a second

    family = config.get("model_type")
    has_code = "auto_map" in config
    if family in CONFIG_MAPPING_NAMES or not (family or has_code):
        return
    if has_code:
        name = family or "auto_map"
        raise LongtailError(f"a model with code of its own ({name}), which is never run")
    raise LongtailError(
        f"a model of the type {family}, which the installed transformers does not know; take "
        f"another, {SERVE}"
    )


def read_header(file: Path) -> dict[str, dict]:
    """The description of each tensor in a file of safetensors, from its header.

    Raises LongtailError for a file that is cut off.
    """
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            start = 8 + int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(min(start, size) - 8))
        header.pop("__metadata__", None)
        ends = [tensor["data_offsets"][1] for tensor in header.values()]
        complete = start + max(ends, default=0) <= size
    except (ValueError, AttributeError):
        complete = False
    if not complete:
        raise LongtailError(
            f"{file}: damaged or cut off, expected weights in safetensors; fetch or make them again"
        )
    return header


def read_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} where there is no such file, or no object in it."""
    try:
        value = read_json(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
