"""BM25, the sparse retriever (REPLUG §6): Lucene's formula, every term's part of a document's score computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pipelines.retrieval import documents
from pipelines.retrieval.meta import check
from pipelines.retrieval.terms import Analyser

SEGMENT = 1 << 16  # documents: a query's scores of a segment fit in a core's cache, and positions in 16 bits
BATCH = 1024  # queries that pass over the segments together
GROUP = 64  # documents of which only the best is looked at first


class BM25:
    """An opened index; implements Retriever.

    Its folder has, memory-mapped, segment behind segment of SEGMENT documents:
    terms.npy (entries,) uint64, sorted hashes of a segment's terms; starts.npy (entries + 1,) int64, where the postings
    of each begin; documents.npy (postings,) uint16, places in the segment; scores.npy (postings,) float32, what the
    term adds to the document's score; segments.npy (segments + 1,) int64, the first entry of each.
    """

    def __init__(self, folder: Path, docs: Path) -> None:
        self.count, self._docs, self._analyser = documents.count(docs), docs, Analyser()
        names = ("terms", "starts", "documents", "scores")
        self._terms, self._starts, self._documents, self._scores = (
            np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in names
        )
        self._segments = np.load(folder / "segments.npy")

    @classmethod
    def load(cls, folder: Path, docs: Path) -> BM25:
        """Raises LongtailError where the index is missing, or was made of other documents or with another analyser."""
        check(folder, docs=docs, kind="bm25", analyser=Analyser.name, segment=SEGMENT)
        return cls(folder, docs)

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As Retriever.search; a document without any of the query's terms scores 0."""
        k = min(k, self.count)
        positions, scores = np.full((len(texts), k), -1, np.int64), np.full((len(texts), k), -np.inf, np.float32)
        hidden = documents.of_sources(self._docs, [None] * len(texts) if without is None else without)
        for start in range(0, len(texts), BATCH):
            part = slice(start, start + BATCH)
            self._search(texts[part], hidden[part], positions[part], scores[part])
        return positions, scores

    def _search(self, texts: Sequence[str], hidden: np.ndarray, positions: np.ndarray, scores: np.ndarray) -> None:
        """Fill `positions` and `scores`, (texts, k), segment by segment; `hidden` (texts, 2) are ranges left out."""
        hashes, lengths = self._analyser.hashes(texts)
        terms, term = np.unique(hashes, return_inverse=True)
        pairs = np.repeat(np.arange(len(texts)), lengths) * max(len(terms), 1) + term
        pairs, times = np.unique(pairs, return_counts=True)  # a term counts as often as the query says it
        query, term = np.divmod(pairs, max(len(terms), 1))
        times = times.astype(np.float32)
        for first, begins, ends in self._postings(terms):
            bounds = np.searchsorted(query, np.arange(len(texts) + 1))
            for i in range(len(texts)):
                own = slice(bounds[i], bounds[i + 1])
                found = np.zeros(min(SEGMENT, self.count - first), np.float32)
                # a loop over the terms of a query: the postings of each are one stretch, and are not copied
                for begin, end, often in zip(begins[term[own]], ends[term[own]], times[own], strict=True):
                    np.add.at(found, self._documents[begin:end], self._scores[begin:end] * often)
                left_out = np.clip(hidden[i] - first, 0, len(found))
                found[left_out[0] : left_out[1]] = -np.inf
                places = best(found, positions.shape[1], above=scores[i, -1])
                if len(places):
                    all_positions = np.concatenate([positions[i], places + first])
                    all_scores = np.concatenate([scores[i], found[places]])
                    order = np.lexsort((all_positions, -all_scores))[: positions.shape[1]]
                    positions[i], scores[i] = all_positions[order], all_scores[order]

    def _postings(self, terms: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Of each segment: its first document, and where each term's postings begin and end, (terms,) int64 each."""
        for number, (start, stop) in enumerate(zip(self._segments[:-1], self._segments[1:], strict=True)):
            own = self._terms[start:stop]
            entry = np.searchsorted(own, terms)
            known = np.flatnonzero(entry < len(own))
            known = known[own[entry[known]] == terms[known]]
            begins, ends = np.zeros((2, len(terms)), np.int64)  # a term that the segment doesn't have has no postings
            begins[known], ends[known] = self._starts[entry[known] + start], self._starts[entry[known] + start + 1]
            yield number * SEGMENT, begins, ends


def best(scores: np.ndarray, k: int, above: float = -np.inf) -> np.ndarray:
    """Where the k largest of `scores` (documents,) that exceed `above` are; of equal ones the first. Not in order."""
    columns = len(scores) // GROUP
    if k <= columns:  # the k-th best of the groups' best: no more than that can the k-th best of all be less
        highest = scores[: columns * GROUP].reshape(GROUP, columns).max(0)
        least = np.partition(highest, columns - k)[columns - k]
        places = np.flatnonzero((scores >= least) & (scores > above))
    else:
        places = np.flatnonzero(scores > above)
    if len(places) <= k:
        return places
    values = scores[places]
    last = np.partition(values, len(values) - k)[len(values) - k]
    higher = places[values > last]
    return np.concatenate([higher, places[values == last][: k - len(higher)]])
