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

import math
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import faiss
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, Run
from pipelines.retrieval import dense, dense_build, dense_tuning
from pipelines.retrieval.dense_tuning import RECALL_DEPTH, TUNING_QUERIES

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
TOPICS = 1000
PASSAGES_OF_PAGE = 10
SHARES = {"topic": 0.25, "page": 0.35, "passage": 0.4}  # of the variance
LIKENESS = 0.65  # of a query and its passage
ROWS_OF_FILE = 10_000
QUERIES = {"at once": 500, "one by one": 30}
SEARCHED = QUERIES["at once"]  # the last queries; those before them tune the index
EXACT_QUERIES = 2000
SEARCHES = 3  # the fastest counts
MEMORY_GB = 24.0


@dataclass(frozen=True)
class Speed:
    """How well and how fast an index is searched."""

    recall: float  # the share of the exact top RECALL_DEPTH
    runs: dict[str, Run]  # of QUERIES, at once and one by one


def rows(quick: bool = False) -> list[Row]:
    if quick:
        return compare_lists(5000, 32) + compare_exact(1000, 32, 50)
    return compare_lists(1_000_000, 384) + compare_exact(200_000, 384, EXACT_QUERIES)


def compare_lists(count: int, dim: int) -> list[Row]:
    """Rows of the index with inverted lists."""
    with measure.in_folder() as folder:
        measure.alone(write, folder, count, dim, TUNING_QUERIES + SEARCHED)
        theirs = measure.alone(flat, folder)
        ours = measure.alone(longtail, folder)

    recall = ours.result.recall
    table = []
    for way, n_queries in QUERIES.items():
        row = measure.row(
            f"searching {count:,} x {dim} embeddings {way}, recall@10 {recall:.3f}",
            "FAISS's flat index, in memory",
            "queries",
            n_queries,
            theirs.result.runs[way],
            ours.result.runs[way],
        )
        table.append(row._replace(memory=(theirs.memory, ours.memory)))
    return table


def compare_exact(count: int, dim: int, n_queries: int) -> list[Row]:
    """The row of an exact search."""
    with measure.in_folder() as folder:
        measure.alone(write, folder, count, dim, n_queries)
        alone = partial(measure.alone, warm=partial(import_module, "torch"))
        ways = {
            "faiss": partial(alone, faiss_nearest, folder),
            "ours": partial(alone, nearest, folder),
        }
        runs = measure.best(ways, SEARCHES)

    # only documents whose scores differ by rounding may change places at the last rank
    same = share_in_common(runs["ours"].result, runs["faiss"].result)
    assert same > 0.999, f"{1 - same:.2%} of the nearest documents are others"
    row = measure.row(
        f"searching {count:,} x {dim} embeddings exactly, at once",
        "FAISS's flat index and filling it",
        "queries",
        n_queries,
        runs["faiss"],
        runs["ours"],
    )
    return [row]


def flat(folder: Path) -> Speed:
    """What a script would do: all embeddings in memory as fp32, in faiss.IndexFlatIP."""
    index = fill_flat(folder)
    queries = np.load(folder / "queries.npy")[-SEARCHED:]

    def search(rows: np.ndarray) -> np.ndarray:
        return index.search(rows, RECALL_DEPTH)[1]

    np.save(folder / "exact.npy", search(queries))
    return Speed(1.0, time_searches(search, queries))


def fill_flat(folder: Path) -> faiss.IndexFlatIP:
    """FAISS's index of all embeddings in the folder, for one core."""
    faiss.omp_set_num_threads(1)
    stored = dense.Index(folder, flat=True)
    index = faiss.IndexFlatIP(stored.dim)
    for start in range(0, stored.count, ROWS_OF_FILE):
        index.add(stored.embeddings.rows(start, start + ROWS_OF_FILE))
    return index


def longtail(folder: Path) -> Speed:
    """The stage's own index: chosen, built on one core, tuned, opened."""
    queries = np.load(folder / "queries.npy")
    searched = queries[-SEARCHED:]
    with chdir(folder):
        here = Path(".")
        count = dense.Index(here, flat=True).count
        plan = dense_build.plan_lists(count, queries.shape[1], MEMORY_GB)
        dense_build.build_lists(plan, here, 0, measure.compute(), 1, "benchmark")
        tuned = dense.Index(here, threads=1)
        dense_tuning.tune_search(tuned, queries[:TUNING_QUERIES])
        index = dense.Index(here, tuned.probe, tuned.refine, threads=1)

        def search(rows: np.ndarray) -> np.ndarray:
            return index.search(rows, RECALL_DEPTH)[0]

        recall = share_in_common(search(searched), np.load("exact.npy"))
        return Speed(recall, time_searches(search, searched))


def time_searches(search: Callable[[np.ndarray], object], queries: np.ndarray) -> dict[str, Run]:
    """The best of some searches of QUERIES by each way."""
    batches = {
        "at once": [queries],
        "one by one": [queries[number : number + 1] for number in range(QUERIES["one by one"])],
    }

    def search_all(way: str) -> None:
        for batch in batches[way]:
            search(batch)

    return measure.in_turns({way: partial(search_all, way) for way in QUERIES}, SEARCHES)


def nearest(folder: Path) -> np.ndarray:
    """The nearest of all documents to every query, (queries, RECALL_DEPTH), by our flat search."""
    queries = np.load(folder / "queries.npy")
    return dense.Index(folder, flat=True).search(queries, RECALL_DEPTH)[0]


def faiss_nearest(folder: Path) -> np.ndarray:
    """The same by FAISS's flat index, which is filled."""
    queries = np.load(folder / "queries.npy")
    return fill_flat(folder).search(queries, RECALL_DEPTH)[1]


def share_in_common(left: np.ndarray, right: np.ndarray) -> float:
    """The share of the documents (queries, k) that the other way has for the same query."""
    is_same = left[:, :, None] == right[:, None, :]
    return float(is_same.any(2).mean())


def write(folder: Path, count: int, dim: int, n_queries: int) -> None:
    """embeddings/ as the stage `index` keeps them, and queries.npy."""
    batches = embeddings(count, dim, n_queries)
    np.save(folder / "queries.npy", next(batches))
    (folder / "embeddings").mkdir()
    for number, vectors in enumerate(batches):
        np.save(folder / f"embeddings/{number:06d}.npy", vectors.astype(np.float16))


def embeddings(count: int, dim: int, n_queries: int) -> Iterator[np.ndarray]:
    """Queries (n_queries, dim), then files of documents, float32 of length 1."""
    draw = np.random.default_rng(0)
    spread = spread_of(dim)
    turn = np.linalg.qr(draw.normal(size=(dim, dim)))[0].astype(np.float32)

    def normal(n: int, part: str | None = None) -> np.ndarray:
        vectors = draw.standard_normal((n, dim), dtype=np.float32) * spread
        if part:
            vectors *= np.float32(math.sqrt(SHARES[part]))
        return vectors

    weights = np.arange(1, TOPICS + 1) ** -0.5
    n_pages = math.ceil(count / PASSAGES_OF_PAGE)
    topics = draw.choice(TOPICS, n_pages, p=weights / weights.sum())
    pages = normal(TOPICS, "topic")[topics] + normal(n_pages, "page")

    pages_of_queries = pages[draw.choice(n_pages, n_queries)]
    passages = unit(pages_of_queries + normal(n_queries, "passage"))
    away = (1 - LIKENESS**2) ** 0.5 * unit(normal(n_queries))
    yield unit(LIKENESS * passages + away) @ turn
    for start in range(0, count, ROWS_OF_FILE):
        numbers = np.arange(start, min(start + ROWS_OF_FILE, count))
        passages = pages[numbers // PASSAGES_OF_PAGE] + normal(len(numbers), "passage")
        yield unit(passages) @ turn


def spread_of(dim: int) -> np.ndarray:
    """Standard deviations of a vector's numbers before it is turned, (dim,) float32."""
    numbers = np.log(list(EIGENVALUES))
    eigenvalues = np.log(list(EIGENVALUES.values()))
    places = np.log(np.arange(1, dim + 1) * 384 / dim)
    variances = np.exp(np.interp(places, numbers, eigenvalues))
    return np.sqrt(variances / variances.sum()).astype(np.float32)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, dim) with length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
