"""Dense retrieval (REPLUG §3.1): candidates by FAISS, or all documents where they are few; scores by the embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import faiss
import numpy as np

from pipelines import params
from pipelines.retrieval import documents
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.meta import check, fingerprint

if TYPE_CHECKING:
    from pipelines.retrieval.encoder import Encoder

BLOCK = 65_536  # embeddings in fp32 at once, where all are compared
BATCH = 1024  # queries that FAISS is asked at once, fewer where so many candidates are wanted of each
WANTED = 1 << 24  # that it is asked for at once
CELLS = 1 << 22  # numbers of candidates' embeddings at once: 16 MiB, which a core's cache nearly holds
DECIMALS = 5  # of a score: finer than fp16 embeddings tell apart, so equal documents tie whatever the order of the sums
FILES = ("faiss.index", "sq8.npy", "scale.npy")  # of a folder, beside the embeddings; Flat has none of them


class Index:
    """The embeddings of a corpus, and a FAISS index that proposes candidates; without one, all are compared.

    A candidate's score is its embedding's, as Flat's would be. `probe` is the number of lists looked at (a graph: of
    documents kept in sight); `refine` candidates are weighed for each document asked for.
    """

    def __init__(self, folder: Path, probe: int = 1, refine: int = 1, threads: int = 1, flat: bool = False) -> None:
        """What lies in `folder`, or with `flat` of it the embeddings alone."""
        self.folder, self.probe, self.refine, self.threads = folder, probe, refine, threads
        files = [folder / name for name in FILES]
        lists, sq8, scale = (not flat and file.exists() and file for file in files)
        self.lists = faiss.read_index(str(lists), faiss.IO_FLAG_MMAP_IFC) if lists else None
        self.embeddings = Embeddings(folder / "embeddings", scattered=self.lists is not None)
        self.count, self.dim = self.embeddings.count, self.embeddings.dim
        self._bytes = np.load(sq8, mmap_mode="r") if sq8 else None
        self._step = np.load(scale)[1] if scale else None

    def search(self, queries: np.ndarray, k: int, hidden: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Positions (queries, min(k, count)) int64 and scores float32, best first, ties by position.

        `hidden` (queries, 2) are ranges of positions left out; positions are -1 and scores -inf where too few are left.
        """
        faiss.omp_set_num_threads(self.threads)
        k, n = min(k, self.count), len(queries)
        queries = np.ascontiguousarray(queries, np.float32)
        hidden = np.zeros((n, 2), np.int64) if hidden is None else hidden
        positions, scores = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf, np.float32)
        batch = max(1, min(BATCH, WANTED // (2 * k * self.refine)))
        for start in range(0, n, batch):
            rows = np.arange(start, min(start + batch, n))
            left_out = int((hidden[rows, 1] - hidden[rows, 0]).max())
            # more than asked for: ties at the k-th place are decided by position, not by FAISS's heap
            reach, probe = 2 * k + 16 + left_out, self.probe
            while len(rows):
                reach = min(self.count, reach)
                positions[rows], scores[rows], whole = self._search(queries[rows], k, hidden[rows], reach, probe)
                rows = rows[~whole]
                reach, probe = 4 * reach, self.count
        return positions, scores

    def _search(
        self, queries: np.ndarray, k: int, hidden: np.ndarray, reach: int, probe: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions and scores (n, k), and (n,) whether looking further could not change them but by chance."""
        found = self.candidates(queries, k, reach, probe)
        found[(found >= hidden[:, :1]) & (found < hidden[:, 1:])] = -1
        if self._bytes is not None and found.shape[1] > reach:
            found = _best(found, self._each(self._roughly, queries, found), reach)[0]
        positions, scores = _best(found, self.scores(queries, found), found.shape[1])
        there = (found >= 0).sum(1)
        left = self.count - (hidden[:, 1] - hidden[:, 0])
        whole = there >= np.minimum(k, left)
        if self.lists is None:  # the last of the candidates may have equals that are none
            whole &= scores[np.arange(len(scores)), there - 1] < scores[:, k - 1]
        return positions[:, :k], scores[:, :k], whole | (reach == self.count)

    def candidates(self, queries: np.ndarray, k: int, reach: int, probe: int) -> np.ndarray:
        """Positions (n, `reach` or more) int64 of documents that may be the best, the likeliest first; -1 for none."""
        if self.lists is None or reach == self.count:  # a graph can have islands, and codes would spare nothing
            heap = faiss.ResultHeap(len(queries), reach, keep_max=True)
            for start in range(0, self.count, BLOCK):
                block = self.embeddings.rows(start, start + BLOCK)
                scores, rows = faiss.knn(queries, block, min(reach, len(block)), faiss.METRIC_INNER_PRODUCT)
                heap.add_result(scores, np.where(rows < 0, rows, rows + start))
            heap.finalize()
            return heap.I
        wanted = min(self.count, max(self.refine * max(k, 10), reach))
        if isinstance(self.lists, faiss.IndexHNSW):
            return self.lists.search(queries, reach, params=faiss.SearchParametersHNSW(efSearch=max(probe, reach)))[1]
        lists = faiss.SearchParametersIVF(nprobe=min(probe, self.lists.nlist))
        return self.lists.search(queries, wanted, params=lists)[1]

    def scores(self, queries: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Similarities (n, candidates) float32 of the documents at `found` by their embeddings, -inf at -1."""
        return self._each(self._exactly, queries, found)

    def _each(self, score, queries: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Scores (n, candidates) float32, -inf where there is none; side by side, as reading waits for the disk."""
        step = max(1, CELLS // (found.shape[1] * self.dim))
        parts = [slice(start, start + step) for start in range(0, len(queries), step)]
        with ThreadPoolExecutor(self.threads) as pool:
            several = pool.map if len(parts) > 1 else map
            scores = np.concatenate(list(several(lambda part: score(queries[part], found[part]), parts)))
        scores[found < 0] = -np.inf
        return scores

    def _exactly(self, queries: np.ndarray, found: np.ndarray) -> np.ndarray:
        vectors = self.embeddings.take(np.maximum(found, 0).ravel()).reshape(*found.shape, self.dim)
        return np.round(np.einsum("qd,qcd->qc", queries, vectors), DECIMALS)

    def _roughly(self, queries: np.ndarray, found: np.ndarray) -> np.ndarray:
        vectors = self._bytes[np.maximum(found, 0)].astype(np.float32)
        return np.einsum("qd,qcd->qc", queries * self._step, vectors)  # but for a number that is the query's own


def _best(found: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best of each row, ties by position."""
    order = np.lexsort((found, -scores), axis=1)[:, :k]
    return np.take_along_axis(found, order, 1), np.take_along_axis(scores, order, 1)


def belonging(folder: Path, encoder: Encoder) -> dict:
    """What meta.json says of the files beside it and of the encoder: an index opened with others is no index."""
    parts = {name: fingerprint(folder / name) for name in ("embeddings", *FILES) if (folder / name).exists()}
    return {"dim": encoder.dim, "parts": parts}


class Dense:
    """An opened index with its encoder; implements Retriever."""

    def __init__(self, index: Index, encoder: Encoder, docs: Path) -> None:
        self.index, self.count, self._encoder, self._docs = index, index.count, encoder, docs

    @classmethod
    def load(cls, folder: Path, docs: Path, model: Path, encoder: Encoder, compute: params.Compute) -> Dense:
        """Raises LongtailError where the index is missing, or its parts, documents and encoder don't go together."""
        meta = check(folder, docs=docs, encoder=model, **encoder.facts, **belonging(folder, encoder))
        return cls(Index(folder, meta["probe"], meta["refine"], compute.threads), encoder, docs)

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As Retriever.search; the score is the similarity of the embeddings."""
        hidden = None if without is None else documents.of_sources(self._docs, without)
        return self.index.search(self._encoder.embed_queries(texts), k, hidden)
