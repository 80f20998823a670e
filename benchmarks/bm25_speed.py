"""BM25: building and searching the index beside a plain implementation, on generated passages.

The plain way keeps a dictionary of counts for each document and computes the scores of all
documents for every query, as rank_bm25 does, by Lucene's formula. bm25s by itself builds in memory,
and chooses the best itself, by numba where that is installed. All must find the same. Words have
the frequencies of text: Zipf's law, the most frequent being stop words.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row, Run
from pipelines.language.language import ENGLISH
from pipelines.params.params import Index
from pipelines.retrieval import bm25_build
from pipelines.retrieval.analyser import Analyser
from pipelines.retrieval.bm25 import BM25

WORDS, VOCABULARY, ASKED = 100, 1_000_000, 10  # of a passage, of all, of a query
EXPONENT, SHIFT = 1.07, 2.7  # Zipf-Mandelbrot
K, K1, B = 10, 1.5, 0.75
QUERIES, BM25S, FEW = 1000, 200, 10  # of all; for slower ways


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
            for row, at in zip(
                draw.integers(0, size, asked), draw.integers(0, WORDS - ASKED, asked), strict=True
            ):
                queries.append(" ".join(words[row, at : at + ASKED]))
    return queries[:QUERIES]


def longtail(docs: Path, queries: Sequence[str]) -> Found:
    values = {"kind": "auto", "memory_gb": 1, "recall_target": 0.95, "bm25_k1": K1, "bm25_b": B}
    settings = Index(**values)
    out = Path("index")
    build = measure.timed(lambda: bm25_build.build(docs, out, settings, measure.compute(), "bm25"))
    index = BM25(out, docs)
    return _searched(build, lambda query: index.search(query, K)[1], queries, at_once=True)


def _searched(build: Run, search: Callable, queries: Sequence[str], at_once: bool = False) -> Found:
    """`search` takes a list of queries if `at_once`, which is timed with all of them, else one
    of the first FEW.
    """
    asked = [list(queries)] if at_once else queries[:FEW]
    run = measure.timed(lambda: [search(query) for query in asked])
    found, n = (run.result[0], len(queries)) if at_once else (run.result, len(asked))
    return Found(build._replace(result=None), run._replace(result=None), n, np.array(found[:FEW]))


def plain(docs: Path, queries: Sequence[str]) -> Found:
    """A dictionary for each document, and a pass over all of them for each word of a query."""
    analyser = Analyser()

    def build() -> tuple:
        counts = [
            Counter(terms) for terms in analyser.terms(pq.read_table(docs)["text"].to_pylist())
        ]
        lengths = np.array([sum(one.values()) for one in counts])
        return (
            counts,
            K1 * (1 - B + B * lengths / lengths.mean()),
            Counter(term for one in counts for term in one),
        )

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


def rows(quick: bool = False) -> list[Row]:
    count, rounds, found = 500 if quick else 100_000, 1 if quick else 2, []
    library = f"bm25s by itself, {'numba' if find_spec('numba') else 'NumPy'}"
    ways = {"a loop with Lucene's formula": plain, library: bm25s, "ours": longtail}
    with measure.in_folder() as folder:
        docs = folder / "docs.parquet"
        queries = measure.alone(write_passages, docs, count).result
        runs = [
            {name: measure.alone(way, docs, queries).result for name, way in ways.items()}
            for _ in range(rounds)
        ]
    best = {name: _best([run[name] for run in runs]) for name in ways}
    ours = best.pop("ours")
    for name, one in best.items():
        assert np.allclose(ours.scores, one.scores, rtol=1e-4), f"{name} finds otherwise"
        work, rates = (
            f"BM25 of {count:,} passages",
            (each.n / each.search.cpu for each in (one, ours)),
        )
        found.append(
            measure.row(f"{work}, building", name, "passages", count, one.build, ours.build)
        )
        found.append(Row(f"{work}, searching", name, "queries", *rates))
    return found


def _best(runs: Sequence[Found]) -> Found:
    build, search = (
        min((getattr(run, of) for run in runs), key=lambda one: one.cpu)
        for of in ("build", "search")
    )
    return runs[0]._replace(build=build, search=search)
