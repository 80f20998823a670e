"""Dense retrieval (REPLUG §3.1): FAISS's lists or torch propose candidates, the stored embeddings give their scores."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import faiss
import numpy as np

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.retrieval.embeddings import Embeddings

if TYPE_CHECKING:
    from pipelines.retrieval.encoder import Encoder

BLOCK = 16_384  # embeddings held in fp32 at once, when all are compared
COMPARED = {"cpu": 256, "cuda": 4096}  # queries that a block is compared with at once, by device
BATCH = 1024  # queries that FAISS searches at once, at most
CANDIDATES = 1 << 24  # the most candidates held at once
CELLS = 1 << 22  # numbers of candidates' embeddings held at once: 16 MiB, nearly what a core's cache holds
DECIMALS = 5  # a score's decimals: finer than fp16 embeddings, but equal documents tie in any order of sums


class Index:
    """A corpus's embeddings, and a FAISS index that proposes candidates; without one, all documents are compared.

    A candidate's score comes from its embedding, so it is the same for every kind of index. `probe` is the number of
    lists searched; `refine` candidates are scored for each document wanted. All documents are compared on `device`,
    lists are searched on the CPU.
    """

    def __init__(
        self, folder: Path, probe: int = 1, refine: int = 1, threads: int = 1, flat: bool = False, device: str = "cpu"
    ) -> None:
        """Open the index in `folder`; with `flat` only its embeddings."""
        self.folder, self.probe, self.refine, self.threads, self.device = folder, probe, refine, threads, device
        file = folder / "faiss.index"
        try:
            lists = file.exists() and not flat
            self.lists = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC) if lists else None
        except RuntimeError as error:
            said = f"damaged ({' '.join(str(error).split())[-200:]}), expected FAISS's index"
            raise LongtailError(f"{file}: {said}; run the stage `index` again") from None
        self.embeddings = Embeddings(folder / "embeddings")
        self.count, self.dim = self.embeddings.count, self.embeddings.dim

    def search(self, queries: np.ndarray, k: int, hidden: np.ndarray | None = None) -> documents.Found:
        """Positions (queries, min(k, count)) int64 and scores float32, best first, ties by position.

        `hidden` (queries, 2) are ranges of positions left out. Missing documents have position -1 and score -inf.
        """
        faiss.omp_set_num_threads(self.threads)
        k, n = min(k, self.count), len(queries)
        queries = np.ascontiguousarray(queries, np.float32)
        hidden = np.zeros((n, 2), np.int64) if hidden is None else hidden
        positions, scores = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf, np.float32)
        # more candidates than wanted, so that position and not FAISS's heap or torch decides ties at the k-th place
        reach = 2 * k + 16 + int((hidden[:, 1] - hidden[:, 0]).max(initial=0))
        pending = [(np.arange(n), reach, self.probe)] if n else []  # (queries, candidates for each, lists searched)
        while pending:
            rows, reach, probe = pending.pop()
            reach = min(self.count, reach)
            # a pass over all embeddings serves as many queries as can be
            most = CANDIDATES // reach if self.lists is None else min(BATCH, CANDIDATES // (reach * self.refine))
            if len(rows) > (most := max(1, most)):
                pending.append((rows[most:], reach, probe))
                rows = rows[:most]
            candidates = self.candidates(queries[rows], k, reach, probe)
            first, last = np.split(hidden[rows], 2, axis=1)
            candidates[(candidates >= first) & (candidates < last)] = -1
            found = self.scores(queries[rows], candidates)
            order = np.lexsort((candidates, -found), axis=1)
            candidates, found = (np.take_along_axis(values, order, 1) for values in (candidates, found))
            positions[rows], scores[rows] = candidates[:, :k], found[:, :k]
            # complete: enough documents, and all ties considered
            n_found, n_visible = (candidates >= 0).sum(1), self.count - (last - first)[:, 0]
            complete = n_found >= np.minimum(k, n_visible)
            if self.lists is None:  # a document that ties with the last candidate may not be a candidate itself
                complete &= found[np.arange(len(rows)), n_found - 1] < found[:, k - 1]
            rows = rows[~(complete | (reach == self.count))]
            if len(rows):
                pending.append((rows, 4 * reach, self.count))
        return positions, scores

    def candidates(self, queries: np.ndarray, k: int, reach: int, probe: int) -> np.ndarray:
        """Positions (n, `reach` or more) int64 of documents that may be the best, the likeliest first; -1 for none."""
        if self.lists is None or reach == self.count:  # lists would save no time
            return self._nearest(queries, reach)
        wanted = min(self.count, max(self.refine * max(k, 10), reach))
        lists = faiss.SearchParametersIVF(nprobe=min(probe, self.lists.nlist))
        return self.lists.search(queries, wanted, params=lists)[1]

    def _nearest(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Positions (queries, k) int64 of the k <= count best documents, best first, ties in any order.

        All are compared, in fp32 on `device`: a block of documents is read once for all queries.
        """
        import torch

        torch.set_num_threads(self.threads)
        asked = torch.from_numpy(queries).to(self.device)
        best = torch.full((len(asked), k), -torch.inf, device=self.device)
        positions = torch.full((len(asked), k), -1, device=self.device)
        for start in range(0, self.count, BLOCK):
            halves = self.embeddings.rows(start, start + BLOCK, np.float16)
            block = torch.from_numpy(halves).to(self.device).float().T
            for first in range(0, len(asked), COMPARED[self.device]):
                some = slice(first, first + COMPARED[self.device])
                scores, rows = (asked[some] @ block).topk(min(k, block.shape[1]), sorted=False)
                best[some], kept = torch.cat([best[some], scores], 1).topk(k)
                positions[some] = torch.cat([positions[some], rows + start], 1).gather(1, kept)
        return positions.cpu().numpy()

    def scores(self, queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Similarities (n, candidates) float32 of the embeddings at the positions `candidates`, -inf at -1."""

        def score(rows: slice) -> np.ndarray:
            vectors = self.embeddings.take(np.maximum(candidates[rows], 0).ravel())
            vectors = vectors.reshape(*candidates[rows].shape, self.dim)
            return np.round(np.einsum("qd,qcd->qc", queries[rows], vectors), DECIMALS)

        step = max(1, CELLS // (candidates.shape[1] * self.dim))  # queries scored at once
        with ThreadPoolExecutor(self.threads) as pool:  # threads help, as reading waits
            parts = pool.map(score, (slice(start, start + step) for start in range(0, len(queries), step)))
            scores = np.concatenate(list(parts))
        scores[candidates < 0] = -np.inf
        return scores


class Dense:
    """An opened index with its encoder; implements Retriever."""

    def __init__(
        self, folder: Path, docs: Path, model: Path, encoder: Encoder, compute: params.Compute, flat: bool = False
    ) -> None:
        """With `flat` all documents are compared, whatever the kind of index.

        Raises LongtailError if the index is missing, or its files, documents and encoder don't go together.
        """
        meta = documents.check_index(folder, docs=docs, encoder=model, **encoder.facts, dim=encoder.dim)
        self.index = Index(folder, meta["probe"], meta["refine"], compute.threads, flat, compute.device)
        self.count, self._encoder, self._docs = self.index.count, encoder, docs

    def search(self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None) -> documents.Found:
        """See Retriever.search; the score is the similarity of the embeddings."""
        hidden = None if without is None else documents.ranges_of_sources(self._docs, without)
        return self.index.search(self._encoder.embed_queries(texts), k, hidden)
