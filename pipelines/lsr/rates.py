"""How fast this machine embeds, trains and scores (REPLUG §4-5), for a forecast: measured for a second, or computed.

Measured is an encoder or a language model that these params made; what is not there yet is taken to reach half of what
this machine's products of matrices allow its shape.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import yaml

from pipelines import params

CORPORA, MODELS, LOCK = Path("data/corpus"), Path("data/models"), Path("dvc.lock")
SHARE = 0.5  # of the products' rate that a whole model reaches
WHILE = 1.0  # seconds of a measurement


class Shape(NamedTuple):
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int

    @property
    def weights(self) -> int:
        return self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.intermediate)

    def operations(self, tokens: int, predicted: float = 0.0) -> float:
        """Of a forward pass, for each of a text's `tokens`, where a share of them is predicted."""
        attention = 2 * self.layers * self.hidden * tokens
        return 2.0 * (self.weights + attention + predicted * self.hidden * self.vocabulary)


CONTRIEVER, GPT2_XL = Shape(12, 768, 3072, 30_522), Shape(48, 1600, 6400, 50_257)


class Rate(NamedTuple):
    tokens: float  # a second
    said: str


def shape_of(folder: Path, section: params.LM | params.Retriever, otherwise: Shape) -> tuple[Shape, str | None]:
    """A model's shape, and what it is taken for where it is not known: where these params did not make `folder`."""
    config = folder / "config.json"
    if config.is_file() and made_by_these(f"base_lm@{folder.name}" if "lm" in folder.parts else "base_retriever"):
        read = json.loads(config.read_text(encoding="utf-8"))
        hidden = read.get("hidden_size") or read["n_embd"]
        wide = read.get("intermediate_size") or read.get("n_inner") or 4 * hidden
        return Shape(read.get("num_hidden_layers") or read["n_layer"], hidden, wide, read["vocab_size"]), None
    if made := section.training:
        wide = getattr(made, "intermediate_size", 2 * made.hidden_size)
        return Shape(made.layers, made.hidden_size, wide, 0), f"{made.layers} layers of {made.hidden_size}"
    return otherwise, "GPT-2 XL's shape" if otherwise is GPT2_XL else "BERT-base's shape"


def encoder(given: SimpleNamespace, shape: Shape, taken_for: str | None) -> tuple[Rate, Rate]:
    """Of embedding by all cores that the stage takes, and of training; measured where it is not `taken_for` a shape."""
    from pipelines.retrieval.encoder import Encoder, has_bf16

    compute = given.compute
    cores = min(max(compute.workers, compute.threads), os.cpu_count() or 1)
    where = device(compute)
    side_by_side = 1 if where == "cuda" else cores
    passes = 4 if given.lsr.micro_batch else 3  # backward is two; a batch in parts goes forward twice
    if taken_for:
        on = shape.operations(given.chunk.tokens)
        half = given.retriever.dtype == "bf16" or (given.retriever.dtype == "auto" and has_bf16(where))
        one = _products(1, where, half)
        many = _products(min(compute.threads, cores), where, given.lsr.dtype == "bf16")
        embedded, trained = (f"from {taken_for}, at half of {rate / 1e9:.0f} G operations/s" for rate in (one, many))
        return Rate(SHARE * side_by_side * one / on, f"{embedded}, {side_by_side} side by side"), Rate(
            SHARE * many / on / passes, trained
        )
    texts = _texts(given)
    single = compute.model_copy(update={"threads": 1, "device": where})
    opened = Encoder.open(MODELS / "retriever", given.retriever, single)
    tokens = int(opened.documents.tokens(texts).lengths.sum())
    embedded = side_by_side * _rate(lambda: opened.embed(texts), tokens)
    import torch

    torch.set_num_threads(min(compute.threads, cores))
    trained = _rate(lambda: opened.embed_with_gradient(texts).sum().backward(), tokens)
    return Rate(embedded, f"measured, {side_by_side} side by side"), Rate(trained, "measured")


def language_model(given: SimpleNamespace, shape: Shape, taken_for: str | None) -> Rate:
    """Of what the main language model reads."""
    name = given.lms[0]
    threads, where = min(given.compute.threads, os.cpu_count() or 1), device(given.compute)
    length = given.chunk.tokens + given.queries.context_tokens + given.queries.continuation_tokens
    if taken_for:
        rate = _products(threads, where, given.lm[name].dtype == "bf16")
        on = shape.operations(length, given.queries.continuation_tokens / length)
        said = f"from {taken_for}, at half of {rate / 1e9:.0f} G operations/s"
        return Rate(SHARE * rate / on, said)
    from pipelines.lm.language_model import Prompt
    from pipelines.lm.open_lm import open_lm

    compute = given.compute.model_copy(update={"threads": threads, "device": where})
    lm = open_lm(MODELS / "lm" / name, given.lm[name], compute)
    texts = _texts(given)
    prompts = [Prompt(one, other + "\n") for one, other in zip(texts, texts[::-1], strict=True)]
    halves = [text[: len(text) // 2] for text in texts]
    rows = zip(prompts, halves, strict=True)
    read = lm.tokenizer.backend_tokenizer.encode_batch([one.document + one.context + half for one, half in rows])
    tokens = sum(min(len(one.ids), lm.max_tokens) for one in read)
    return Rate(_rate(lambda: lm.score(prompts, halves), tokens), "measured")


def server(http: params.LMServer) -> Rate:
    """What the server allows; where it names no limit, a guess that says so."""
    if http.tokens_per_minute:
        return Rate(http.tokens_per_minute / 60, "the server's limit a minute")
    return Rate(2000.0 * http.concurrency, f"a guess: {http.concurrency} requests at once, 2,000 tokens/s each")


def _texts(given: SimpleNamespace) -> list[str]:
    """Documents where they are there, else words without meaning."""
    import pyarrow.parquet as pq

    docs = CORPORA / "pile/docs.parquet"
    if docs.is_file() and made_by_these("chunk@pile"):
        return next(pq.ParquetFile(docs).iter_batches(64, columns=["text"]))["text"].to_pylist()
    return [" ".join(f"word{(i * j) % 97}" for j in range(given.chunk.tokens // 3)) for i in range(64)]


def _products(threads: int, device: str, half: bool) -> float:
    """Multiplications and additions a second, in a product of a model's shape."""
    import torch

    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if half else torch.float32
    left, right = torch.randn(2048, 768, device=device, dtype=dtype), torch.randn(768, 3072, device=device, dtype=dtype)

    def product() -> None:
        left @ right
        if device == "cuda":
            torch.cuda.synchronize()

    return _rate(product, 2 * 2048 * 768 * 3072)


def _rate(work: Callable[[], object], amount: float) -> float:
    """Amounts a second, by the fastest of those that begin in a WHILE, after one that is not counted."""
    work()
    best, until = float("inf"), time.perf_counter() + WHILE
    while True:
        started = time.perf_counter()
        work()
        ended = time.perf_counter()
        best = min(best, ended - started)
        if ended > until:
            return amount / best


def device(compute: params.Compute) -> str:
    """That of the params, where this machine has it."""
    import torch

    return "cuda" if compute.device == "cuda" and torch.cuda.is_available() else "cpu"


def made_by_these(stage: str) -> bool:
    """Whether dvc.lock says that the stage ran with the params of params.yaml."""
    if not LOCK.is_file():
        return False
    values = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    entry = yaml.load(LOCK.read_bytes(), yaml.CSafeLoader)["stages"].get(stage)
    return entry is not None and all(
        _dotted(values, key) == value for key, value in entry.get("params", {}).get("params.yaml", {}).items()
    )


def _dotted(values: dict, key: str):
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values
