"""Searching a million embeddings: Longtail's index beside FAISS's flat one, one query at a time and many at once.

    .venv/bin/python -m benchmarks.index_speed
    .venv/bin/python -m benchmarks.index_speed --documents 200000 --dim 768

The embeddings are made up, with the numbers of real ones: of 16,000 passages (Wikipedia, Pile, WikiText) embedded by
all-MiniLM-L6-v2, the eigenvalues of their covariance are kept (EIGENVALUES), and of 250 questions with passages that
answer them the mean similarity of the first, tenth and hundredth passage (0.64, 0.43, 0.26). A made-up passage is the
sum of its topic, its page and its own part, a quarter, 35 % and 40 % of the variance; topics differ in size as
1 / sqrt(rank), a page has ten passages. A query is a passage turned away until its similarity to it is 0.65.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.retrieval import dense, faiss_build, index_plan

# number (of 384) -> eigenvalue, 1 on average; between them a power law
EIGENVALUES = {1: 18.2, 2: 14.6, 5: 6.5, 10: 4.24, 20: 3.04, 50: 1.93, 100: 1.2, 200: 0.584, 300: 0.123, 384: 0.018}
TOPICS, PAGE, SHARES, LIKENESS = 1000, 10, (0.25, 0.35, 0.4), 0.65
SHARD = 10_000  # embeddings in a file
BATCH, SINGLE = 500, 100  # queries at once; queries one by one
SETTINGS = {"kind": "auto", "memory_gb": 24.0, "recall_target": 0.95, "bm25_k1": 1.5, "bm25_b": 0.75}
SETTINGS |= dict.fromkeys(("training_sample", "nlist", "nprobe", "refine"))
SCALES = [(count, dim) for count in (36_000_000, 367_000_000) for dim in (384, 768)]


class Speed(NamedTuple):
    build: float  # seconds of one core
    memory: float  # MB of the process's own, at most: without files that are only mapped
    recall: float  # share of the exact top 10
    rates: dict[tuple[str, int], float]  # (at once or one by one, cores) -> queries a second
    probe: int = 0
    refine: int = 0


def embeddings(count: int, dim: int, n_queries: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Queries (n_queries, dim), then shards of documents, float32 of length 1."""
    draw = np.random.default_rng(seed)
    spread = np.exp(
        np.interp(np.log(np.arange(1, dim + 1) * 384 / dim), np.log([*EIGENVALUES]), np.log([*EIGENVALUES.values()]))
    )
    spread = np.sqrt(spread / spread.sum()).astype(np.float32)
    turn = np.linalg.qr(draw.normal(size=(dim, dim)))[0].astype(np.float32)

    def normal(n: int) -> np.ndarray:
        return draw.standard_normal((n, dim), dtype=np.float32) * spread

    def unit(vectors: np.ndarray) -> np.ndarray:
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    weights = np.arange(1, TOPICS + 1) ** -0.5
    of_topic, of_page, of_passage = np.sqrt(SHARES).astype(np.float32)
    topics = draw.choice(TOPICS, -(-count // PAGE), p=weights / weights.sum())
    pages = of_topic * normal(TOPICS)[topics] + of_page * normal(len(topics))
    asked = pages[draw.choice(len(pages), n_queries)] + of_passage * normal(n_queries)
    yield unit(LIKENESS * unit(asked) + (1 - LIKENESS**2) ** 0.5 * unit(normal(n_queries))) @ turn
    for start in range(0, count, SHARD):
        chosen = np.arange(start, min(start + SHARD, count)) // PAGE
        yield unit(pages[chosen] + of_passage * normal(len(chosen))) @ turn


def write(folder: Path, count: int, dim: int) -> None:
    """embeddings/ as the stage `index` keeps them, and queries.npy: half to tune by, BATCH to measure with."""
    made = embeddings(count, dim, faiss_build.HELD_OUT + BATCH)
    np.save(folder / "queries.npy", next(made))
    (folder / "embeddings").mkdir()
    for number, vectors in enumerate(made):
        np.save(folder / f"embeddings/{number:06d}.npy", vectors.astype(np.float16))


def flat(folder: Path, cores: int) -> Speed:
    """What a script would do: all embeddings in memory as fp32, in faiss.IndexFlatIP."""
    stored = dense.Index(folder, flat=True)
    started = time.process_time()
    index = faiss.IndexFlatIP(stored.dim)
    for start in range(0, stored.count, SHARD):
        index.add(stored.embeddings.rows(start, start + SHARD))
    build = time.process_time() - started
    queries = np.load(folder / "queries.npy")[-BATCH:]

    def search(rows: np.ndarray, threads: int) -> np.ndarray:
        faiss.omp_set_num_threads(threads)
        return index.search(rows, faiss_build.K)[1]

    np.save(folder / "exact.npy", search(queries, cores))
    return Speed(build, 0.0, 1.0, _rates(search, queries, cores))


def longtail(folder: Path, cores: int) -> Speed:
    """The stage's own index: chosen, built on one core, tuned, opened."""
    queries = np.load(folder / "queries.npy")
    settings = params.Index(**SETTINGS)
    compute = params.Compute(threads=1, workers=1, executor="local", dask=None, device="cpu")
    with chdir(folder), redirect_stdout(None):
        where = Path(".")
        chosen = index_plan.choose(dense.Index(where, flat=True).count, queries.shape[1], settings)
        started = time.process_time()
        faiss_build.build_lists(chosen, where, 0, compute, 1, "benchmark")
        build = time.process_time() - started
        index = dense.Index(where, threads=cores)
        faiss_build.tune(index, queries[: faiss_build.HELD_OUT], chosen, settings)
        index = dense.Index(where, index.probe, index.refine)

        def search(rows: np.ndarray, threads: int) -> np.ndarray:
            index.threads = threads
            return index.search(rows, faiss_build.K)[0]

        found, exact = search(queries[-BATCH:], cores), np.load("exact.npy")
        recall = float((found[:, :, None] == exact[:, None, :]).any(2).mean())
        return Speed(build, 0.0, recall, _rates(search, queries[-BATCH:], cores), index.probe, index.refine)


def _rates(search: Callable[[np.ndarray, int], Any], queries: np.ndarray, cores: int) -> dict[tuple[str, int], float]:
    """The best of five; of one core seconds of the process itself, as a quiet machine takes, of several the clock's."""
    rates = {}
    for threads in dict.fromkeys((1, cores)):
        clock = time.process_time if threads == 1 else time.perf_counter
        for way, parts in (("batch", [queries]), ("single", [queries[i : i + 1] for i in range(SINGLE)])):
            best = min(_seconds(search, parts, threads, clock) for _ in range(5))
            rates[way, threads] = sum(map(len, parts)) / best
    return rates


def _seconds(search: Callable, parts: list[np.ndarray], threads: int, clock: Callable[[], float]) -> float:
    started = clock()
    for part in parts:
        search(part, threads)
    return clock() - started


def measure(way: Callable[[Path, int], Speed], folder: Path, cores: int) -> Speed:
    """In a process of its own, watched."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(_watched, way, folder, cores).result()


def _watched(way: Callable[[Path, int], Speed], folder: Path, cores: int) -> Speed:
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            peak = max(peak, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        speed = way(folder, cores)
    finally:
        done.set()
        watcher.join()
    return speed._replace(memory=peak * 1024 / 1e6)


def table(count: int, dim: int, cores: int, plain: Speed, ours: Speed) -> str:
    """Markdown: both ways' rates, and ratios."""
    keys = list(plain.rates)
    heads = [f"{way}, {threads} core{'s' * (threads > 1)}" for way, threads in keys]
    out = [f"{count:,} documents of {dim} dimensions; queries a second, {BATCH} at once (batch) or one by one (single)"]
    out += [
        "",
        f"| way | {' | '.join(heads)} | recall@10 | build, s of a core | peak MB |",
        "|---" * (len(keys) + 4) + "|",
    ]
    for name, one in (("IndexFlatIP", plain), ("longtail", ours)):
        rates = " | ".join(f"{one.rates[key]:,.0f}" for key in keys)
        out.append(f"| {name} | {rates} | {one.recall:.3f} | {one.build:,.0f} | {one.memory:,.0f} |")
    ratios = " | ".join(f"{ours.rates[key] / plain.rates[key]:.1f}" for key in keys)
    out.append(f"| times | {ratios} | | | {ours.memory / plain.memory:.2f} |")
    return "\n".join(out)


def scaled(count: int, dim: int, ours: Speed) -> str:
    """Markdown, by calculation: k-means and finding the lists are all but all of building, at the rate measured here.

    A query passes as many documents' codes as here at the least, if the number of lists looked at stays, and at most
    the same share of all.
    """
    settings = params.Index(**SETTINGS)
    here = index_plan.choose(count, dim, settings)
    rate = _work(here) / ours.build
    per_document = 1 / ours.rates["batch", 1] / (ours.probe * here.count / here.nlist * here.codes)
    out = [f"In {settings.memory_gb:g} GiB, by calculation, one core:", ""]
    out += ["| documents | dim | kind | RAM, GiB | disk, GiB | build, h | a query, ms |", "|---" * 7 + "|"]
    for n, d in SCALES:
        try:
            there = index_plan.choose(n, d, settings)
        except LongtailError as error:
            out.append(f"| {n:,} | {d} | {error} | | | | |")
            continue
        disk = (2 * n * d + n * (there.codes / 2 + 8) + n * d * there.sq8) / index_plan.GIB
        least, most = (
            1000 * per_document * there.codes * looked * there.count / there.nlist
            for looked in (ours.probe, ours.probe / here.nlist * there.nlist)
        )
        kind = f"{there.kind}, {there.nlist:,} lists, {there.codes} codes{', bytes' * there.sq8}"
        out.append(
            f"| {n:,} | {d} | {kind} | {there.memory / index_plan.GIB:.1f} | {disk:,.0f} "
            f"| {_work(there) / rate / 3600:,.1f} | {least:,.0f} to {most:,.0f} |"
        )
    return "\n".join(out)


def _work(there: index_plan.Plan) -> float:
    return there.nlist * there.dim * (faiss_build.ITERATIONS * float(there.sample) + there.count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, given.documents, given.dim)
        plain, ours = measure(flat, folder, given.cores), measure(longtail, folder, given.cores)
    print(table(given.documents, given.dim, given.cores, plain, ours))
    print(f"\nlongtail looks at {ours.probe} lists, and {ours.refine} candidates for each document asked for.\n")
    print(scaled(given.documents, given.dim, ours))


if __name__ == "__main__":
    main()
