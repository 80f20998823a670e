"""Embedding: the encoder beside the loop that Contriever published, with random weights in Contriever-base's shape.

    .venv/bin/python -m benchmarks.encoder_speed
    .venv/bin/python -m benchmarks.encoder_speed --cores 16 --texts 2048
    .venv/bin/python -m benchmarks.encoder_speed --workers 1 2 --texts 1024 --model all-MiniLM-L6-v2

The loop (generate_passage_embeddings.py) takes texts as they come, 512 at once, padded to the longest, in fp32; 32 at
once is kinder to a CPU's caches. One core is measured in CPU seconds, several in wall-clock seconds. That all ways give
the same vectors is checked.

--workers measures how embedding scales, as the stage `index` does it: shards of texts go to workers, vectors come back.
Times are wall-clock seconds, without the workers' start, the better of two; bytes are compared. CPU seconds are of all
processes: where others use the machine, they say what is lost by having several. --model is an encoder's folder.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, chdir
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast

from pipelines import params, workers
from pipelines.pool import processes
from pipelines.retrieval import embeddings
from pipelines.retrieval.encoder import EXACT, Encoder, Numerics

SHAPE = BertConfig()  # Contriever-base is BERT-base
MAX_TOKENS = 512
SPECIAL = ["[PAD]", "[CLS]", "[SEP]"]
RETRIEVER = params.Retriever(
    source="pretrained", path=None, revision=None, query_path=None, query_revision=None, pooling="mean",
    similarity="dot", query_prefix="",
    document="{title} {text}", dtype="auto", batch_tokens=4096, max_tokens=MAX_TOKENS,
    training=None,
)  # fmt: skip
FULL = (36e6, 367e6)  # documents


class Run(NamedTuple):
    seconds: float
    memory: float  # GB, at most
    vectors: np.ndarray
    how: str


def lengths(kind: str, n: int) -> np.ndarray:
    """Tokens of the encoder's, special ones included, in `n` texts.

    128 tokens of a language model are not as many of the encoder's: in excerpts of Wikipedia and of the Pile they vary
    by 11 and 26 % around their mean (standard deviation). Questions have 18 tokens, 8 to 51.
    """
    draw = np.random.default_rng(0)
    documents, questions = draw.normal(125, 15, n), np.exp(draw.normal(np.log(17), 0.35, n))
    found = {
        "documents, all of one length": np.full(n, 128),
        "documents of 128 LM tokens": documents,
        "queries and documents mixed": np.where(np.arange(n) % 2, documents, questions),
    }[kind]
    return np.clip(found, 8, MAX_TOKENS).astype(int)


KINDS = ("documents, all of one length", "documents of 128 LM tokens", "queries and documents mixed")


def make_texts(kind: str, n: int, model: Path | None = None) -> list[str]:
    """Texts of words that are a token each, of the made-up encoder or of `model`."""
    vocabulary = AutoTokenizer.from_pretrained(model).get_vocab() if model else []
    words = sorted(filter(str.isalpha, vocabulary)) or [f"w{i}" for i in range(30_000)]
    draw = np.random.default_rng(1)
    return [" ".join(words[i] for i in draw.integers(0, len(words), count - 2)) for count in lengths(kind, n)]


def make_encoder(folder: Path) -> None:
    vocabulary = [*SPECIAL, *(f"w{i}" for i in range(30_000))]
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]").save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(SHAPE, add_pooling_layer=False).save_pretrained(folder)


@torch.no_grad()
def plain(folder: Path, batch_size: int, texts: list[str]) -> np.ndarray:
    tokenizer, model = _plain(folder)
    found = []
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        given = tokenizer(batch, return_tensors="pt", max_length=MAX_TOKENS, padding=True, truncation=True)
        hidden = model(**given).last_hidden_state
        hidden = hidden.masked_fill(~given["attention_mask"][..., None].bool(), 0.0)
        found.append((hidden.sum(1) / given["attention_mask"].sum(1)[..., None]).numpy())
    return np.concatenate(found)


def longtail(folder: Path, numerics: Numerics | None, texts: list[str]) -> np.ndarray:
    return _ours(folder, numerics).embed(texts)


@lru_cache(maxsize=1)
def _plain(folder: Path):
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()


@lru_cache(maxsize=1)
def _ours(folder: Path, numerics: Numerics | None) -> Encoder:
    return Encoder.open(folder, RETRIEVER, _compute(1), numerics)


def _compute(cores: int) -> params.Compute:
    return params.Compute(threads=1, workers=cores, executor="local", dask=None, device="cpu")


def ways(folder: Path) -> dict[str, Callable[[list[str]], np.ndarray]]:
    return {
        "Contriever's loop, 512 at once": partial(plain, folder, 512),
        "Contriever's loop, 32 at once": partial(plain, folder, 32),
        "longtail, exactly fp32": partial(longtail, folder, EXACT),
        "longtail, dtype fp32": partial(longtail, folder, Numerics("fp32", "medium")),
        "longtail, dtype auto": partial(longtail, folder, None),
    }


def measure(way: Callable[[list[str]], np.ndarray], texts: list[str], threads: int = 1) -> Run:
    """One way in a fresh process, after a few texts: opening a model is no part of a rate."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(_measured, way, texts, threads).result()


def _measured(way: Callable[[list[str]], np.ndarray], texts: list[str], threads: int) -> Run:
    torch.set_num_threads(threads)
    way(texts[:4])
    clock = time.process_time if threads == 1 else time.perf_counter
    started = clock()
    vectors = way(texts)
    seconds = clock() - started
    unit = 1 if sys.platform == "darwin" else 1024
    how = " ".join(_ours(*way.args).numerics if way.func is longtail else EXACT)
    return Run(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9, vectors, how)


def side_by_side(folder: Path, texts: list[str], cores: int) -> float:
    """Wall-clock seconds of `cores` processes that each have a shard of the texts at a time."""
    size = -(-len(texts) // (4 * cores))
    stretches = [texts[start : start + size] for start in range(0, len(texts), size)]
    with processes(_compute(cores)) as executor:
        work = partial(longtail, folder, None)
        list(executor.map(work, [texts[:4]] * cores))
        started = time.perf_counter()
        list(executor.map(work, stretches))
        return time.perf_counter() - started


def by_workers(folder: Path, texts: list[str], counts: list[int]) -> None:
    """Print how fast each number of workers embeds, and the share of linear; the first is the measure."""
    numerics = Encoder.open(folder, RETRIEVER, _compute(1)).numerics
    shard = max(1, len(texts) // (8 * max(counts)))
    ranges = [(start, min(start + shard, len(texts))) for start in range(0, len(texts), shard)]
    write, length = embeddings._write, embeddings._length
    steps = workers.Steps(lambda positions: texts[slice(*positions)], embeddings._embed, write, length)
    seconds, cpu, made = dict.fromkeys(counts, float("inf")), dict.fromkeys(counts, float("inf")), set()
    workers.WORTH = {"cpu": 1.0}  # however little work there is
    with ExitStack() as stack:
        opened = {}
        for count in counts:
            settings = (RETRIEVER, _compute(1), numerics)
            model = workers.Model(Encoder.open, folder, settings, SHAPE.hidden_size**2, 10**9)
            opened[count] = stack.enter_context(workers.Workers(model, _compute(count)))
            workers.map_texts(opened[count], f"start{count}", "", ranges[: 4 * count], steps)
        for turn in range(2):
            for count in counts:
                started, used = time.perf_counter(), cpu_seconds()
                files = workers.map_texts(opened[count], f"embed{count}", str(turn), ranges, steps)
                seconds[count] = min(seconds[count], time.perf_counter() - started)
                cpu[count] = min(cpu[count], cpu_seconds() - used)
                made.add(b"".join(file.read_bytes() for file in files))
    assert len(made) == 1, "other bytes"
    print(f"{len(texts)} texts in {len(ranges)} shards, {' '.join(numerics)}\n")
    print("| workers | seconds | docs/s | of linear | CPU seconds | of linear by these |\n|---|---|---|---|---|---|")
    for count in counts:
        share = seconds[counts[0]] * counts[0] / (seconds[count] * count)
        columns = f"{seconds[count]:.1f} | {len(texts) / seconds[count]:.1f} | {share:.2f} | {cpu[count]:.1f}"
        print(f"| {count} | {columns} | {cpu[counts[0]] / cpu[count]:.2f} |", flush=True)


def cpu_seconds() -> float:
    """Of this process and those it started, so far."""
    here = psutil.Process()
    times = [process.cpu_times() for process in [here, *here.children(recursive=True)]]
    return sum(spent.user + spent.system for spent in times)


def peak() -> dict[str, float]:
    """Multiplications and additions a second of one core, at a product of the model's own shapes."""
    torch.set_num_threads(1)
    left, right = torch.randn(2048, SHAPE.hidden_size), torch.randn(SHAPE.hidden_size, SHAPE.intermediate_size)
    found, operations = {}, 2.0 * 2048 * right.numel()
    for name, dtype, precision in (
        ("fp32 highest", torch.float32, "highest"),
        ("fp32 medium", torch.float32, "medium"),
        ("bf16 highest", torch.bfloat16, "highest"),
    ):
        torch.set_float32_matmul_precision(precision)
        a, b = left.to(dtype), right.to(dtype)
        times = []
        for _ in range(8):
            started = time.process_time()
            a @ b
            times.append(time.process_time() - started)
        found[name] = operations / min(times)
    torch.set_float32_matmul_precision("highest")
    return found


def operations(tokens: np.ndarray) -> float:
    """Of a forward pass over the real tokens alone."""
    weights = SHAPE.num_hidden_layers * (4 * SHAPE.hidden_size**2 + 2 * SHAPE.hidden_size * SHAPE.intermediate_size)
    attention = 2 * SHAPE.num_hidden_layers * SHAPE.hidden_size * tokens.astype(float) ** 2
    return float(2 * (weights * tokens + attention).sum())


def same(vectors: np.ndarray, expected: np.ndarray) -> bool:
    cosines = (vectors * expected).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(expected, axis=1)
    return bool(cosines.min() > 0.9999)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=256, help="of each kind")
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", help="measure embedding by so many workers, and nothing else")
    parser.add_argument("--model", type=Path, help="--workers: an encoder's folder, instead of random weights")
    given = parser.parse_args()
    if given.workers:
        with tempfile.TemporaryDirectory() as name:
            folder = given.model.absolute() if given.model else Path(name, "model")
            if not given.model:
                make_encoder(folder)
            with chdir(name):
                by_workers(folder, make_texts(KINDS[1], given.texts, given.model and folder), given.workers)
        return
    most = peak()
    rates = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in most.items())
    print(f"one core's products of matrices, 10^9 operations/s: {rates}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_encoder(folder)
        for kind in KINDS:
            texts, tokens = make_texts(kind, given.texts), lengths(kind, given.texts)
            print(f"\n{kind}: {len(texts)} texts, {tokens.mean():.0f} tokens on average, the longest {tokens.max()}\n")
            print("| way, one core | computes in | docs/s | tokens/s | share of its products' rate | peak GB | times |")
            print("|---|---|---|---|---|---|---|")
            first = None
            for way, call in ways(folder).items():
                run = measure(call, texts)
                first = first or run
                assert same(run.vectors, first.vectors), f"{way}: other vectors"
                share = operations(tokens) / run.seconds / most[run.how]
                print(
                    f"| {way} | {run.how} | {len(texts) / run.seconds:.1f} | {tokens.sum() / run.seconds:,.0f} "
                    f"| {share:.0%} | {run.memory:.1f} | {first.seconds / run.seconds:.1f} |",
                    flush=True,
                )
            if kind != KINDS[1]:
                continue
            rate = len(texts) / run.seconds
            loop = measure(partial(plain, folder, 512), texts, given.cores).seconds
            several = side_by_side(folder, texts, given.cores)
            print(
                f"\n{given.cores} cores: the loop {len(texts) / loop:.1f} docs/s in {given.cores} threads, longtail "
                f"{len(texts) / several:.1f} in {given.cores} processes, {loop / several:.1f} times as many"
            )
            for count in FULL:
                hours, of_loop = count / rate / 3600, count * first.seconds / len(texts) / 3600
                print(
                    f"{count / 1e6:.0f} million such documents: {hours:,.0f} core hours (the loop {of_loop:,.0f}), "
                    f"{2e-9 * count * SHAPE.hidden_size:,.0f} GB of fp16"
                )


if __name__ == "__main__":
    main()
