"""Searching a million embeddings: Longtail's index beside FAISS's flat one, one query at a time and
many at once.

A fifth of them is searched exactly too, as LSR's refresh does: 2,000 queries, each compared with
all documents.

The embeddings are made up, with the numbers of real ones: of 16,000 passages (Wikipedia, Pile,
WikiText) embedded by all-MiniLM-L6-v2, the eigenvalues of their covariance are kept (EIGENVALUES),
and of 250 questions with passages that answer them the mean similarity of the first, tenth and
hundredth passage (0.64, 0.43, 0.26). A made-up passage is the sum of its topic, its page and its
own part, a quarter, 35 % and 40 % of the variance; topics differ in size as 1 / sqrt(rank), a page
has ten passages. A query is a passage turned away until its similarity to it is 0.65.
"""

from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import partial
from importlib import import_module
from pathlib import Path

import faiss
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, Run
from pipelines.params import params
from pipelines.retrieval import dense, dense_build, dense_tuning

# number (of 384) -> eigenvalue, 1 on average; between them a power law
EIGENVALUES = {
    1: 18.2,
    2: 14.6,
    5: 6.5,
    10: 4.24,
    20: 3.04,
    50: 1.93,
    100: 1.2,
    200: 0.584,
    300: 0.123,
    384: 0.018,
}
TOPICS, PAGE, SHARES, LIKENESS = 1000, 10, (0.25, 0.35, 0.4), 0.65
SHARD = 10_000  # embeddings in a file
BATCH, SINGLE = 500, 30  # queries at once; queries one by one
SIZES = {"at once": BATCH, "one by one": SINGLE}
SETTINGS = {"kind": "ivf", "memory_gb": 24.0, "recall_target": 0.95, "bm25_k1": 1.5, "bm25_b": 0.75}


Speed = tuple[
    float, dict[str, Run]
]  # recall: the share of the exact top 10; a search of SIZES queries by each way


def embeddings(count: int, dim: int, n_queries: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Queries (n_queries, dim), then shards of documents, float32 of length 1."""
    draw = np.random.default_rng(seed)
    spread = np.exp(
        np.interp(
            np.log(np.arange(1, dim + 1) * 384 / dim),
            np.log([*EIGENVALUES]),
            np.log([*EIGENVALUES.values()]),
        )
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


def write(folder: Path, count: int, dim: int, n_queries: int) -> None:
    """embeddings/ as the stage `index` keeps them, and queries.npy."""
    made = embeddings(count, dim, n_queries)
    np.save(folder / "queries.npy", next(made))
    (folder / "embeddings").mkdir()
    for number, vectors in enumerate(made):
        np.save(folder / f"embeddings/{number:06d}.npy", vectors.astype(np.float16))


def flat(folder: Path) -> Speed:
    """What a script would do: all embeddings in memory as fp32, in faiss.IndexFlatIP."""
    stored = dense.Index(folder, flat=True)
    index = faiss.IndexFlatIP(stored.dim)
    for start in range(0, stored.count, SHARD):
        index.add(stored.embeddings.rows(start, start + SHARD))
    queries = np.load(folder / "queries.npy")[-BATCH:]

    def search(rows: np.ndarray) -> np.ndarray:
        return index.search(rows, dense_tuning.RECALL_DEPTH)[1]

    faiss.omp_set_num_threads(1)
    np.save(folder / "exact.npy", search(queries))
    return 1.0, _runs(search, queries)


def longtail(folder: Path) -> Speed:
    """The stage's own index: chosen, built on one core, tuned, opened."""
    queries = np.load(folder / "queries.npy")
    settings = params.Index(**SETTINGS)
    with chdir(folder):
        where = Path(".")
        chosen = dense_build.choose_index(
            dense.Index(where, flat=True).count, queries.shape[1], settings
        )
        dense_build.build_lists(chosen, where, 0, measure.compute(), 1, "benchmark")
        index = dense.Index(where, threads=1)
        dense_tuning.tune_search(index, queries[: dense_tuning.TUNING_QUERIES], settings)
        index = dense.Index(where, index.probe, index.refine, threads=1)

        def search(rows: np.ndarray) -> np.ndarray:
            return index.search(rows, dense_tuning.RECALL_DEPTH)[0]

        found, exact = search(queries[-BATCH:]), np.load("exact.npy")
        recall = float((found[:, :, None] == exact[:, None, :]).any(2).mean())
        return recall, _runs(search, queries[-BATCH:])


def exact(folder: Path, ours: bool) -> np.ndarray:
    """The nearest of all documents to every query, by our flat search or by FAISS's flat index,
    which is filled.
    """
    queries, index = np.load(folder / "queries.npy"), dense.Index(folder, flat=True)
    if ours:
        return index.search(queries, dense_tuning.RECALL_DEPTH)[0]
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(index.dim)
    for start in range(0, index.count, SHARD):
        flat.add(index.embeddings.rows(start, start + SHARD))
    return flat.search(queries, dense_tuning.RECALL_DEPTH)[1]


def _runs(search: Callable[[np.ndarray], object], queries: np.ndarray) -> dict[str, Run]:
    """The best of three."""
    parts = {"at once": [queries], "one by one": [queries[i : i + 1] for i in range(SINGLE)]}

    def work(some: list[np.ndarray]) -> Run:
        return measure.timed(lambda: [search(part) for part in some] and None)

    return measure.best({way: partial(work, some) for way, some in parts.items()}, 3)


def rows(quick: bool = False) -> list[Row]:
    (count, dim), made = (5000, 32) if quick else (1_000_000, 384), []
    with measure.in_folder() as folder:
        measure.alone(
            write, folder, count, dim, dense_tuning.TUNING_QUERIES + BATCH
        )  # to tune by, and to measure with
        plain, ours = (measure.alone(way, folder) for way in (flat, longtail))
    for way, theirs in plain.result[1].items():
        what = f"searching {count:,} x {dim} embeddings {way}, recall@10 {ours.result[0]:.3f}"
        one = measure.row(
            what,
            "FAISS's flat index, in memory",
            "queries",
            SIZES[way],
            theirs,
            ours.result[1][way],
        )
        made.append(one._replace(memory=(plain.memory, ours.memory)))
    count, n_queries = count // 5, 50 if quick else 2000
    with measure.in_folder() as folder:
        measure.alone(write, folder, count, dim, n_queries)
        warm = partial(import_module, "torch")
        ways = {
            ours: partial(measure.alone, exact, folder, ours, warm=warm) for ours in (False, True)
        }
        run = measure.best(ways, 3)
    same = (run[False].result[:, :, None] == run[True].result[:, None, :]).any(2).mean()
    assert same > 0.999, (
        "only documents whose scores differ by rounding may change places at the last rank"
    )
    what = f"searching {count:,} x {dim} embeddings exactly, at once"
    made.append(
        measure.row(
            what, "FAISS's flat index and filling it", "queries", n_queries, run[False], run[True]
        )
    )
    return made
