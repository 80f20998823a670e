"""How many tokens a second this machine embeds, trains and scores, for `longtail plan`.

A model that these params made is measured. For a model that is not there yet, the speed is computed: half
of what this machine's matrix products allow for the model's shape.
"""

from __future__ import annotations

import json
import os
import timeit
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import yaml

from pipelines import parquet
from pipelines.params import LM, Compute, LMServer, Retriever

CORPORA, MODELS, LOCK = Path("data/corpus"), Path("data/models"), Path("dvc.lock")
REPETITIONS = 5  # of what is measured
SHARE = 0.5  # of the matrix products' speed that a whole model reaches


class Shape(NamedTuple):
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int

    @property
    def weights(self) -> int:
        return self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.intermediate)

    def operations(self, tokens: int, predicted: float = 0.0) -> float:
        """Operations per token of a forward pass over a text of `tokens`, of which a share is predicted."""
        attention = 2 * self.layers * self.hidden * tokens
        return 2.0 * (self.weights + attention + predicted * self.hidden * self.vocabulary)


CONTRIEVER, GPT2_XL = Shape(12, 768, 3072, 30_522), Shape(48, 1600, 6400, 50_257)


class Speed(NamedTuple):
    tokens: float  # per second
    basis: str  # measured, or computed from what


class Device(NamedTuple):
    """A GPU as devices.yaml states it."""

    name: str
    memory: float  # bytes
    fp32: float  # operations per second of matrix products
    half: float  # the same in bf16, or in fp16


def shape_of(
    folder: Path, section: LM | Retriever, otherwise: Shape, made: Collection[str]
) -> tuple[Shape, str | None]:
    """A model's shape, and None; or if its stage is not among those `made`, a likely shape and its name.

    Likely is the shape of the local folder that the params name, or that of the training's settings.
    """
    config, stage = folder / "config.json", f"base_{folder.parent.name}@{folder.name}"
    if config.is_file() and stage in made and (shape := read_shape(config)):
        return shape, None
    local = Path(section.path or "") / "config.json"
    if section.source == "pretrained" and local.is_file() and (shape := read_shape(local)):
        return shape, f"the shape of {local.parent.name}"
    if training := section.training:
        intermediate = getattr(training, "intermediate_size", 2 * training.hidden_size)
        shape = Shape(training.layers, training.hidden_size, intermediate, 0)
        return shape, f"{training.layers} layers of {training.hidden_size}"
    return otherwise, "GPT-2 XL's shape" if otherwise is GPT2_XL else "BERT-base's shape"


def read_shape(config: Path) -> Shape | None:
    """The shape that a model's config.json describes; None if it does not say."""
    read = json.loads(config.read_text(encoding="utf-8"))
    hidden, layers = read.get("hidden_size") or read.get("n_embd"), read.get("num_hidden_layers") or read.get("n_layer")
    if not (hidden and layers):
        return None
    return Shape(layers, hidden, read.get("intermediate_size") or read.get("n_inner") or 4 * hidden, read["vocab_size"])


def side_by_side(compute: Compute, gpu: bool, cores: int) -> int:
    """Stages that ask a local language model and run at full speed beside each other: those of a GPU share it."""
    return 1 if gpu else max(1, min(compute.workers, cores // compute.threads))


def together(seconds: Sequence[float], processes: int) -> float:
    """Seconds of stages that run side by side, each in one process: as long as the longest of them, at least."""
    return max(sum(seconds) / processes, max(seconds, default=0.0))


def embedding_processes(compute: Compute, gpu: bool, cores: int) -> int:
    return 1 if gpu else min(max(compute.workers, compute.threads), cores)


def of_encoder(
    params: SimpleNamespace, shape: Shape, taken_for: str | None, gpu: Device | None = None
) -> tuple[Speed, Speed]:
    """Speeds of embedding, on all cores that the stage uses, and of training; `taken_for` is as from `shape_of`.

    `params` are those of one retriever (methods.with_retriever). With a `gpu` they are that GPU's, computed.
    """
    from pipelines.retrieval.encoder import Encoder, has_bf16

    compute, where = params.compute, device(params.compute)
    cores = embedding_processes(compute, False, os.cpu_count() or 1)
    processes = embedding_processes(compute, gpu is not None or where == "cuda", cores)
    if taken_for or gpu:
        # backward costs two forward passes, and with lsr.micro_batch a batch goes forward twice
        passes = 4 if params.lsr.micro_batch else 3
        has_half = gpu is not None or has_bf16(where)
        half = params.retriever.dtype == "bf16" or (params.retriever.dtype == "auto" and has_half)
        embed = _computed(shape.operations(params.chunk.tokens), taken_for, 1, where, half, gpu)
        threads = min(compute.threads, cores)
        in_half = params.lsr.dtype == "bf16" or (params.lsr.dtype == "auto" and has_half)
        operations = shape.operations(params.chunk.tokens)
        train = _computed(operations, taken_for, threads, where, in_half, gpu)
        embed = Speed(processes * embed.tokens, f"{embed.basis}, {processes} side by side")
        return embed, Speed(train.tokens / passes, train.basis)
    import torch

    texts = _texts(params)
    of_a_process = compute.model_copy(update={"threads": 1, "device": where})
    encoder = Encoder.open(MODELS / "retriever" / params.retrieves, params.retriever, of_a_process)
    tokens = int(encoder.documents.tokens(texts).lengths.sum())
    embed = processes * _per_second(lambda: encoder.embed(texts), tokens)
    torch.set_num_threads(min(compute.threads, cores))
    train = _per_second(lambda: encoder.embed_with_gradient(texts).sum().backward(), tokens)
    return Speed(embed, f"measured, {processes} side by side"), Speed(train, "measured")


def of_language_model(params: SimpleNamespace, shape: Shape, taken_for: str | None, gpu: Device | None = None) -> Speed:
    """Speed at which the language model that LSR learns from scores; `taken_for` and `gpu` are as in `of_encoder`."""
    name = params.lsr.lm
    threads, where = min(params.compute.threads, os.cpu_count() or 1), device(params.compute)
    if taken_for or gpu:
        continuation = params.queries.continuation_tokens
        length = params.chunk.tokens + params.queries.context_tokens + continuation
        operations = shape.operations(length, continuation / length)
        return _computed(operations, taken_for, threads, where, params.lm[name].dtype == "bf16", gpu)
    from pipelines.lm.language_model import Prompt
    from pipelines.lm.open_lm import open_lm

    compute = params.compute.model_copy(update={"threads": threads, "device": where})
    lm = open_lm(MODELS / "lm" / name, params.lm[name], compute)
    texts = _texts(params)
    prompts = [Prompt(context, document + "\n") for context, document in zip(texts, texts[::-1], strict=True)]
    continuations = [text[: len(text) // 2] for text in texts]
    pairs = zip(prompts, continuations, strict=True)
    read = lm.tokenizer.backend_tokenizer.encode_batch([p.document + p.context + text for p, text in pairs])
    tokens = sum(min(len(encoding.ids), lm.max_tokens) for encoding in read)
    return Speed(_per_second(lambda: lm.score(prompts, continuations), tokens), "measured")


def of_parameters(compute: Compute, parameters: int, dtype: str, gpu: Device | None = None) -> Speed:
    """Speed at which a language model of so many parameters reads, whatever its shape."""
    threads, where = min(compute.threads, os.cpu_count() or 1), device(compute)
    return _computed(2.0 * parameters, f"{parameters / 1e9:.3g} G parameters", threads, where, dtype != "fp32", gpu)


def of_server(http: LMServer) -> Speed:
    """The server's limit; if it has none, a guess that says so."""
    if http.tokens_per_minute:
        return Speed(http.tokens_per_minute / 60, "the server's limit a minute")
    return Speed(2000.0 * http.concurrency, f"a guess: {http.concurrency} requests at once, 2,000 tokens/s each")


def device(compute: Compute) -> str:
    """The device of the params if this machine has it, otherwise the CPU."""
    import torch

    return "cuda" if compute.device == "cuda" and torch.cuda.is_available() else "cpu"


def made_file(corpus: str, name: str, made: Collection[str]) -> Path | None:
    """A file of a corpus if its stage is among those `made`."""
    path = CORPORA / corpus / name
    return path if path.is_file() and f"chunk@{corpus}" in made else None


def made_by(values: dict) -> frozenset[str]:
    """The stages that ran with these values of params.yaml, as dvc.lock says, and all stages that they need."""
    if not LOCK.is_file():
        return frozenset()
    stages = yaml.load(LOCK.read_bytes(), yaml.CSafeLoader)["stages"]
    made = {
        stage: entry
        for stage, entry in stages.items()
        if all(_dotted(values, key) == value for key, value in entry.get("params", {}).get("params.yaml", {}).items())
    }
    outputs = {out["path"]: stage for stage, entry in stages.items() for out in entry.get("outs", [])}
    while others := {stage for stage, entry in made.items() if not _needed(entry, outputs) <= made.keys()}:
        made = {stage: entry for stage, entry in made.items() if stage not in others}
    return frozenset(made)


def _needed(entry: dict, outputs: dict[str, str]) -> set[str]:
    """The stages whose `outputs`, or files in them, a stage of dvc.lock reads."""
    paths = (Path(read["path"]) for read in entry.get("deps", []))
    places = (place.as_posix() for path in paths for place in (path, *path.parents))
    return {outputs[place] for place in places if place in outputs}


def _dotted(values: dict, key: str):
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _texts(params: SimpleNamespace) -> list[str]:
    """64 documents of a corpus that these params made, otherwise meaningless words."""

    for corpus in params.parts.corpora:
        if docs := made_file(corpus, "docs.parquet", params.made):
            return next(parquet.batches(docs, 64, columns=["text"]))["text"].to_pylist()
    return [" ".join(f"word{(i * j) % 97}" for j in range(params.chunk.tokens // 3)) for i in range(64)]


def _computed(
    operations: float, taken_for: str | None, threads: int, device: str, half: bool, gpu: Device | None
) -> Speed:
    """The speed of a model with so many operations per token."""
    stated = gpu and (gpu.half if half else gpu.fp32)
    products = stated or matrix_products(threads, device, half)
    return Speed(
        SHARE * products / operations,
        f"from {taken_for or 'its shape'}, at half of {products / 1e9:.0f} G operations/s",
    )


@cache
def matrix_products(threads: int, device: str, half: bool) -> float:
    """Multiplications and additions per second, in a product of a model's shape."""
    import torch

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if half else torch.float32
    left, right = torch.randn(2048, 768, device=device, dtype=dtype), torch.randn(768, 3072, device=device, dtype=dtype)

    def product() -> None:
        left @ right
        if device == "cuda":
            torch.cuda.synchronize()

    return _per_second(product, 2 * 2048 * 768 * 3072)


def _per_second(work: Callable[[], object], amount: float) -> float:
    """The amount of one `work` divided by its seconds: the fastest of some repetitions; the first one warms up."""
    return amount / min(timeit.repeat(work, number=1, repeat=REPETITIONS)[1:])
