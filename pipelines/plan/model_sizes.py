"""How large a run's models are, and how fast this machine computes. Nothing is downloaded."""

import timeit
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipelines.params.params import LM, Compute, Params, Reranker, Retriever

MODEL_SHARE = 0.5  # a whole model reaches this share of the matrix products' speed


class Size(NamedTuple):
    parameters: int
    multiplied: int  # parameters that each token meets; an encoder's embeddings are looked up
    hidden: int  # width of the model's vectors
    download: int  # bytes; 0 for a model that is on this machine


def read_sizes(params: Params) -> dict[str, Size | None]:
    """The sizes of the run's local language models, encoders and rerankers, by name; None:
    unknown.
    """
    sections: dict[str, LM | Retriever | Reranker] = {}
    for name in params.lms:
        if params.lm[name].source != "http":
            sections[name] = params.lm[name]
    for name in params.retrievers:
        sections[name] = params.retriever[name]
    for name in params.parts.rerankers:
        sections[name] = params.reranker

    vocabulary = params.tokenizer.vocab_size
    return {name: _size(section, vocabulary) for name, section in sections.items()}


def _size(section: LM | Retriever | Reranker, vocabulary: int | None) -> Size | None:
    """The size of a model by its settings if it is trained here, else by its config.json."""
    is_lm = isinstance(section, LM)
    is_trained = getattr(section, "source", "") == "train"
    if not is_trained or not vocabulary:
        return size_by_config(section.path, section.revision, is_lm)

    training = section.training
    width = training.hidden_size
    inner_width = getattr(training, "intermediate_size", 2 * width)
    attention = 4 * width**2
    feed_forward = 3 * width * inner_width
    layers = training.layers * (attention + feed_forward)
    parameters = layers + vocabulary * width
    multiplied = parameters if is_lm else layers
    return Size(parameters, multiplied, hidden=width, download=0)


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
    if not Path(path).is_dir():
        dtype = config.dtype or torch.float32
        download = parameters * dtype.itemsize
    return Size(parameters, multiplied, config.get_text_config().hidden_size, download)


def tokens_per_second(
    size: Size | None, threads: int, compute: Compute, dtype: str, passes: float = 1.0
) -> float | None:
    """How many tokens a model reads in a second, by the measured speed of matrix products.

    `passes` are the passes that a token takes; a backward pass counts as two.
    """
    if size is None:
        return None
    device = device_at_hand(compute)
    is_half = dtype != "fp32"
    if dtype == "auto":
        is_half = device == "cuda"
    operations = 2.0 * size.multiplied * passes
    return MODEL_SHARE * matrix_products(threads, device, is_half) / operations


def device_at_hand(compute: Compute) -> str:
    """The device of the params if this machine has it, otherwise the CPU."""
    import torch

    if compute.device == "cuda" and torch.cuda.is_available():
        return "cuda"
    return "cpu"


@cache
def matrix_products(threads: int, device: str, half: bool) -> float:
    """Multiplications and additions a second, in a product of a model's shape: the fastest of
    five.
    """
    import torch

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if half else torch.float32
    left = torch.randn(2048, 768, device=device, dtype=dtype)
    right = torch.randn(768, 3072, device=device, dtype=dtype)

    def product() -> None:
        left @ right
        if device == "cuda":
            torch.cuda.synchronize()

    operations = 2 * 2048 * 768 * 3072
    seconds = timeit.repeat(product, number=1, repeat=5)
    return operations / min(seconds[1:])  # the first product warms up
