"""What the files of a sentence-transformers folder say of an encoder: its pooling, lengths and prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import LongtailError

POOLINGS = {  # a pooling as params and newer files call it -> as older files do
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
PLACES = (
    "Transformer",
    "Pooling",
    "Normalize",
)  # the modules that Longtail computes, in their places
OWN = "config_sentence_transformers.json"
OF_TEXTS = {
    "text": {"method": "forward", "method_output_name": "last_hidden_state"}
}  # in no chat template
COMPUTED = {  # module, or file -> setting -> the only value with which Longtail computes what it says
    "Transformer": {
        "transformer_task": "feature-extraction", "modality_config": OF_TEXTS, "processing_kwargs": {},
        "query_expansion": {}, "config_args": {}, "config_kwargs": {},
    },
    "Pooling": {"include_prompt": True},
    OWN: {"truncate_dim": None, "model_type": "SentenceTransformer"},
}  # fmt: skip
KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
SETTINGS = [
    f"sentence_{kind}_config.json" for kind in KINDS
]  # of the Transformer; older files name its architecture

Read = Callable[[str], Any]


@dataclass(frozen=True)
class Modules:
    """None stands for what the folder does not say."""

    folder: str = ""  # of the model, in the encoder's folder
    pooling: str | None = None  # one of POOLINGS
    normalized: bool = (
        False  # whether vectors are scaled to length 1 in the end, so that dot products are cosines
    )
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
    folder, pooled, *normalized = listed or ["", "1_Pooling"]
    files = [f"{folder}/{name}".lstrip("/") for name in SETTINGS]
    settings = next(
        (_settings(read, file, "Transformer") for file in files if read(file) is not None), {}
    )
    own = _settings(read, OWN, OWN)
    prompts, every = own.get("prompts") or {}, own.get("default_prompt_name")
    prompts = (
        prompts if any(prompts.values()) else {}
    )  # newer files have empty ones where none are set
    of_documents = (prompts.get(name) for name in ("document", "passage", "corpus", every))
    similarity = "cosine" if normalized else own.get("similarity_fn_name")
    if similarity not in (None, "cosine", "dot"):
        raise LongtailError(f"{OWN}: similarity_fn_name is {similarity}, expected cosine or dot")
    return Modules(
        folder=folder,
        pooling=_pooling(read, f"{pooled}/config.json", "mean" if listed else None),
        normalized=bool(normalized),
        lower=bool(settings.get("do_lower_case")),
        max_tokens=longest if isinstance(longest := settings.get("max_seq_length"), int) else None,
        query=prompts.get("query", prompts.get(every)),
        document=next((prompt for prompt in of_documents if prompt is not None), None),
        similarity=similarity,
    )


def reader(path: str | Path, revision: str | None = None) -> Read:
    """Reads a JSON file by its name in a local folder or on the Hub: its value, or None where it is not there."""
    from huggingface_hub import snapshot_download

    is_here = Path(path).is_dir()
    folder = Path(
        path
        if is_here
        else snapshot_download(str(path), revision=revision, allow_patterns="*.json")
    )

    def read(name: str) -> Any:
        file = folder / name
        try:
            return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        except ValueError:
            raise LongtailError(f"{name}: not JSON; fetch or copy it again") from None

    return read


def _listed(read: Read) -> list[str]:
    """The folder of each module: a Transformer, a Pooling, and Normalize or nothing; [] without modules.json."""
    listed = read("modules.json")
    if listed is None:
        return []
    folders = []
    for place, module in enumerate(listed if isinstance(listed, list) else [listed]):
        module = module if isinstance(module, dict) else {}
        expected, kind = PLACES[min(place, 2)], str(module.get("type"))
        if not re.fullmatch(rf"(sentence_transformers\.(.+\.)?)?{expected}", kind):
            raise LongtailError(
                f"an encoder with a module that is not computed: modules.json has {kind} in place {place}, expected "
                f"{expected}; take an encoder without it"
            )
        folders.append(str(module.get("path") or "").strip("/"))
    if len(folders) < 2:
        raise LongtailError("modules.json: expected a Transformer and a Pooling")
    return folders


def _settings(read: Read, file: str, kind: str) -> dict[str, Any]:
    """The settings in a file, {} without it."""
    settings = read(file)
    if settings is not None and not isinstance(settings, dict):
        raise LongtailError(f"{file}: expected an object with settings; fetch or copy it again")
    for name, computed in COMPUTED[kind].items():
        if (value := (settings or {}).get(name)) not in (None, computed):
            raise LongtailError(
                f"{file}: {name} is {value!r}, which is not computed; expected {computed!r}"
            )
    return settings or {}


def _pooling(read: Read, file: str, otherwise: str | None) -> str | None:
    settings = _settings(read, file, "Pooling")
    if not settings:
        return otherwise
    old = [name for name, on in settings.items() if name.startswith("pooling_mode_") and on is True]
    said = settings.get("pooling_mode") or old or ["mean"]
    modes = [said] if isinstance(said, str) else said
    mode = next((name for name, older in POOLINGS.items() if modes in ([name], [older])), None)
    if mode is None:
        said = " and ".join(map(str, modes))
        raise LongtailError(
            f"an encoder that pools by {said} ({file}); expected one of {', '.join(POOLINGS)}"
        )
    return mode
