"""What the files of a sentence-transformers folder say of an encoder: what follows the model, lengths and prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError

POOLINGS = {  # a pooling as params call it -> as sentence-transformers calls it, in its older and its newer files
    "cls": ("pooling_mode_cls_token", "cls"),
    "mean": ("pooling_mode_mean_tokens", "mean"),
    "lasttoken": ("pooling_mode_lasttoken", "lasttoken"),
}
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")  # of Dense, as torch.nn calls them
FIRST = (("Transformer",), ("Pooling",))  # the modules that come first
FURTHER = ("Dense", "Normalize")  # those that may follow, in any order
OWN = "config_sentence_transformers.json"
OF_VECTORS = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
OF_TEXTS = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}  # in no chat template
COMPUTED = {  # module, or file -> setting -> the only value with which Longtail computes what it says
    "Transformer": {
        "transformer_task": "feature-extraction", "modality_config": OF_TEXTS, "processing_kwargs": {},
        "query_expansion": {}, "config_args": {}, "config_kwargs": {},
    },
    "Pooling": {"include_prompt": True},
    "Dense": {"use_residual": False, **OF_VECTORS},
    "Normalize": OF_VECTORS,
    OWN: {"truncate_dim": None, "model_type": "SentenceTransformer"},
}  # fmt: skip
KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
SETTINGS = [f"sentence_{kind}_config.json" for kind in KINDS]  # of the Transformer; older files name its architecture

Read = Callable[[str], Any]


@dataclass(frozen=True)
class Dense:
    """A linear layer and its activation, one of ACTIVATIONS; its weights are in `folder`."""

    folder: str
    inputs: int
    outputs: int
    bias: bool
    activation: str


@dataclass(frozen=True)
class Modules:
    """None stands for what the folder does not say."""

    folder: str = ""  # of the model, in the encoder's folder
    pooling: str | None = None  # one of POOLINGS
    further: tuple[Dense | None, ...] = ()  # what pooled vectors pass next; None scales them to length 1
    normalized: bool = False  # whether vectors are scaled to length 1 in the end
    lower: bool = False  # whether texts are read in lower case
    max_tokens: int | None = None  # of a text
    query: str | None = None  # prompt before a query
    document: str | None = None  # prompt before a document
    similarity: str | None = None  # cosine or dot


def read_modules(read: Read) -> Modules:
    """What a folder says of its encoder; `read` is a `reader`.

    Raises LongtailError, which names no folder, for a module, or a setting of one, that Longtail does not compute.
    """
    listed = _listed(read)
    (_, folder), (_, pooled), *further = listed or [("Transformer", ""), ("Pooling", "1_Pooling")]
    files = [f"{folder}/{name}".lstrip("/") for name in SETTINGS]
    settings = next((_settings(read, file, "Transformer") for file in files if read(file) is not None), {})
    own = _settings(read, OWN, OWN)
    prompts, every = own.get("prompts") or {}, own.get("default_prompt_name")
    prompts = prompts if any(prompts.values()) else {}  # newer files have empty ones where none are set
    of_documents = (prompts.get(name) for name in ("document", "passage", "corpus", every))
    passed = tuple(_further(read, kind, path) for kind, path in further)
    normalized = passed[-1:] == (None,)
    similarity = own.get("similarity_fn_name") or ("cosine" if normalized else None)
    if similarity not in (None, "cosine", "dot"):
        raise LongtailError(f"{OWN}: similarity_fn_name is {similarity}, expected cosine or dot")
    return Modules(
        folder=folder,
        pooling=_pooling(read, f"{pooled}/config.json", "mean" if listed else None),
        further=passed[:-1] if normalized else passed,
        normalized=normalized,
        lower=bool(settings.get("do_lower_case")),
        max_tokens=longest if isinstance(longest := settings.get("max_seq_length"), int) else None,
        query=prompts.get("query", prompts.get(every)),
        document=next((prompt for prompt in of_documents if prompt is not None), None),
        similarity=similarity,
    )


def as_settings(dense: Dense) -> dict[str, Any]:
    """A Dense module's config.json, as `read_modules` reads it."""
    activation = f"torch.nn.{dense.activation}"
    sizes = {"in_features": dense.inputs, "out_features": dense.outputs}
    return sizes | {"bias": dense.bias, "activation_function": activation}


def reader(path: str | Path, revision: str | None = None) -> Read:
    """Reads a JSON file by its name in a local folder or on the Hub: its value, or None where it is not there."""

    def read(name: str) -> Any:
        file = find_file(path, revision, name)
        if file is None:
            return None
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise LongtailError(f"{name}: not JSON; fetch or copy it again") from None

    return read


def find_file(path: str | Path, revision: str | None, name: str) -> Path | None:
    """A file of a local folder or of the Hub; None where it is known not to be there. OSError where that is unknown."""
    if Path(path).is_dir():
        return file if (file := Path(path, name)).is_file() else None
    from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import RemoteEntryNotFoundError

    cached = try_to_load_from_cache(str(path), name, revision=revision)
    if cached is _CACHED_NO_EXIST:
        return None
    try:
        return Path(cached or hf_hub_download(str(path), name, revision=revision))
    except RemoteEntryNotFoundError:
        return None


def _listed(read: Read) -> list[tuple[str, str]]:
    """The kind and the folder of each module, a Transformer and a Pooling first; [] without modules.json."""
    listed = read("modules.json")
    if listed is None:
        return []
    found = []
    for place, module in enumerate(listed if isinstance(listed, list) else [listed]):
        module = module if isinstance(module, dict) else {}
        allowed = (*FIRST, FURTHER)[min(place, len(FIRST))]
        kind, path = str(module.get("type")), str(module.get("path") or "")
        name = kind.rpartition(".")[2] if kind.startswith("sentence_transformers.") else kind
        if name not in allowed or ".." in Path(path).parts or Path(path).is_absolute():
            raise LongtailError(
                f"an encoder with a module that is not computed: modules.json has {kind} in place {place}, expected "
                f"{' or '.join(allowed)}"
            )
        found.append((name, path.strip("/")))
    if len(found) < len(FIRST):
        raise LongtailError("modules.json: expected a Transformer and a Pooling")
    return found


def _settings(read: Read, file: str, kind: str) -> dict[str, Any]:
    """The settings in a file, {} without it."""
    settings = read(file)
    if settings is not None and not isinstance(settings, dict):
        raise LongtailError(f"{file}: expected an object with settings; fetch or copy it again")
    for name, computed in COMPUTED[kind].items():
        if (value := (settings or {}).get(name)) not in (None, computed):
            raise LongtailError(f"{file}: {name} is {value!r}, which is not computed; expected {computed!r}")
    return settings or {}


def _pooling(read: Read, file: str, otherwise: str | None) -> str | None:
    settings = _settings(read, file, "Pooling")
    if not settings:
        return otherwise
    old = [name for name, on in settings.items() if name.startswith("pooling_mode_") and on is True]
    said = settings.get("pooling_mode") or old
    modes = [said] if isinstance(said, str) else said or ["mean"]
    known = {name: mode for mode, names in POOLINGS.items() for name in names}
    if len(modes) != 1 or modes[0] not in known:
        raise LongtailError(
            f"an encoder that pools by {' and '.join(map(str, modes))} ({file}); expected one of {', '.join(POOLINGS)}"
        )
    return known[modes[0]]


def _further(read: Read, kind: str, folder: str) -> Dense | None:
    file = f"{folder}/config.json"
    settings = _settings(read, file, kind)
    if kind == "Normalize":
        return None
    activation = settings.get("activation_function", "torch.nn.Tanh")
    package, _, name = str(activation).rpartition(".")
    if not package.startswith("torch.nn") or name not in ACTIVATIONS:
        raise LongtailError(
            f"{file}: activation_function is {activation}, expected {', '.join(ACTIVATIONS)} of torch.nn"
        )
    sizes = [settings.get(size) for size in ("in_features", "out_features")]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise LongtailError(f"{file}: in_features and out_features are {sizes[0]} and {sizes[1]}, expected two numbers")
    return Dense(folder, *sizes, settings.get("bias", True) is not False, name)
