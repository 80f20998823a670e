"""Dense retrieval (REPLUG §3.1): search in an index that dense_build.py wrote.

FAISS's inverted lists, or a comparison with all documents, propose candidates. A candidate's score
comes from its stored embedding, so it is the same for every kind of index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import faiss
import numpy as np

from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.retrieval.embeddings import Embeddings

if TYPE_CHECKING:
    import torch

    from pipelines.retrieval.encoder import Encoder

BLOCK_EMBEDDINGS = 16_384  # embeddings held in fp32 at once on a CPU
BLOCK_ON_GPU = 131_072  # embeddings that are compared at once on a GPU
QUERIES_PER_BLOCK = {"cpu": 256, "cuda": 4096}  # compared with a block at once, by device
HIGH_BITS = -1 << 13  # of a number in fp32: its sign, exponent, and 10 bits of its fraction
FAISS_QUERIES = 1024  # queries that FAISS searches at once, at most
CANDIDATES_HELD = 1 << 24  # candidates held at once, at most
CELLS_HELD = 1 << 22  # numbers of candidates' embeddings: 16 MiB, nearly a core's cache
LEAST_REFINED = 10  # results for which codes' candidates are refined, at least
ALL_LISTS = 1 << 30  # more lists than an index has
SCORE_DECIMALS = 5  # finer than fp16 embeddings, but equal documents tie in any order of sums


class Index:
    """A corpus's embeddings, and a FAISS index that proposes candidates.

    Without a FAISS index all documents are compared, on `device`. A GPU holds the embeddings from
    the first search on, if they fit. Lists are searched on the CPU: `probe` is the number of lists
    searched, and `refine` candidates are scored for each document wanted.
    """

    def __init__(
        self,
        folder: Path,
        probe: int = 1,
        refine: int = 1,
        threads: int = 1,
        flat: bool = False,
        device: str = "cpu",
    ) -> None:
        """Open the index in `folder`; with `flat` only its embeddings."""
        self.folder = folder
        self.probe = probe
        self.refine = refine
        self.threads = threads
        self.device = device

        self.lists: Any = None  # FAISS's index, if there is one
        file = folder / "faiss.index"
        if file.exists() and not flat:
            try:
                self.lists = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
            except RuntimeError as error:
                reason = " ".join(str(error).split())[-200:]
                raise LongtailError(
                    f"{file}: damaged ({reason}), expected FAISS's index; `longtail run` makes it "
                    "anew"
                ) from None
        self.embeddings = Embeddings(folder / "embeddings")
        self.count = self.embeddings.count
        self.dim = self.embeddings.dim
        self.bytes = self.count * self.dim * np.dtype(np.float16).itemsize  # of the embeddings
        self._held: list[tuple[int, torch.Tensor]] = []  # see _blocks

    def search(
        self, queries: np.ndarray, k: int, hidden: np.ndarray | None = None
    ) -> documents.Found:
        """Positions (queries, min(k, count)) int64 and scores float32, the best first.

        Ties are ordered by position. `hidden` (queries, 2) are ranges of positions left out.
        Missing documents have position -1 and score -inf.
        """
        faiss.omp_set_num_threads(self.threads)
        k = min(k, self.count)
        queries = np.ascontiguousarray(queries, np.float32)
        if hidden is None:
            hidden = np.zeros((len(queries), 2), np.int64)
        positions, scores = documents.nothing_found(len(queries), k)
        if not len(queries):
            return positions, scores

        # More candidates than wanted, so that position decides ties at the k-th place, and not
        # FAISS's heap or torch.
        n_hidden = hidden[:, 1] - hidden[:, 0]
        reach = min(self.count, 2 * k + 16 + int(n_hidden.max(initial=0)))
        probe = self.probe
        rows = np.arange(len(queries))
        while len(rows):  # ends, as all results are final once `reach` is all documents
            not_final = []
            at_once = self._queries_at_once(reach)
            for start in range(0, len(rows), at_once):
                part = rows[start : start + at_once]
                best, best_scores, is_final = self._search_candidates(
                    queries[part], k, hidden=hidden[part], reach=reach, probe=probe
                )
                positions[part] = best
                scores[part] = best_scores
                not_final.append(part[~is_final])

            rows = np.concatenate(not_final)
            reach = min(self.count, 4 * reach)
            probe = ALL_LISTS
        return positions, scores

    def _queries_at_once(self, reach: int) -> int:
        """How many queries with `reach` candidates each are searched together."""
        if self.lists is None:  # a pass over all embeddings serves as many queries as can be
            return max(1, CANDIDATES_HELD // reach)
        return max(1, min(FAISS_QUERIES, CANDIDATES_HELD // (reach * self.refine)))

    def _search_candidates(
        self, queries: np.ndarray, k: int, *, hidden: np.ndarray, reach: int, probe: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best of `reach` candidates: positions and scores (n, k), and whether they are final.

        They are final (n,) where there are enough documents. If all documents are compared, all
        that tie with the last one must also be candidates; inverted lists are not exact anyway.
        """
        candidates = self.candidates(queries, k, reach, probe)
        first = hidden[:, :1]
        stop = hidden[:, 1:]
        candidates[(candidates >= first) & (candidates < stop)] = -1

        scores = self.scores(queries, candidates)
        order = np.lexsort((candidates, -scores), axis=1)
        candidates = np.take_along_axis(candidates, order, 1)
        scores = np.take_along_axis(scores, order, 1)

        if reach == self.count:
            is_final = np.ones(len(queries), bool)
            return candidates[:, :k], scores[:, :k], is_final

        n_candidates = (candidates >= 0).sum(1)
        n_visible = self.count - (stop - first)[:, 0]
        is_final = n_candidates >= np.minimum(k, n_visible)
        if self.lists is None:
            # Others that tie with the last candidate may be missing, so it must lie below place k.
            last_places = n_candidates[:, None] - 1
            last_scores = np.take_along_axis(scores, last_places, 1)[:, 0]
            is_final &= last_scores < scores[:, k - 1]
        return candidates[:, :k], scores[:, :k], is_final

    def candidates(self, queries: np.ndarray, k: int, reach: int, probe: int) -> np.ndarray:
        """Positions (n, `reach` or more) int64 of documents that may be the best; -1 for none.

        The likeliest come first.
        """
        if self.lists is None or reach == self.count:  # lists would save no time
            return self._nearest(queries, reach)
        n_refined = self.refine * max(k, LEAST_REFINED)
        n_candidates = min(self.count, max(n_refined, reach))
        n_probed = min(probe, self.lists.nlist)
        search_params = faiss.SearchParametersIVF(nprobe=n_probed)  # type: ignore[call-arg]
        return self.lists.search(queries, n_candidates, params=search_params)[1]

    def _nearest(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Positions (queries, k) int64 of the k <= count best documents, ties in any order.

        The best comes first. All documents are compared on `device`, with the precision of fp32; a
        block of them is read once for all queries.
        """
        import torch

        from pipelines.work import devices

        torch.set_num_threads(self.threads)
        vectors = devices.to_device(queries, self.device)
        best = torch.full((len(vectors), k), -torch.inf, device=self.device)
        positions = torch.full((len(vectors), k), -1, device=self.device)
        step = QUERIES_PER_BLOCK[self.device]
        for start, halves in self._blocks():
            block = halves.float().T
            for first in range(0, len(vectors), step):
                rows = slice(first, first + step)
                similarities = self._products(vectors[rows], block)
                scores, numbers = similarities.topk(min(k, block.shape[1]), sorted=False)

                scores = torch.cat([best[rows], scores], 1)
                candidates = torch.cat([positions[rows], numbers + start], 1)
                best[rows], places = scores.topk(k)
                positions[rows] = candidates.gather(1, places)
        return positions.cpu().numpy()

    def _blocks(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first position of each block, and its embeddings (n, dim) fp16 on the device.

        A GPU holds them all, if they fit beside those of other open indexes.
        """
        from pipelines.work import devices

        if self._held:
            yield from self._held
            return
        memory = devices.held_memory(self.device)
        size = BLOCK_EMBEDDINGS if memory is None else BLOCK_ON_GPU
        fits = False
        if memory is not None:
            _HOLDING.add(self)
            fits = sum(index.bytes for index in _HOLDING) <= memory
            if not fits:
                _HOLDING.remove(self)
        held = []
        for start in range(0, self.count, size):
            halves = self.embeddings.rows(start, start + size, np.float16)
            block = devices.to_device(halves, self.device)
            if fits:
                held.append((start, block))
            yield start, block
        self._held = held

    def _products(self, queries: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """Inner products (n, m) of queries (n, dim) and the embeddings of a block (dim, m).

        A GPU's tensor cores multiply numbers that have 10 bits of fraction, as embeddings in fp16
        have, and sum in fp32. So each query goes in two parts.
        """
        import torch

        from pipelines.work import devices

        if devices.total_memory(self.device) is None:
            return queries @ block
        high, low = split(queries)
        with devices.products_in("high"):
            return torch.addmm(high @ block, low, block)

    def scores(self, queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Similarities (n, candidates) float32 of the embeddings at the positions `candidates`.

        They are -inf at position -1.
        """
        step = max(1, CELLS_HELD // (candidates.shape[1] * self.dim))  # queries scored at once

        def score(start: int) -> np.ndarray:
            rows = slice(start, start + step)
            positions = np.maximum(candidates[rows], 0)
            vectors = self.embeddings.take(positions.ravel())
            vectors = vectors.reshape(*positions.shape, self.dim)
            similarities = np.einsum("qd,qcd->qc", queries[rows], vectors)
            return np.round(similarities, SCORE_DECIMALS)

        with ThreadPoolExecutor(self.threads) as pool:  # threads help, as reading waits
            parts = pool.map(score, range(0, len(queries), step))
            scores = np.concatenate(list(parts))
        scores[candidates < 0] = -np.inf
        return scores


def split(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two parts of numbers in fp32 whose sums they are: 10 bits of the fraction, and the rest."""
    import torch

    high = (numbers.view(torch.int32) & HIGH_BITS).view(torch.float32)
    return high, numbers - high


_HOLDING: WeakSet[Index] = WeakSet()  # the open indexes whose embeddings a GPU holds


class Dense:
    """An opened index with its encoder; implements Retriever."""

    def __init__(
        self,
        folder: Path,
        docs: Path,
        model: Path,
        encoder: Encoder,
        compute: params.Compute,
        flat: bool = False,
        of_texts: bool = False,
    ) -> None:
        """With `flat` all documents are compared, whatever the kind of index.

        `of_texts`: what is searched for are queries of language modelling, not questions.

        Raises LongtailError if the index is missing, or its files, documents and encoder don't go
        together.
        """
        facts = encoder.facts | {"dim": encoder.dim}
        meta = documents.check_index(folder, docs=docs, encoder=model, **facts)
        self.index = Index(
            folder,
            probe=meta["probe"],
            refine=meta["refine"],
            threads=compute.threads,
            flat=flat,
            device=compute.device,
        )
        self.count = self.index.count
        self._encoder = encoder
        self._of_texts = of_texts
        self._docs = docs

    def search(
        self, texts: Sequence[str], k: int, without: documents.Sources = None
    ) -> documents.Found:
        """See Retriever.search; the score is the similarity of the embeddings."""
        hidden = None
        if without is not None:
            hidden = documents.ranges_of_sources(self._docs, without)
        vectors = self._encoder.embed_queries(texts, self._of_texts)
        return self.index.search(vectors, k, hidden)
