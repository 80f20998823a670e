"""BM25, the sparse retriever (REPLUG §6): bm25s's index, every term's part of a document's score computed once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache, partial
from mmap import ACCESS_READ, mmap
from pathlib import Path

import bm25s
import numpy as np

from pipelines.errors import LongtailError
from pipelines.retrieval import documents
from pipelines.retrieval.meta import check
from pipelines.retrieval.terms import VOCABULARY, Analyser

REMEMBERED = 1 << 20  # terms of queries
GROUP = 64  # documents of which only the best is looked at first


class BM25:
    """An opened index; implements Retriever.

    Its folder is one of bm25s's, for the terms of Analyser: `bm25s.BM25.load(folder, mmap=True)` opens it too. Postings
    and vocabulary stay on disk, memory-mapped.
    """

    def __init__(self, folder: Path, docs: Path) -> None:
        self.count, self._docs, self._analyser = documents.count(docs), docs, Analyser()
        self._index = bm25s.BM25.load(folder, mmap=True, load_vocab=False)
        with (folder / VOCABULARY).open("rb") as file:
            vocabulary = mmap(file.fileno(), 0, access=ACCESS_READ)
        self._number = lru_cache(REMEMBERED)(partial(_number, vocabulary))
        for name in ("data", "indices", "indptr"):  # slicing numpy's memmap takes longer
            self._index.scores[name] = self._index.scores[name].view(np.ndarray)

    @classmethod
    def load(cls, folder: Path, docs: Path) -> BM25:
        """Raises LongtailError where the index is missing or broken, or of other documents or another analyser."""
        check(folder, docs=docs, kind="bm25", analyser=Analyser.name)
        try:
            return cls(folder, docs)
        except (OSError, ValueError, EOFError) as error:
            raise LongtailError(f"{folder}: not a whole index ({error}); run the stage `index` again") from None

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
        for i, terms in enumerate(self._analyser.terms(texts)):
            numbers = map(self._number, terms)
            found = self._index.get_scores_from_ids([number for number in numbers if number is not None])
            found[slice(*hidden[i])] = -np.inf
            places = best(found, k)
            positions[i, : len(places)], scores[i, : len(places)] = places, found[places]
        return positions, scores


def _number(vocabulary: mmap, term: str) -> int | None:
    """A term's number in {"a":0,"b":1,"":2}, the terms in order but for the last; None where it isn't there.

    Found by halving the file's bytes: loading it takes 190 bytes a term, and half a minute at 36 million documents.
    """

    def entry(at: int) -> tuple[bytes, int]:
        """The term of the entry that the byte is in, and where it ends."""
        begin = max(vocabulary.rfind(b',"', 0, at), 0) + 2
        end = vocabulary.find(b'":', begin)
        return vocabulary[begin:end], end

    wanted = term.encode()
    at = bisect_left(range(max(vocabulary.rfind(b',"'), 0)), wanted, key=lambda at: entry(at)[0])
    found, end = entry(at)
    return int(vocabulary[end + 2 : vocabulary.find(b",", end)]) if found == wanted else None


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
