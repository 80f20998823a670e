"""How large a run's models are, and how many tokens a second they read on this machine.

Sizes are read from what is at hand: the params, a local folder, the Hub's cache. The Hub itself is not asked. A model
reads at half the speed of this machine's matrix products, which are measured.
"""

from __future__ import annotations

import timeit
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipelines.params.params import LM, Compute, Params, Reranker, Retriever

SHARE = 0.5  # of the matrix products' speed that a whole model reaches
BYTES = {"fp32": 4, "bf16": 2, "int8": 1}  # of a weight


class Size(NamedTuple):
    parameters: int  # of a model
    multiplied: int  # parameters that each token meets; an encoder's embeddings are looked up
    hidden: int
    download: int  # bytes; 0 for a model that is here


def size(section: LM | Retriever | Reranker, folder: Path, vocabulary: int | None, here: bool) -> Size | None:
    """The size of a trained model, or by its config.json, which is in `folder`, the stage's output, if it is `here`."""
    training = getattr(section, "training", None)
    if getattr(section, "source", "") == "train" and training and vocabulary:
        width, inner = training.hidden_size, getattr(training, "intermediate_size", 2 * training.hidden_size)
        layers, words = training.layers * (4 * width**2 + 3 * width * inner), vocabulary * width
        return Size(layers + words, layers + words * isinstance(section, LM), width, 0)
    place = str(folder) if here and (folder / "config.json").is_file() else section.path
    return _by_config(place, None if place == str(folder) else section.revision, isinstance(section, LM))


def _by_config(place: str | None, revision: str | None, is_lm: bool) -> Size | None:
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    kind = AutoModelForCausalLM if is_lm else AutoModel
    try:
        config = AutoConfig.from_pretrained(place, revision=revision, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model = kind.from_config(config, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError):  # no such config at hand, or none that says what it is
        return None
    parameters, text = model.num_parameters(), config.get_text_config()
    looked_up = 0 if is_lm else model.get_input_embeddings().weight.numel()
    download = 0 if Path(place).is_dir() else parameters * (config.dtype or torch.float32).itemsize
    return Size(parameters, parameters - looked_up, text.hidden_size, download)


def sizes(params: Params, made: Collection[str]) -> dict[str, Size | None]:
    """The sizes of the run's language models, but for those on servers, and of its encoders, by name."""
    models, vocabulary = Path("data/models"), params.tokenizer.vocab_size
    sections = [("lm", name, params.lm[name]) for name in params.lms if params.lm[name].source != "http"]
    sections += [("retriever", name, params.retriever[name]) for name in params.retrievers]
    sections += [("reranker", name, params.reranker) for name in params.parts.rerankers]
    return {
        name: size(section, models / kind / name, vocabulary, f"base_{kind}@{name}" in made)
        for kind, name, section in sections
    }


def reads(size: Size | None, compute: Compute, dtype: str, passes: float = 1.0) -> float | None:
    """Tokens a second that one process of a stage reads, in so many forward passes; None for an unknown size."""
    from pipelines.retrieval.encoder import has_bf16

    if size is None:
        return None
    where = device(compute)
    half = has_bf16(where) if dtype == "auto" else dtype != "fp32"
    return SHARE * matrix_products(compute.threads, where, half) / (2.0 * size.multiplied * passes)


def side_by_side(compute: Compute, gpu: bool, cores: int) -> int:
    """Stages that ask a local language model and run at full speed beside each other: those of a GPU share it."""
    return 1 if gpu else max(1, min(compute.workers, cores // compute.threads))


def together(seconds: Sequence[float], processes: int) -> float:
    """Seconds of stages that run side by side, each in one process: as long as the longest of them, at least."""
    return max(sum(seconds) / processes, max(seconds, default=0.0))


def device(compute: Compute) -> str:
    """The device of the params if this machine has it, otherwise the CPU."""
    import torch

    return "cuda" if compute.device == "cuda" and torch.cuda.is_available() else "cpu"


@cache
def matrix_products(threads: int, device: str, half: bool) -> float:
    """Multiplications and additions a second, in a product of a model's shape; the fastest of some repetitions."""
    import torch

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if half else torch.float32
    left, right = torch.randn(2048, 768, device=device, dtype=dtype), torch.randn(768, 3072, device=device, dtype=dtype)

    def product() -> None:
        left @ right
        if device == "cuda":
            torch.cuda.synchronize()

    return 2 * 2048 * 768 * 3072 / min(timeit.repeat(product, number=1, repeat=5)[1:])
