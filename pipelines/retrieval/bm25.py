"""BM25, the sparse retriever (REPLUG §6): search in an index that bm25_build.py wrote."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache, partial
from mmap import ACCESS_READ, mmap
from pathlib import Path

import bm25s
import numpy as np

from pipelines.errors import LongtailError
from pipelines.language.language import codes, read_language
from pipelines.retrieval import documents
from pipelines.retrieval.analyser import Analyser

VOCABULARY = "vocab.index.json"  # bm25s's name of the file
DOCUMENT = "{title} {text}"  # what is indexed, as in Pyserini's index of DPR's Wikipedia
TERMS_CACHED = 1 << 20  # terms of queries whose numbers are cached
GROUP_SIZE = 64  # documents that are first compared as a group, by the best score among them


class BM25:
    """An opened index, memory-mapped from disk; implements Retriever."""

    def __init__(self, folder: Path, docs: Path) -> None:
        """Open the index in a folder.

        Raises LongtailError if it is missing or broken, or was made from other documents or terms.
        """
        meta = documents.check_index(folder, docs=docs, kind="bm25", document=DOCUMENT)
        name = meta.get("analyser")
        for code in codes():
            self._analyser = Analyser(read_language(code))
            if self._analyser.name == name:
                break
        else:
            raise LongtailError(
                f"{folder}: was made with another analyser ({name}); `longtail run` makes it anew"
            )
        self._docs = docs

        try:
            self._index = bm25s.BM25.load(folder, mmap=True, load_vocab=False)
            with (folder / VOCABULARY).open("rb") as file:
                vocabulary = mmap(file.fileno(), 0, access=ACCESS_READ)
        except (OSError, ValueError, EOFError) as error:
            raise LongtailError(
                f"{folder}: not a whole index ({error}); `longtail run` makes it anew"
            ) from None
        self._term_number = lru_cache(TERMS_CACHED)(partial(_term_number, vocabulary))

        scores = self._index.scores
        self.count = scores["num_docs"]
        for name in ("data", "indices", "indptr"):
            # Slicing a plain view is faster than slicing np.memmap.
            scores[name] = scores[name].view(np.ndarray)

    def search(
        self, texts: Sequence[str], k: int, without: documents.Sources = None
    ) -> documents.Found:
        """See Retriever.search. A document without any of the query's terms scores 0."""
        k = min(k, self.count)
        positions, scores = documents.nothing_found(len(texts), k)
        sources = without or [None] * len(texts)
        hidden = documents.ranges_of_sources(self._docs, sources)
        for row, terms in enumerate(self._analyser.terms(texts)):
            numbers = [self._term_number(term) for term in terms]
            known_numbers = [number for number in numbers if number is not None]
            scores_of_all = self._index.get_scores_from_ids(known_numbers)

            first, stop = hidden[row]
            scores_of_all[first:stop] = -np.inf

            best = top_k(scores_of_all, k)
            positions[row, : len(best)] = best
            scores[row, : len(best)] = scores_of_all[best]
        return positions, scores


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest finite `scores` (documents,), the largest first.

    Ties are ordered by position, which bm25s does not do.
    """
    groups = len(scores) // GROUP_SIZE
    least = -np.inf
    if k <= groups:  # the k-th best maximum of a group is a lower bound of the k-th best score
        maxima = scores[: groups * GROUP_SIZE].reshape(GROUP_SIZE, groups).max(0)
        least = np.partition(maxima, groups - k)[groups - k]
    positions = np.flatnonzero((scores >= least) & (scores > -np.inf))

    if len(positions) > k:
        values = scores[positions]
        place = len(values) - k  # of the k-th largest value in ascending order
        kth = np.partition(values, place)[place]
        higher = positions[values > kth]
        ties = positions[values == kth]
        positions = np.concatenate([higher, ties[: k - len(higher)]])
    return positions[np.lexsort((positions, -scores[positions]))]


def _term_number(vocabulary: mmap, term: str) -> int | None:
    """A term's number in a file like {"a":0,"b":1,"":2}; None if the term isn't there.

    All terms but the last are sorted, so a binary search over the file finds one. Loading the file
    would take half a minute.
    """

    def entry(offset: int) -> tuple[bytes, int]:
        """The term of the entry that the byte at `offset` belongs to, and where the term ends."""
        begin = max(vocabulary.rfind(b',"', 0, offset), 0) + 2
        end = vocabulary.find(b'":', begin)
        return vocabulary[begin:end], end

    def term_at(offset: int) -> bytes:
        return entry(offset)[0]

    wanted = term.encode()
    offsets = range(max(vocabulary.rfind(b',"'), 0))
    nearest, end = entry(bisect_left(offsets, wanted, key=term_at))
    if nearest != wanted:
        return None
    return int(vocabulary[end + 2 : vocabulary.find(b",", end)])
