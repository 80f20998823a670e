"""BM25, the sparse retriever (REPLUG §6): bm25s's index, every term's part of a document's score computed once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import bm25s
import numpy as np

from pipelines.retrieval import documents
from pipelines.retrieval.meta import check
from pipelines.retrieval.terms import Analyser

GROUP = 64  # documents of which only the best is looked at first


class BM25:
    """An opened index; implements Retriever.

    Its folder is one of bm25s's, for the terms of Analyser: `bm25s.BM25.load(folder, mmap=True)` opens it too. The
    postings stay on disk, memory-mapped; the vocabulary is in memory, some 190 bytes a term.
    """

    def __init__(self, folder: Path, docs: Path) -> None:
        self.count, self._docs, self._analyser = documents.count(docs), docs, Analyser()
        self._index = bm25s.BM25.load(folder, mmap=True)
        for name in ("data", "indices", "indptr"):  # slicing numpy's memmap takes longer
            self._index.scores[name] = self._index.scores[name].view(np.ndarray)

    @classmethod
    def load(cls, folder: Path, docs: Path) -> BM25:
        """Raises LongtailError where the index is missing, or was made of other documents or with another analyser."""
        check(folder, docs=docs, kind="bm25", analyser=Analyser.name)
        return cls(folder, docs)

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As Retriever.search; a document without any of the query's terms scores 0.

        bm25s gives the scores. Its own choice of the best leaves to chance which of equal ones, and takes 20 times as
        long without numba, whose import would take seconds.
        """
        k = min(k, self.count)
        positions, scores = np.full((len(texts), k), -1, np.int64), np.full((len(texts), k), -np.inf, np.float32)
        hidden = documents.of_sources(self._docs, [None] * len(texts) if without is None else without)
        for i, text in enumerate(texts):
            terms = self._index.get_tokens_ids(self._analyser.terms(text))
            found = self._index.get_scores_from_ids(terms)
            found[slice(*hidden[i])] = -np.inf
            places = best(found, k)
            positions[i, : len(places)], scores[i, : len(places)] = places, found[places]
        return positions, scores


def best(scores: np.ndarray, k: int) -> np.ndarray:
    """Where the k largest finite ones of `scores` (documents,) are, the largest first; of equal ones the first."""
    columns, least = len(scores) // GROUP, -np.inf
    if k <= columns:  # the k-th best of the groups' best: no more than that can the k-th best of all be less
        highest = scores[: columns * GROUP].reshape(GROUP, columns).max(0)
        least = np.partition(highest, columns - k)[columns - k]
    places = np.flatnonzero((scores >= least) & (scores > -np.inf))
    values = scores[places]
    if len(places) > k:
        last = np.partition(values, len(values) - k)[len(values) - k]
        higher = places[values > last]
        places = np.concatenate([higher, places[values == last][: k - len(higher)]])
    return places[np.lexsort((places, -scores[places]))]
