"""BM25: building and searching the index beside a plain implementation, on generated passages.

The plain way keeps a dictionary of counts for each document and computes the scores of all
documents for every query, as rank_bm25 does, by Lucene's formula. bm25s by itself builds in memory,
and chooses the best itself, by numba where that is installed. All must find the same. Words have
the frequencies of text: Zipf's law, the most frequent being stop words.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.measure import Row, Run
from pipelines.language.language import ENGLISH
from pipelines.retrieval import bm25_build
from pipelines.retrieval.analyser import Analyser
from pipelines.retrieval.bm25 import BM25

WORDS_OF_PASSAGE = 100
WORDS_OF_QUERY = 10
VOCABULARY = 1_000_000
EXPONENT = 1.07  # of Zipf-Mandelbrot's law, as SHIFT
SHIFT = 2.7
PASSAGES_AT_ONCE = 50_000
K = 10  # documents of a query
K1 = 1.5
B = 0.75
QUERIES = 1000
QUERIES_OF_BM25S = 200
QUERIES_OF_LOOP = 10  # whose scores are compared
LOOP = "a loop with Lucene's formula"
COLUMNS = ("id", "title", "text", "source_document")


@dataclass(frozen=True)
class Measured:
    """What building and searching took, and the scores (QUERIES_OF_LOOP, K) of the first queries."""

    build: Run
    search: Run
    n_queries: int
    scores: np.ndarray

    @property
    def rate(self) -> float:
        """Queries a second."""
        return self.n_queries / self.search.cpu


def rows(quick: bool = False) -> list[Row]:
    count = 500 if quick else 100_000
    rounds = 1 if quick else 2
    library = f"bm25s by itself, {'numba' if find_spec('numba') else 'NumPy'}"
    ways = {LOOP: plain, library: bm25s, "ours": longtail}
    runs: dict[str, list[Measured]] = {name: [] for name in ways}
    with measure.in_folder() as folder:
        docs = folder / "docs.parquet"
        queries = measure.alone(write_passages, docs, count).result
        for _ in range(rounds):
            for name, way in ways.items():
                runs[name].append(measure.alone(way, docs, queries).result)

    ours = best(runs.pop("ours"))
    work = f"BM25 of {count:,} passages"
    table = []
    for name, runs_of_way in runs.items():
        theirs = best(runs_of_way)
        assert np.allclose(ours.scores, theirs.scores, rtol=1e-4), f"{name} finds otherwise"
        building = measure.row(
            f"{work}, building", name, "passages", count, theirs.build, ours.build
        )
        searching = Row(f"{work}, searching", name, "queries", theirs.rate, ours.rate)
        table += [building, searching]
    return table


def best(runs: Sequence[Measured]) -> Measured:
    """The fastest building and the fastest search."""
    build = min((run.build for run in runs), key=lambda run: run.cpu)
    search = min((run.search for run in runs), key=lambda run: run.cpu)
    return Measured(build, search, runs[0].n_queries, runs[0].scores)


def write_passages(path: Path, count: int) -> list[str]:
    """Write a docs.parquet; return QUERIES queries, each WORDS_OF_QUERY words in a row of some
    passage.
    """
    stop_words = sorted(ENGLISH.terms.stop_words.split())
    n_other = VOCABULARY - len(stop_words)
    words = np.array([*stop_words, *(f"w{number}" for number in range(n_other))], object)
    shares = np.cumsum(1 / (np.arange(VOCABULARY) + SHIFT) ** EXPONENT)
    draw = np.random.default_rng(0)
    queries_at_once = math.ceil(QUERIES * PASSAGES_AT_ONCE / max(count, PASSAGES_AT_ONCE))

    queries = []
    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, count, PASSAGES_AT_ONCE):
            size = min(PASSAGES_AT_ONCE, count - start)
            drawn = draw.random((size, WORDS_OF_PASSAGE)) * shares[-1]
            passages = words[np.searchsorted(shares, drawn)]
            ids = [f"d{number:09d}" for number in range(start, start + size)]
            texts = [" ".join(passage) for passage in passages]
            writer.write_table(pa.table([ids, [""] * size, texts, ids], schema=schema))

            places = draw.integers(0, size, queries_at_once)
            begins = draw.integers(0, WORDS_OF_PASSAGE - WORDS_OF_QUERY, queries_at_once)
            for place, begin in zip(places, begins, strict=True):
                queries.append(" ".join(passages[place, begin : begin + WORDS_OF_QUERY]))
    return queries[:QUERIES]


def search_all(
    build: Run, search: Callable[[Sequence[str]], np.ndarray], queries: Sequence[str]
) -> Measured:
    """Time a search of all queries, whose scores are (queries, K)."""
    run = measure.timed(partial(search, list(queries)))
    scores = np.array(run.result[:QUERIES_OF_LOOP])
    return Measured(build._replace(result=None), run._replace(result=None), len(queries), scores)


def longtail(docs: Path, queries: Sequence[str]) -> Measured:
    """The stage's index."""
    out = Path("index")
    build = partial(bm25_build.build, docs, out, 1.0, measure.compute(), "bm25")
    built = measure.timed(build)
    index = BM25(out, docs)
    return search_all(built, lambda texts: index.search(texts, K)[1], queries)


class PlainIndex:
    """A dictionary for each document, and a pass over all of them for each word of a query."""

    def __init__(self, docs: Path) -> None:
        self.analyser = Analyser()
        texts = pq.read_table(docs)["text"].to_pylist()
        self.counts = [Counter(terms) for terms in self.analyser.terms(texts)]
        lengths = np.array([counts.total() for counts in self.counts])
        self.norms = K1 * (1 - B + B * lengths / lengths.mean())
        self.document_counts = Counter(term for counts in self.counts for term in counts)

    def search(self, queries: Sequence[str]) -> np.ndarray:
        return np.array([self._best_scores(query) for query in queries])

    def _best_scores(self, query: str) -> np.ndarray:
        n = len(self.counts)
        scores = np.zeros(n)
        for term in next(self.analyser.terms([query])):
            tf = np.array([counts.get(term, 0) for counts in self.counts])
            df = self.document_counts[term]
            idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
            scores += idf * tf / (tf + self.norms)
        return np.sort(scores)[::-1][:K]


def plain(docs: Path, queries: Sequence[str]) -> Measured:
    built = measure.timed(partial(PlainIndex, docs))
    return search_all(built, built.result.search, queries[:QUERIES_OF_LOOP])


def bm25s(docs: Path, queries: Sequence[str]) -> Measured:
    """The package by itself; numba's compiling is not counted."""
    import bm25s as package

    analyser = Analyser()
    index = package.BM25(k1=K1, b=B, backend="auto")

    def build() -> None:
        texts = pq.read_table(docs)["text"].to_pylist()
        index.index(list(analyser.terms(texts)), show_progress=False)

    def search(texts: Sequence[str]) -> np.ndarray:
        terms = [list(terms_of_text) for terms_of_text in analyser.terms(texts)]
        return index.retrieve(terms, k=K, show_progress=False, n_threads=1).scores

    built = measure.timed(build)
    search(queries[:2])
    return search_all(built, search, queries[:QUERIES_OF_BM25S])
