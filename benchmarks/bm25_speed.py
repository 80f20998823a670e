"""BM25: building and searching the index beside a plain implementation, on generated passages.

    .venv/bin/python -m benchmarks.bm25_speed
    .venv/bin/python -m benchmarks.bm25_speed --full   # and, by calculation, what large corpora take

The plain way keeps a dictionary of counts for each document and computes the scores of all documents for every query,
as rank_bm25 does. The plain way has Lucene's formula, so that all but rank_bm25 must find the same. bm25s by itself
builds in memory, and chooses the best itself, by numba where that is installed. Words have the frequencies of text:
Zipf's law, the most frequent being stop words.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row, Run
from pipelines.language import ENGLISH
from pipelines.params import Index
from pipelines.retrieval import bm25_build
from pipelines.retrieval.bm25 import BM25, Analyser

WORDS, VOCABULARY, ASKED = 100, 1_000_000, 10  # of a passage, of all, of a query
EXPONENT, SHIFT = 1.07, 2.7  # Zipf-Mandelbrot
K, K1, B = 10, 1.5, 0.75
QUERIES, BM25S, FEW = 1000, 200, 10  # of all; for slower ways
BUILDING = 25e-9  # GB a term of the vocabulary, while the index is written


class Found(NamedTuple):
    """What building and searching took, and the scores (FEW, K) of the first queries."""

    build: Run
    search: Run
    n: int  # queries
    scores: np.ndarray


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


def longtail(docs: Path, queries: Sequence[str], workers: int = 1) -> Found:
    values = {"kind": "auto", "memory_gb": workers, "recall_target": 0.95, "bm25_k1": K1, "bm25_b": B}
    settings = Index(**values, **dict.fromkeys(("training_sample", "nlist", "nprobe", "refine")))
    out = Path(f"index{workers}")
    build = measure.timed(lambda: bm25_build.build(docs, out, settings, measure.compute(workers), f"bm25 {workers}"))
    index = BM25(out, docs)
    return _searched(build, lambda query: index.search(query, K)[1], queries, at_once=True)


def _searched(build: Run, search: Callable, queries: Sequence[str], at_once: bool = False) -> Found:
    """`search` takes a list of queries if `at_once`, which is timed with all of them, else one of the first FEW."""
    asked = [list(queries)] if at_once else queries[:FEW]
    run = measure.timed(lambda: [search(query) for query in asked])
    found = run.result[0] if at_once else run.result
    return Found(
        build._replace(result=None),
        run._replace(result=None),
        len(queries if at_once else asked),
        np.array(found[:FEW]),
    )


def plain(docs: Path, queries: Sequence[str]) -> Found:
    """A dictionary for each document, and a pass over all of them for each word of a query."""
    analyser = Analyser()

    def build() -> tuple:
        counts = [Counter(terms) for terms in analyser.terms(pq.read_table(docs)["text"].to_pylist())]
        lengths = np.array([sum(one.values()) for one in counts])
        return counts, K1 * (1 - B + B * lengths / lengths.mean()), Counter(term for one in counts for term in one)

    def search(query: str) -> np.ndarray:
        scores = np.zeros(len(counts))
        for term in next(analyser.terms([query])):
            tf = np.array([one.get(term, 0) for one in counts])
            idf = math.log(1 + (len(counts) - having[term] + 0.5) / (having[term] + 0.5))
            scores += idf * tf / (tf + longer)
        return np.sort(scores)[: -K - 1 : -1]

    built = measure.timed(build)
    counts, longer, having = built.result
    return _searched(built, search, queries)


def rank_bm25(docs: Path, queries: Sequence[str]) -> Found:
    """The package; its formula for the frequencies of terms is another, so its scores aren't compared."""
    from rank_bm25 import BM25Okapi

    analyser = Analyser()
    build = measure.timed(lambda: BM25Okapi([*analyser.terms(pq.read_table(docs)["text"].to_pylist())], k1=K1, b=B))
    return _searched(
        build, lambda query: np.sort(build.result.get_scores(next(analyser.terms([query]))))[: -K - 1 : -1], queries
    )


def bm25s(docs: Path, queries: Sequence[str]) -> Found:
    """The package by itself; numba's compiling is not counted."""
    import bm25s as package

    analyser, index = Analyser(), package.BM25(k1=K1, b=B, backend="auto")

    def build() -> None:
        index.index([*analyser.terms(pq.read_table(docs)["text"].to_pylist())], show_progress=False)

    def search(some: Sequence[str]) -> np.ndarray:
        asked = [list(terms) for terms in analyser.terms(some)]
        return index.retrieve(asked, k=K, show_progress=False, n_threads=1).scores

    built = measure.timed(build)
    search(queries[:2])
    return _searched(built, search, queries[:BM25S], at_once=True)


def rows(quick: bool = False, full: bool = False, documents: int = 100_000) -> list[Row]:
    """`full` prints, by calculation, what larger corpora take."""
    count, rounds = 500 if quick else documents, 1 if quick else 2
    with measure.in_folder() as folder:
        docs = folder / "docs.parquet"
        queries = measure.alone(write_passages, docs, count).result
        ways = {"longtail": longtail, "two": partial(longtail, workers=2), "plain": plain, "bm25s": bm25s}
        ways |= {"rank_bm25": rank_bm25} if find_spec("rank_bm25") else {}
        runs = [{name: measure.alone(way, docs, queries).result for name, way in ways.items()} for _ in range(rounds)]
        found = {name: _best([run[name] for run in runs]) for name in ways}
        for name, one in found.items():
            same = np.allclose(found["longtail"].scores, one.scores, rtol=1e-4) or name == "rank_bm25"
            assert same, f"{name} finds otherwise"
        disk = sum(file.stat().st_size for file in Path("index1").iterdir())
        terms = json.loads(Path("index1/meta.json").read_text())["terms"]
    if full or quick:  # quick: whether that works, too
        print(_by_calculation(found["longtail"], found["two"], count, disk, terms))
    ours, made = found["longtail"], []
    peers = {
        "plain": "a loop with Lucene's formula",
        "rank_bm25": "rank_bm25",
        "bm25s": f"bm25s by itself, {'numba' if find_spec('numba') else 'NumPy'}",
    }
    for what, of in (("building", "build"), ("searching", "search")):
        what = f"BM25 of {count:,} passages, {what}"
        for name, peer in peers.items():
            if name not in found:
                made.append(Row(what, peer, missing="rank_bm25 is not installed"))
                continue
            theirs, mine = getattr(found[name], of), getattr(ours, of)
            sizes = (count, count) if of == "build" else (found[name].n, ours.n)
            made.append(
                Row(
                    what,
                    peer,
                    "passages" if of == "build" else "queries",
                    sizes[0] / theirs.cpu,
                    sizes[1] / mine.cpu,
                    memory=(theirs.memory, mine.memory) if of == "build" else None,
                )
            )
    return made


def _best(runs: Sequence[Found]) -> Found:
    build, search = (min((getattr(run, of) for run in runs), key=lambda one: one.cpu) for of in ("build", "search"))
    return runs[0]._replace(build=build, search=search)


def _by_calculation(one: Found, two: Found, count: int, disk: int, terms: int) -> str:
    """Time, RAM and disk of larger corpora. Terms are taken to grow like documents ** 0.7, as Heaps' law has it."""
    out = ["| passages | build, h of a core | with two workers | disk, GB | RAM to build, GB | a query, s | RAM, GB |"]
    out.append("|---" * 7 + "|")
    for size in (36e6, 367e6):
        times = size / count
        building = one.build.memory * 2 / 1e3 + BUILDING * terms * times**0.7  # a segment for each worker, all terms
        searching = 0.1 + 9e-9 * size  # a query's scores, and which of them may be the best
        hours = (seconds * times / 3600 for seconds in (one.build.cpu, two.build.wall))
        cells = (*hours, disk * times / 1e9, building, one.search.cpu / one.n * times, searching)
        out.append(f"| {size / 1e6:,.0f} million | {' | '.join(f'{cell:.1f}' for cell in cells)} |")
    return "\n".join(out)


if __name__ == "__main__":
    measure.main(rows)
