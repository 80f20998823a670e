"""How large a run's models are. Nothing is downloaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipelines.params.params import (
    LM,
    HubModel,
    LMTraining,
    Params,
    Reranker,
    Retriever,
    RetrieverTraining,
)

Section = LM | Retriever | Reranker

BYTES_OF_WEIGHT = {"fp32": 4, "fp16": 2, "bf16": 2}  # in files on the Hub
WEIGHTS = (  # files of which a model on the Hub has one
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


class Size(NamedTuple):
    parameters: int
    multiplied: int  # parameters that each token meets; an encoder's embeddings are looked up
    hidden: int  # width of the model's vectors
    download: int  # bytes; 0 for a model that is on this machine
    max_tokens: int | None = None  # that a language model reads at once; None: unknown


@dataclass(frozen=True)
class Model:
    """A language model, an encoder or a reranker of a run."""

    section: Section
    path: str | None  # folder or name on the Hub; None: it is trained here
    revision: str | None
    size: Size | None  # None: unknown


def read_models(params: Params) -> dict[str, Model]:
    """The run's models by their place in params.yaml, such as lm.gpt2; those on servers are left
    out.

    A second encoder, for queries, is a model too: retriever.dpr.query_path.
    """
    models = {}
    for place, section, path, revision in _places(params):
        size = _size(section, path, revision, params)
        models[place] = Model(section, path, revision, size)
    return models


def _places(params: Params) -> Iterator[tuple[str, Section, str | None, str | None]]:
    """Yield (place in params.yaml, section, path, revision) of each model."""
    for name in params.lms:
        lm = params.lm[name]
        if lm.source != "http":
            yield f"lm.{name}", lm, lm.path, lm.revision
    for name in params.retrievers:
        encoder = params.retriever[name]
        yield f"retriever.{name}", encoder, encoder.path, encoder.revision
        if encoder.query_path:
            place = f"retriever.{name}.query_path"
            yield place, encoder, encoder.query_path, encoder.query_revision
    if params.parts.rerankers and params.reranker:
        yield "reranker", params.reranker, params.reranker.path, params.reranker.revision


def _size(section: Section, path: str | None, revision: str | None, params: Params) -> Size | None:
    """The size of a model by its settings if it is trained here, else by its config.json, else by
    the profile.
    """
    is_lm = isinstance(section, LM)
    vocabulary = params.tokenizer.vocab_size
    if getattr(section, "source", "") == "train" and vocabulary:
        return _trained_size(section.training, vocabulary, is_lm)
    size = size_by_config(path, revision, is_lm)
    return size or size_by_profile(path, revision, is_lm, params.plan.models)


def _trained_size(training: LMTraining | RetrieverTraining, vocabulary: int, is_lm: bool) -> Size:
    width = training.hidden_size
    inner_width = getattr(training, "intermediate_size", 2 * width)
    attention = 4 * width**2
    feed_forward = 3 * width * inner_width
    layers = training.layers * (attention + feed_forward)
    parameters = layers + vocabulary * width
    multiplied = parameters if is_lm else layers
    max_tokens = getattr(training, "positions", None)
    return Size(parameters, multiplied, hidden=width, download=0, max_tokens=max_tokens)


def size_by_config(path: str | None, revision: str | None, is_lm: bool) -> Size | None:
    """The size of a model in a folder, or of the Hub if its cache has the config.json; else
    None.
    """
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    model_class = AutoModelForCausalLM if is_lm else AutoModel
    try:
        config = AutoConfig.from_pretrained(
            path, revision=revision, local_files_only=True, trust_remote_code=False
        )
        with torch.device("meta"):
            model = model_class.from_config(config, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError):
        # there is no config at hand, or none that says what the model is
        return None

    parameters = model.num_parameters()
    multiplied = parameters
    if not is_lm:
        multiplied -= model.get_input_embeddings().weight.numel()
    download = 0
    if not _has_weights(path, revision):
        dtype = config.dtype or torch.float32
        download = parameters * dtype.itemsize
    text = config.get_text_config()
    max_tokens = getattr(text, "max_position_embeddings", None)
    return Size(parameters, multiplied, text.hidden_size, download, max_tokens)


def _has_weights(path: str, revision: str | None) -> bool:
    """Whether a model's weights are on this machine: in its folder, or in the Hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    if Path(path).is_dir():
        return True
    for file in WEIGHTS:
        if isinstance(try_to_load_from_cache(path, file, revision=revision), str):
            return True
    return False


def size_by_profile(
    path: str | None, revision: str | None, is_lm: bool, known: list[HubModel]
) -> Size | None:
    """The size that the params' plan.models have of a model on the Hub; else None."""
    for model in known:
        if model.path == path and model.revision in (None, revision):
            multiplied = model.parameters
            if not is_lm:
                multiplied -= model.vocabulary * model.hidden_size
            download = model.parameters * BYTES_OF_WEIGHT[model.dtype]
            return Size(
                parameters=model.parameters,
                multiplied=multiplied,
                hidden=model.hidden_size,
                download=download,
                max_tokens=model.max_tokens,
            )
    return None


def count_download(models: Mapping[str, Model]) -> int:
    """Bytes of weights to download; a model that two places of params.yaml name counts once."""
    downloads = {}
    for model in models.values():
        if model.size:
            downloads[model.path, model.revision] = model.size.download
    return sum(downloads.values())
