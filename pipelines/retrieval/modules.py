"""What the files of a sentence-transformers folder say of an encoder.

That is its pooling, lengths and prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError
from pipelines.lm.model_files import settings_folder
from pipelines.params import params
from pipelines.storage.atomic import read_json

POOLINGS = {  # a pooling as params and newer files call it -> as older files do
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
PLACES = ("Transformer", "Pooling", "Normalize")  # the modules that are computed, in their order
LIBRARY_FILE = "config_sentence_transformers.json"
# the modality of texts in no chat template
TEXTS = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
# module, or file -> setting -> the only value with which Longtail computes what it says
COMPUTED: dict[str, dict[str, Any]] = {
    "Transformer": {
        "transformer_task": "feature-extraction",
        "modality_config": TEXTS,
        "processing_kwargs": {},
        "query_expansion": {},
        "config_args": {},
        "config_kwargs": {},
    },
    "Pooling": {"include_prompt": True},
    LIBRARY_FILE: {"truncate_dim": None, "model_type": "SentenceTransformer"},
}
# files of the Transformer's settings; older files name its architecture
TRANSFORMER_FILES = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
]

Read = Callable[[str], Any]  # the value in a JSON file, by its name; None without the file


@dataclass(frozen=True)
class Modules:
    """What a folder says of its encoder; None stands for what it does not say."""

    folder: str = ""  # of the model, in the encoder's folder
    pooling: str | None = None  # one of POOLINGS
    normalized: bool = False  # whether vectors have length 1, so that dot products are cosines
    lower: bool = False  # whether texts are read in lower case
    max_tokens: int | None = None  # of a text
    query: str | None = None  # prompt before a query
    document: str | None = None  # prompt before a document
    similarity: str | None = None  # cosine or dot


def read_modules(read: Read) -> Modules:
    """What a folder says of its encoder; `read` is a `reader`.

    Raises LongtailError, which names no folder, for a module, or a setting of one, that Longtail
    does not compute.
    """
    folders = _module_folders(read)
    folder, pooling_folder, *normalize_folders = folders or ["", "1_Pooling"]
    transformer = _transformer_settings(read, folder)
    pooling = _pooling(read, f"{pooling_folder}/config.json")
    if pooling is None and folders:
        pooling = "mean"

    library = _settings(read, LIBRARY_FILE, LIBRARY_FILE)
    prompts = library.get("prompts") or {}
    if not any(prompts.values()):  # newer files have empty ones where none are set
        prompts = {}
    default = prompts.get(library.get("default_prompt_name"))
    document = default
    for name in ("corpus", "passage", "document"):  # the last that is there counts
        if prompts.get(name) is not None:
            document = prompts[name]

    similarity = library.get("similarity_fn_name")
    if normalize_folders:
        similarity = "cosine"
    if similarity not in (None, "cosine", "dot"):
        raise LongtailError(
            f"{LIBRARY_FILE}: similarity_fn_name is {similarity}, expected cosine or dot"
        )

    max_tokens = transformer.get("max_seq_length")
    if not isinstance(max_tokens, int):
        max_tokens = None
    return Modules(
        folder=folder,
        pooling=pooling,
        normalized=bool(normalize_folders),
        lower=bool(transformer.get("do_lower_case")),
        max_tokens=max_tokens,
        query=prompts.get("query", default),
        document=document,
        similarity=similarity,
    )


def reader(path: str | Path, revision: str | None = None) -> Read:
    """Reads a JSON file by its name in a local folder or on the Hub; None where it is not there."""
    folder = settings_folder(path, revision)

    def read(name: str) -> Any:
        file = folder / name
        if not file.is_file():
            return None
        try:
            return read_json(file)
        except ValueError:
            raise LongtailError(f"{name}: not JSON; fetch or copy it again") from None

    return read


def _module_folders(read: Read) -> list[str]:
    """The folder of each module: a Transformer, a Pooling, and perhaps a Normalize.

    [] without modules.json.
    """
    modules = read("modules.json")
    if modules is None:
        return []
    if not isinstance(modules, list):
        modules = [modules]

    folders = []
    for place, module in enumerate(modules):
        if not isinstance(module, dict):
            module = {}
        expected = PLACES[min(place, 2)]
        module_type = str(module.get("type"))
        if not re.fullmatch(rf"(sentence_transformers\.(.+\.)?)?{expected}", module_type):
            raise LongtailError(
                f"an encoder with a module that is not computed: modules.json has {module_type} in "
                f"place {place}, expected {expected}; take an encoder without it"
            )
        folder = module.get("path") or ""
        folders.append(str(folder).strip("/"))
    if len(folders) < 2:
        raise LongtailError("modules.json: expected a Transformer and a Pooling")
    return folders


def _transformer_settings(read: Read, folder: str) -> dict[str, Any]:
    """The settings in the first of the Transformer's files that is there; {} without one."""
    for name in TRANSFORMER_FILES:
        file = f"{folder}/{name}".lstrip("/")
        if read(file) is not None:
            return _settings(read, file, "Transformer")
    return {}


def _settings(read: Read, file: str, module: str) -> dict[str, Any]:
    """The settings in a file, {} without it; `module` is a key of COMPUTED."""
    settings = read(file)
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise LongtailError(f"{file}: expected an object with settings; fetch or copy it again")
    for name, computed in COMPUTED[module].items():
        value = settings.get(name)
        if value not in (None, computed):
            raise LongtailError(
                f"{file}: {name} is {value!r}, which is not computed; expected {computed!r}"
            )
    return settings


def _pooling(read: Read, file: str) -> str | None:
    """The pooling that a Pooling's file names; None without the file."""
    settings = _settings(read, file, "Pooling")
    if not settings:
        return None
    flags = [name for name, value in settings.items() if value is True]
    older = [name for name in flags if name.startswith("pooling_mode_")]
    modes = settings.get("pooling_mode") or older or ["mean"]
    if isinstance(modes, str):
        modes = [modes]

    for pooling, older_name in POOLINGS.items():
        if modes in ([pooling], [older_name]):
            return pooling
    named = " and ".join(map(str, modes))
    expected = ", ".join(POOLINGS)
    raise LongtailError(f"an encoder that pools by {named} ({file}); expected one of {expected}")


def write_sentence_transformers_files(
    folder: Path, settings: params.Retriever, width: int, max_tokens: int
) -> None:
    """Write files so that `SentenceTransformer(folder)` embeds as Encoder does.

    They have pooling, length, prefixes and similarity; `width` is the length of a vector. The
    library has prefixes only: its caller joins title and text as the template does.
    """
    # Old names of the modules, which every version of the library knows.
    modules = [_module(0, "", "Transformer"), _module(1, "1_Pooling", "Pooling")]
    if settings.similarity == "cosine":
        modules.append(_module(2, "2_Normalize", "Normalize"))

    pooling: dict[str, Any] = {"word_embedding_dimension": width}
    for mode in ("cls", "mean", settings.pooling):
        pooling[POOLINGS[mode]] = mode == settings.pooling
    document_prefix = settings.document.partition("{")[0]
    library = {
        "prompts": {"query": settings.query_prefix, "document": document_prefix},
        "default_prompt_name": None,
        "similarity_fn_name": settings.similarity,
    }

    (folder / "1_Pooling").mkdir(exist_ok=True)
    _write_json(folder / "1_Pooling/config.json", pooling)
    _write_json(folder / "modules.json", modules)
    transformer = {"max_seq_length": max_tokens, "do_lower_case": False}
    _write_json(folder / "sentence_bert_config.json", transformer)
    _write_json(folder / LIBRARY_FILE, library)


def _module(number: int, path: str, name: str) -> dict[str, Any]:
    return {
        "idx": number,
        "name": str(number),
        "path": path,
        "type": f"sentence_transformers.models.{name}",
    }


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
