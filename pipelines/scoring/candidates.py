"""What a query may be given (REPLUG §3.1, §6): each retriever's best documents, random ones, those of smaller corpora.

The datastore curve asks how results grow with the corpus. Its shares are drawn by hash, each within the larger ones;
their best documents are found exactly, by one pass over the embeddings of the whole, whatever index lies over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from pipelines import draws
from pipelines.replug import ensemble
from pipelines.scoring import logprob_table
from pipelines.scoring.queries import Queries

if TYPE_CHECKING:
    from pipelines.retrieval.embeddings import Embeddings

RETRIEVERS = {"bm25": None, "dense": Path("data/models/retriever"), "lsr": Path("data/models/lsr")}
CURVE = "dense"  # the retriever of the datastore curve
BLOCK = 16_384  # documents that the queries are compared with at once
STEPS = 10**5  # of a score: as in retrieval/dense.py, equal documents tie
PLACES = 2**33  # more than a corpus has documents
EMPTY = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Candidates:
    """Documents for some queries, best first; where fewer are left, table.NONE with similarity -inf."""

    retriever: str  # "dense@0.1": over a share of the documents
    queries: np.ndarray  # (n,) rows, ascending
    positions: np.ndarray  # (n, k) int64
    similarities: np.ndarray  # (n, k), what lambda is a softmax of


def find(corpus: str, queries: Queries, sources: np.ndarray, params: SimpleNamespace) -> list[Candidates]:
    """Candidates from the corpus's indexes; none is of its query's own source document, `sources` (n,)."""
    from pipelines.retrieval import documents
    from pipelines.retrieval.retriever import open_retriever

    docs, k, rows = Path("data/corpus", corpus, "docs.parquet"), params.logprobs.top_k, np.arange(len(queries))
    own, found = documents.ranges_of_sources(docs, sources), []
    for name in ("bm25", *params.parts.encoders, *params.parts.tuned):
        encoder = RETRIEVERS[name]
        retriever = open_retriever(Path("data/index", name, corpus), docs, encoder, params.retriever, params.compute)
        positions, scores = retriever.search(list(queries.texts), k, without=list(sources))
        found.append(Candidates(name, rows, positions, ensemble.comparable(scores, name)))
    positions = random_documents(params.seed, queries.ids, own, retriever.count, k)
    found.append(Candidates("random", rows, positions, np.where(positions == logprob_table.NONE, -np.inf, 0.0)))
    return found + _curve(corpus, docs, queries, own, params)


def _curve(corpus: str, docs: Path, queries: Queries, own: np.ndarray, params: SimpleNamespace) -> list[Candidates]:
    from pipelines.retrieval.embeddings import Embeddings
    from pipelines.retrieval.encoder import Encoder

    settings, embeddings = params.logprobs.datastore, Embeddings(Path("data/index", CURVE, corpus, "embeddings"))
    drawn = draws.sample(params.seed, "datastore queries", list(queries.ids), settings.max_queries)
    encoder = Encoder.open(RETRIEVERS[CURVE], params.retriever, params.compute)
    vectors, shares = encoder.embed_queries(list(queries.texts[drawn])), [*settings.shares, 1.0]
    best = best_of_shares(docs, embeddings, vectors, own[drawn], shares, params.logprobs.top_k, params.seed)
    return [Candidates(f"{CURVE}@{share:g}", drawn, *of_share) for share, of_share in best.items()]


def random_documents(seed: int, ids: Sequence[str], own: np.ndarray, count: int, k: int) -> np.ndarray:
    """k distinct positions for each query, (n, min(k, count)) int64, by a hash of its id; none in `own` (n, 2)."""
    size = min(k, count)
    drawn = np.full((len(ids), size), logprob_table.NONE, np.int64)
    for row, (one, (first, stop)) in enumerate(zip(ids, own.tolist(), strict=True)):
        more = min(size + stop - first, count)
        some = draws.generator(seed, "random documents", one).choice(count, more, replace=False)
        kept = some[(some < first) | (some >= stop)][:size]
        drawn[row, : len(kept)] = kept
    return drawn


def best_of_shares(
    docs: Path,
    embeddings: Embeddings,
    vectors: np.ndarray,
    own: np.ndarray,
    shares: Sequence[float],
    k: int,
    seed: int,
) -> dict[float, tuple[np.ndarray, np.ndarray]]:
    """For each share of the documents the exact k best of it: positions (n, k) and scores; `vectors` is (n, dim).

    A document is in a share if its id's hash is below it. No query gets its `own` (n, 2), from the first position to
    before the second. One block of embeddings is in memory at a time.
    """
    best = {share: np.full((len(vectors), k), EMPTY) for share in shares}
    start = 0
    for batch in pq.ParquetFile(docs).iter_batches(BLOCK, columns=["id"]):
        places = np.arange(start, start + len(batch))
        drawn = draws.uniforms(seed, "datastore", batch["id"].to_pylist())
        scores = np.rint(vectors @ embeddings.rows(start, start + len(batch)).T * STEPS).astype(np.int64)
        keys = scores * PLACES + PLACES - 1 - places  # ordered as by score, then position
        keys[(places >= own[:, :1]) & (places < own[:, 1:])] = EMPTY
        for share, kept in best.items():
            both = np.concatenate([kept, keys[:, drawn < share]], axis=1)
            best[share] = np.partition(both, -k, axis=1)[:, -k:]
        start += len(batch)
    return {share: _decoded(np.sort(kept, axis=1)[:, ::-1]) for share, kept in best.items()}


def _decoded(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    empty = keys == EMPTY
    positions, scores = PLACES - 1 - keys % PLACES, (keys // PLACES) / STEPS
    return np.where(empty, logprob_table.NONE, positions), np.where(empty, -np.inf, scores)


def union(n: int, found: Sequence[Candidates]) -> np.ndarray:
    """The distinct (query, position) of all candidates and, for n queries, of no document, in order, (pairs, 2)."""
    nothing = np.stack([np.arange(n), np.full(n, logprob_table.NONE)], axis=1)
    return np.unique(
        np.concatenate([nothing, *(logprob_table.unique_pairs(c.queries, c.positions) for c in found)]), axis=0
    )
