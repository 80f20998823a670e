"""Dense retrieval by FAISS (REPLUG §3.1): exact over small corpora, compressed lists over large ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import faiss
import numpy as np

from pipelines import draws, params
from pipelines.retrieval.encoder import Encoder
from pipelines.retrieval.meta import check

FLAT_UP_TO = 200_000  # documents that `auto` searches exactly
BLOCK = 65_536  # embeddings turned from fp16 to fp32 at once
DECIMALS = 5  # of a score: finer than fp16 embeddings tell apart, so equal documents tie whatever the order of the sums


def build(vectors: np.ndarray, kind: str, seed: int, threads: int) -> faiss.Index:
    """An inner-product index over `vectors` (documents, dim), fp16 or fp32, in their order."""
    faiss.omp_set_num_threads(threads)
    count, dim = vectors.shape
    if kind == "auto":
        kind = "flat" if count < FLAT_UP_TO else "ivf"
    lists = int(max(1, min(4 * count**0.5, count / 39)))  # FAISS wants 39 training vectors a list
    recipe = {"flat": "Flat", "hnsw": "HNSW32,SQfp16", "ivf": f"IVF{lists},PQ{dim // 2}x4fs,Refine(SQfp16)"}[kind]
    index = faiss.index_factory(dim, recipe, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        chosen = draws.generator(seed, "index training").permutation(count)[: max(64 * lists, 10_000)]
        index.train(vectors[np.sort(chosen)].astype(np.float32))
    for start in range(0, count, BLOCK):
        index.add(vectors[start : start + BLOCK].astype(np.float32))
    return index


def search(index: faiss.Index, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions (queries, min(k, count)) int64 and scores float32, best first, ties by position."""
    k = min(k, index.ntotal)
    reach = min(index.ntotal, 2 * k + 16)  # ties at the k-th place are decided by position, not by FAISS's heap
    queries = np.ascontiguousarray(queries, np.float32)
    _reach(index, 0.05)
    scores, positions = index.search(queries, reach)
    short = (positions[:, :k] < 0).any(1)
    if short.any():  # too few documents in the lists that were looked at
        _reach(index, 1.0)
        scores[short], positions[short] = index.search(queries[short], reach)
    scores = np.round(scores, DECIMALS)
    order = np.lexsort((positions, -scores), axis=1)[:, :k]
    return np.take_along_axis(positions, order, 1), np.take_along_axis(scores, order, 1)


def _reach(index: faiss.Index, share: float) -> None:
    """Look at this share of the lists, and not at fewer than 16 of them."""
    kind = type(faiss.downcast_index(index)).__name__
    if kind.startswith("IndexRefine"):
        inner = faiss.extract_index_ivf(index)
        inner.nprobe = min(inner.nlist, max(16, int(share * inner.nlist)))
        faiss.downcast_index(index).k_factor = 4.0
    elif kind.startswith("IndexHNSW"):
        faiss.downcast_index(index).hnsw.efSearch = 128


def recall(index: faiss.Index, vectors: np.ndarray, seed: int, k: int = 10, sample: int = 100) -> float:
    """Share of the exact top k that `index` finds, for a sample of the documents as queries."""
    chosen = np.sort(draws.generator(seed, "index recall").permutation(len(vectors))[:sample])
    queries = vectors[chosen].astype(np.float32)
    found, _ = search(index, queries, k)
    best = np.full((len(queries), found.shape[1]), -np.inf, np.float32)
    for start in range(0, len(vectors), BLOCK):
        scores = np.round(queries @ vectors[start : start + BLOCK].astype(np.float32).T, DECIMALS)
        both = np.concatenate([best, scores], axis=1)
        best = -np.sort(-both, axis=1)[:, : best.shape[1]]
    reached = np.round(np.einsum("qd,qkd->qk", queries, vectors[found].astype(np.float32)), DECIMALS)
    return float((reached >= best[:, -1:] - 2 * 10**-DECIMALS).mean())


class Dense:
    """An opened index; implements Retriever."""

    def __init__(self, index: faiss.Index, encoder: Encoder) -> None:
        self.index, self.encoder, self.count = index, encoder, index.ntotal

    @classmethod
    def load(cls, folder: Path, docs: Path, model: Path, encoder: Encoder, compute: params.Compute) -> Dense:
        """Raises LongtailError where the index is missing, or was made of other documents or by another encoder."""
        check(folder, docs=docs, encoder=model, similarity=encoder.similarity)
        faiss.omp_set_num_threads(compute.threads)
        return cls(faiss.read_index(str(folder / "faiss.index"), faiss.IO_FLAG_MMAP_IFC), encoder)

    def search(self, texts: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        return search(self.index, self.encoder.embed(texts), k)
