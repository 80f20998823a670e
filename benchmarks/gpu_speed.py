"""The works of models, and the search, on one device beside what a user would write there.

    .venv/bin/python -m benchmarks --device cuda            # all works
    .venv/bin/python -m benchmarks --device cuda training   # this one alone

Embedding is done by `Encoder.embed`, answers by the stage's `answer`, scores by `LocalModel.score`,
LSR's steps by `Trainer.step` and searches by `Index.search`, with the settings of the papers'
profiles. plain_ways.py does the same works with torch and transformers alone. Weights and texts are
random. All ways must give the same results; only answers in bf16 are not compared, as models of
random weights find all tokens about equally likely.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoModel, AutoTokenizer

from benchmarks import encoder_speed, gpu_lm, index_speed, measure, operations, plain_ways
from benchmarks.device import FULL, QUICK, Comparison, Device, read_profile
from benchmarks.measure import Row
from benchmarks.random_models import random_words, write_encoder
from pipelines.answering import latency
from pipelines.lsr import training_queries
from pipelines.lsr.rounds import ScoredCandidates
from pipelines.lsr.trainer import Trainer
from pipelines.lsr.training_queries import CorpusQueries, Schedule
from pipelines.params.params import LSR
from pipelines.retrieval.dense import Index
from pipelines.retrieval.encoder import EXACT, Encoder
from pipelines.scoring.logprobs import Queries
from pipelines.storage import parquet

DOCUMENTS_KIND = encoder_speed.DOCUMENTS  # of 128 tokens of a language model
QUERY_WORDS = 17
FOUND = 10  # documents of a search


def embedding(device: Device) -> Iterator[Row]:
    folder = Path("encoder").absolute()
    write_encoder(device.sizes.encoder, folder)
    texts = encoder_speed.make_texts(DOCUMENTS_KIND, device.sizes.texts)
    lengths = encoder_speed.lengths(DOCUMENTS_KIND, device.sizes.texts)
    params = read_profile("paper-popqa", device)
    retriever = params.retriever[params.retrievers[0]]
    retriever = retriever.model_copy(update={"dtype": device.number_format})
    encoder = Encoder.open(folder, retriever, device.compute)

    model = AutoModel.from_pretrained(folder, add_pooling_layer=False, dtype=device.dtype)
    model = model.to(device.name).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ways = {
        "transformers": partial(plain_ways.embed, model, tokenizer, texts),
        "sentence-transformers": plain_ways.sentence_transformers(
            folder, texts, device.name, device.dtype
        ),
    }
    # bf16 is refused where vectors would differ from fp32's
    our_format = encoder.numerics.dtype
    work = f"embedding {DOCUMENTS_KIND}, BERT-base's shape, ours in {our_format}"
    for name, way in ways.items():
        peer = f"{name}, {plain_ways.TEXTS_AT_ONCE} at once"
        if way is None:
            yield Row(work, peer, missing=f"{name} is not installed")
            continue
        comparison = Comparison(
            work=work,
            unit="texts",
            size=len(texts),
            operations=operations.of_encoder(lengths, device.sizes.encoder),
            peer=peer,
            plain=way,
            ours=partial(encoder.embed, texts),
            agree=same_directions,
        )
        yield device.row(comparison)


def same_directions(left: np.ndarray, right: np.ndarray, device: Device) -> bool:
    """Whether the vectors (n, dim) of two ways point in the same directions."""
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines = (left * right).sum(1) / norms
    return bool((cosines > 0.999).all())


def training(device: Device) -> Iterator[Row]:
    """Steps of LSR, whose candidates are scored already."""
    sizes = device.sizes
    n_queries = sizes.batch_size * sizes.steps
    n_documents = n_queries * sizes.top_k
    folder = Path("encoder").absolute()
    write_encoder(sizes.encoder, folder)
    texts = encoder_speed.make_texts(DOCUMENTS_KIND, n_documents)
    corpus = write_corpus(texts, n_queries)

    params = read_profile("paper-replug", device)
    lsr = settings_of_steps(params.lsr, device)
    schedule = Schedule([corpus], lsr, params.seed)
    retriever = params.retriever[params.retrievers[0]]
    encoder = Encoder.open(folder, retriever, device.compute, EXACT)
    trainer = Trainer(encoder, [corpus], schedule, lsr, [lsr.beta])
    candidates = score_at_random(n_queries, sizes.top_k)
    trainer.start_round([candidates])
    plain = plain_ways.Training(folder, device.name, device.dtype, lsr)

    def plain_steps() -> list[float]:
        losses = []
        for number in range(sizes.steps):
            rows = np.sort(schedule.queries[schedule.batch(number)][:, 1])
            documents = [texts[position] for position in candidates.positions[rows].ravel()]
            loss = plain.step(corpus.queries.texts[rows], documents, candidates.targets[rows])
            losses.append(loss)
        return losses

    def our_steps() -> list[float]:
        return [trainer.step(number)["kl"] for number in range(sizes.steps)]

    document_tokens = encoder_speed.lengths(DOCUMENTS_KIND, n_documents)
    query_tokens = np.full(n_queries, QUERY_WORDS + 2)
    lengths = np.concatenate([document_tokens, query_tokens])
    forward = operations.of_encoder(lengths, sizes.encoder)
    comparison = Comparison(
        work=f"LSR's step, {sizes.batch_size} x {sizes.top_k} documents, BERT-base's shape",
        unit="steps",
        size=sizes.steps,
        operations=3 * forward,  # going back takes two products for each of the way there
        peer="transformers, one padded batch",
        plain=plain_steps,
        ours=our_steps,
        agree=same_losses,
    )
    yield device.row(comparison)


def settings_of_steps(lsr: LSR, device: Device) -> LSR:
    """The section `lsr` for the steps of one round, with a constant learning rate."""
    changes = {
        "batch_size": device.sizes.batch_size,
        "steps": device.sizes.steps,
        "refresh_steps": device.sizes.steps,
        "warmup": 0.0,
        "dtype": device.number_format,
    }
    return lsr.model_copy(update=changes)


def write_corpus(texts: list[str], n_queries: int) -> CorpusQueries:
    """A corpus of these documents, without titles, and random queries for it."""
    numbers = [f"{number:08d}" for number in range(len(texts))]
    table = pa.table({"id": numbers, "title": [""] * len(texts), "text": texts})
    folder = training_queries.CORPORA / "wikipedia"
    folder.mkdir(parents=True)
    parquet.write_parquet(table, folder / "docs.parquet")

    draw = np.random.default_rng(0)
    words = [random_words(draw, QUERY_WORDS) for _ in range(n_queries)]
    nothing = np.full(n_queries, "", object)
    queries = Queries(
        ids=np.array(numbers[:n_queries], object),
        texts=np.array(words, object),
        contexts=nothing,
        continuations=nothing,
        shots=np.full((n_queries, 2), "", object),
        document="{text}",
    )
    return CorpusQueries(
        name="wikipedia",
        corpus="wikipedia",
        queries=queries,
        train=n_queries,
        clusters=np.arange(n_queries),
        answers=None,
    )


def score_at_random(n_queries: int, top_k: int) -> ScoredCandidates:
    """Documents of its own for each query, with random log-probabilities."""
    shape = (n_queries, top_k)
    scores = np.random.default_rng(0).normal(-3, 0.3, shape)
    return ScoredCandidates(
        rows=np.arange(n_queries),
        positions=np.arange(scores.size).reshape(shape),
        targets=scores,
        gains=scores,
    )


def same_losses(left: list[float], right: list[float], device: Device) -> bool:
    close = 0.05 if device.is_gpu else 1e-3
    return np.allclose(left, right, rtol=close)


def searching(device: Device) -> Iterator[Row]:
    """Each query is compared with all embeddings, which are made up as those of index_speed.py."""
    sizes = device.sizes
    folder = Path("index")
    folder.mkdir()
    index_speed.write(folder, sizes.embeddings, sizes.dimensions, sizes.searches)
    queries = np.load(folder / "queries.npy")
    index = Index(folder, threads=device.compute.threads, flat=True, device=device.name)
    embeddings = torch.from_numpy(index.embeddings.rows(0, index.count))
    held = embeddings.to(device.name, torch.float16 if device.is_gpu else torch.float32)

    def ours() -> np.ndarray:
        positions, _ = index.search(queries, FOUND)
        return positions

    comparison = Comparison(
        work=f"searching {sizes.embeddings:,} x {sizes.dimensions} embeddings exactly",
        unit="queries",
        size=sizes.searches,
        operations=2.0 * queries.size * sizes.embeddings,
        peer=f"torch, embeddings held there, {plain_ways.QUERIES_AT_ONCE} at once",
        plain=partial(plain_ways.search, held, queries, FOUND),
        ours=ours,
        agree=same_documents,
    )
    yield device.row(comparison)


def same_documents(left: np.ndarray, right: np.ndarray, device: Device) -> bool:
    """Whether positions (queries, k) are the same; rounding exchanges some, in fp16 more."""
    is_in_both = (left[:, :, None] == right[:, None, :]).any(2)
    least = 0.9 if device.is_gpu else 0.999
    return bool(is_in_both.mean() > least)


WORKS: dict[str, Callable[[Device], Iterator[Row]]] = {
    "embedding": embedding,
    "language_models": gpu_lm.language_models,
    "training": training,
    "searching": searching,
}


def machine(device: str) -> str | None:
    """What the table calls a device; None if this machine does not have it."""
    if device == "cpu":
        return latency.machine()
    if device == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return None


def open_device(name: str, quick: bool) -> Device:
    """A device, and how much is done on it: with `quick` so little that figures say nothing."""
    return Device(name, QUICK if quick else FULL)


def rows_of(work: str, device: Device) -> Iterator[Row]:
    """The rows of a work, which is done in an empty folder."""
    with measure.in_folder():
        yield from WORKS[work](device)
    if device.is_gpu:
        torch.cuda.empty_cache()
