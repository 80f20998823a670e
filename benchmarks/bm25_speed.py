"""BM25: building and searching the index beside a plain implementation, on generated passages.

    .venv/bin/python -m benchmarks.bm25_speed
    .venv/bin/python -m benchmarks.bm25_speed --documents 1000000

The plain way keeps a dictionary of counts for each document and computes the scores of all documents for every query,
as rank_bm25 does, which is timed too where it is installed. bm25s alone builds in memory, and chooses the best itself,
by numba where that is installed. The plain way has Lucene's formula, so that all must find the same. Words have the
frequencies of text: Zipf's law, the most frequent being stop words.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.language import ENGLISH
from pipelines.params import Compute, Index
from pipelines.retrieval import bm25_build, documents
from pipelines.retrieval.bm25 import BM25, Analyser

WORDS, VOCABULARY, ASKED = 100, 1_000_000, 10  # of a passage, of all, of a query
EXPONENT, SHIFT = 1.07, 2.7  # Zipf-Mandelbrot
K, K1, B = 10, 1.5, 0.75
QUERIES, FEW = 1000, 10  # FEW: for the slow ways
BUILDING = 25e-9  # GB a term of the vocabulary, while the index is written


class Run(NamedTuple):
    """Of one core, seconds are the process's own, what a quiet machine takes; of several, those on the clock."""

    build: float  # seconds
    each: float  # seconds of a query
    memory: float  # MB, at most
    scores: np.ndarray  # of the first FEW queries, (FEW, K)


def write_passages(path: Path, count: int) -> list[str]:
    """Write a docs.parquet; return QUERIES queries, each ASKED words in a row of some passage."""
    stop = sorted(ENGLISH.terms.stop_words.split())
    names = np.array([*stop, *(f"w{i}" for i in range(VOCABULARY - len(stop)))], object)
    shares = np.cumsum(1 / (np.arange(VOCABULARY) + SHIFT) ** EXPONENT)
    draw, queries, block = np.random.default_rng(0), [], 50_000
    schema = pa.schema([(name, pa.string()) for name in ("id", "title", "text", "source_document")])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, count, block):
            size = min(block, count - start)
            words = names[np.searchsorted(shares, draw.random((size, WORDS)) * shares[-1])]
            ids = [f"d{i:09d}" for i in range(start, start + size)]
            texts = [" ".join(row) for row in words]
            writer.write_table(pa.table([ids, [""] * size, texts, ids], schema=schema))
            asked = -(-QUERIES * block // count) if count > block else QUERIES
            for row, at in zip(draw.integers(0, size, asked), draw.integers(0, WORDS - ASKED, asked), strict=True):
                queries.append(" ".join(words[row, at : at + ASKED]))
    return queries[:QUERIES]


def ours(docs: Path, queries: Sequence[str], workers: int) -> Run:
    compute = Compute(threads=1, workers=workers, executor="local", dask=None, device="cpu")
    clock = time.process_time if workers == 1 else time.perf_counter
    started = clock()
    values = {"kind": "auto", "memory_gb": workers, "recall_target": 0.95, "bm25_k1": K1, "bm25_b": B}
    settings = Index(**values, **dict.fromkeys(("training_sample", "nlist", "nprobe", "refine")))
    bm25_build.build(docs, Path("index"), settings, compute, f"bm25 on {workers}")
    built = clock() - started
    if workers == 1:
        each, scores = _search(queries)
    else:  # as many processes over the one index, which they share
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_search, [queries[:2]] * workers))
            started = time.perf_counter()
            scores = np.concatenate([part for _, part in pool.map(_search, np.array_split(queries, workers))])
            each = (time.perf_counter() - started) / len(queries)
    return Run(built, each, _memory(), scores[:FEW])


def _search(queries: Sequence[str]) -> tuple[float, np.ndarray]:
    index = BM25(Path("index"), Path("docs.parquet"))
    started = time.process_time()
    _, scores = index.search(list(queries), K)
    return (time.process_time() - started) / len(queries), scores


def plain(docs: Path, queries: Sequence[str], workers: int) -> Run:
    """A dictionary for each document, and a pass over all of them for each word of a query."""
    started, analyser = time.process_time(), Analyser()
    counts = [Counter(terms) for terms in analyser.terms(pq.read_table(docs)["text"].to_pylist())]
    lengths = np.array([sum(one.values()) for one in counts])
    having = Counter(term for one in counts for term in one)
    built = time.process_time() - started
    longer, found = K1 * (1 - B + B * lengths / lengths.mean()), []
    started = time.process_time()
    for query in queries[:FEW]:
        scores = np.zeros(len(counts))
        for term in next(analyser.terms([query])):
            tf = np.array([one.get(term, 0) for one in counts])
            idf = math.log(1 + (len(counts) - having[term] + 0.5) / (having[term] + 0.5))
            scores += idf * tf / (tf + longer)
        found.append(np.sort(scores)[: -K - 1 : -1])
    return Run(built, (time.process_time() - started) / FEW, _memory(), np.array(found))


def rank_bm25(docs: Path, queries: Sequence[str], workers: int) -> Run:
    """The package; its formula for the frequencies of terms is another, so its scores aren't compared."""
    from rank_bm25 import BM25Okapi

    started, analyser = time.process_time(), Analyser()
    index = BM25Okapi([*analyser.terms(pq.read_table(docs)["text"].to_pylist())], k1=K1, b=B)
    built = time.process_time() - started
    started = time.process_time()
    for query in queries[:FEW]:
        np.argsort(index.get_scores(next(analyser.terms([query]))))[: -K - 1 : -1]
    return Run(built, (time.process_time() - started) / FEW, _memory(), np.empty((0, K)))


def bm25s(docs: Path, queries: Sequence[str], workers: int) -> Run:
    """The package by itself; numba's compiling is not counted."""
    import bm25s as package

    started, analyser = time.process_time(), Analyser()
    terms = [*analyser.terms(pq.read_table(docs)["text"].to_pylist())]
    index = package.BM25(k1=K1, b=B, backend="auto")
    index.index(terms, show_progress=False)
    built = time.process_time() - started
    index.retrieve([*analyser.terms(queries[:2])], k=K, show_progress=False)
    started = time.process_time()
    _, scores = index.retrieve([*analyser.terms(queries)], k=K, show_progress=False)
    return Run(built, (time.process_time() - started) / len(queries), _memory(), scores[:FEW])


def _memory() -> float:
    own, children = (resource.getrusage(of).ru_maxrss for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(own, children) / 1024


def _alone(work: Callable[..., Run], *args: Any) -> Run:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    count, cores = parser.parse_args().documents, len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        docs = Path("docs.parquet")
        queries = write_passages(docs, count)
        ways = {"longtail, 1 core": partial(ours, workers=1), f"longtail, {cores} cores": partial(ours, workers=cores)}
        ways |= {"plain, 1 core": partial(plain, workers=1)}
        ways |= {f"bm25s, {'numba' if find_spec('numba') else 'numpy'}": partial(bm25s, workers=1)}
        ways |= {"rank_bm25": partial(rank_bm25, workers=1)} if find_spec("rank_bm25") else {}
        runs = {name: _alone(work, docs, queries) for name, work in ways.items()}
        for name, run in runs.items():
            same = np.allclose(runs["longtail, 1 core"].scores, run.scores, rtol=1e-4) or name == "rank_bm25"
            assert same, f"{name} finds otherwise"
        disk = sum(file.stat().st_size for file in Path("index").iterdir())
        text = sum(len(text.encode()) for batch in documents.filled(docs, 0, count, "{text}") for text in batch)
        terms = json.loads(Path("index/meta.json").read_text())["terms"]
    base = runs["plain, 1 core"]
    print(f"\n{count:,} passages of {WORDS} words, {text / 1e6:,.0f} MB of text; queries of {ASKED} words, top {K}\n")
    print(f"{'':20}{'build, docs/s':>15}{'':9}{'queries/s':>11}{'':9}{'memory, MB':>12}")
    for name, run in runs.items():
        print(
            f"{name:20}{count / run.build:15,.0f}{f'x {base.build / run.build:,.1f}':>9}{1 / run.each:11,.1f}"
            f"{f'x {base.each / run.each:,.0f}':>9}{run.memory:12,.0f}"
        )
    print(f"1 core: the process's own seconds; {cores} cores: seconds on the clock, right where nothing else runs")
    if not find_spec("rank_bm25"):
        print("rank_bm25 is not installed; the plain way does what it does, with Lucene's formula")
    print(f"index: {disk / 1e6:,.0f} MB, {disk / count:,.0f} bytes a document; {terms:,} distinct terms")
    print("limited by: splitting texts and numbering their words (Arrow) in building; memory bandwidth in searching")
    _by_calculation(runs["longtail, 1 core"], runs[f"longtail, {cores} cores"], count, disk, terms, cores)


def _by_calculation(one: Run, all_: Run, count: int, disk: int, terms: int, cores: int) -> None:
    """Time, RAM and disk of larger corpora. Terms are taken to grow like documents ** 0.7, as Heaps' law has it."""
    heads = f"{f'{cores} cores':>12}{'disk':>10}{'RAM to build':>15}{'a query':>11}{'RAM':>10}"
    print(f"\nby calculation{'build, 1 core':>22}{heads}")
    for size in (36e6, 367e6):
        times = size / count
        vocabulary = terms * times**0.7
        building = one.memory * cores / 1e3 + BUILDING * vocabulary  # GB: a segment for each worker, and all terms
        searching = 0.1 + 9e-9 * size  # a query's scores, and which of them may be the best
        print(
            f"{size / 1e6:5,.0f}M documents{one.build * times / 3600:18,.1f} h{all_.build * times / 3600:10,.1f} h"
            f"{disk * times / 1e9:7,.0f} GB{building:12,.1f} GB{one.each * times:9,.2f} s{searching:7,.1f} GB"
        )
    print(f"{terms * (36e6 / count) ** 0.7 / 1e6:,.0f} million terms at 36M. A query's time is one core's, cache warm")


if __name__ == "__main__":
    main()
