"""BM25, the sparse retriever (REPLUG §6), and the analyser that turns documents and queries into its terms."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from mmap import ACCESS_READ, mmap
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer

from pipelines.errors import LongtailError
from pipelines.language import words
from pipelines.language.language import ENGLISH, Language, codes, read_language
from pipelines.retrieval import documents
from pipelines.retrieval.protocol import Found, check_index

VOCABULARY = "vocab.index.json"  # bm25s's name of the file
DOCUMENT = "{title} {text}"  # what is indexed of a document, as in Pyserini's index of DPR's Wikipedia
REMEMBERED = 1 << 20  # terms of queries whose numbers are cached
GROUP = 64  # documents compared as one group, by their best score, before single documents are compared
BATCH = 4096  # texts split into words at once
NOT_WORD = r"[^\p{L}\p{N}_]+"  # what Python's \w does not match


class Analyser:
    """Splits texts into terms: lower-cased words of a language without its stop words, stemmed."""

    def __init__(self, language: Language = ENGLISH) -> None:
        terms = language.terms
        self._stop_words, self._pairs = frozenset(terms.stop_words.split()), terms.pairs
        self._stem = lambda found: found
        if terms.stemmer:
            self._stem = Stemmer.Stemmer(terms.stemmer, 0).stemWords  # 0: no cache, which takes longer than it saves
        units = "words and pairs of characters" if terms.pairs else "words"
        stems = f"Snowball {terms.stemmer}" if terms.stemmer else "no stemmer"
        self.name = f"NFKC, lower case, {units}, {terms.stop_words_by} stop words, {stems}"

    def terms(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """The terms of each text, in order."""
        for start in range(0, len(texts), BATCH):
            for found in self.words(texts[start : start + BATCH]).to_pylist():
                yield list(filter(None, self.stems(found)))

    def words(self, texts: Sequence[str]) -> pa.ListArray:
        """The words of each text, in order; some may be "", which is no word."""
        lower = [(text if text.isascii() else unicodedata.normalize("NFKC", text)).lower() for text in texts]
        if self._pairs:
            lower = [text if text.isascii() else words.RUNS.sub(_pairs, text) for text in lower]
        return pc.split_pattern_regex(arrow_strings(lower), NOT_WORD)

    def stems(self, found: Sequence[str]) -> list[str]:
        """Each word's stem, "" for a stop word."""
        stop_words = self._stop_words
        return ["" if word in stop_words else stem for word, stem in zip(found, self._stem(found), strict=True)]


def _pairs(run: re.Match) -> str:
    """Each two neighbouring characters of a run without spaces, in place of its words; a single one stays."""
    text = run[0]
    return f" {' '.join(text[i : i + 2] for i in range(max(len(text) - 1, 1)))} "


class BM25:
    """An opened index, whose postings and vocabulary stay on disk, memory-mapped; implements Retriever."""

    def __init__(self, folder: Path, docs: Path) -> None:
        """Raises LongtailError if the index is missing or broken, or was made from other documents or terms."""
        name = check_index(folder, docs=docs, kind="bm25", document=DOCUMENT).get("analyser")
        analysers = map(Analyser, map(read_language, codes()))
        self._docs, self._analyser = docs, next((one for one in analysers if one.name == name), None)
        if self._analyser is None:
            raise LongtailError(f"{folder}: was made with another analyser ({name}); run the stage `index` again")
        try:
            self._index = bm25s.BM25.load(folder, mmap=True, load_vocab=False)
            with (folder / VOCABULARY).open("rb") as file:
                vocabulary = mmap(file.fileno(), 0, access=ACCESS_READ)
        except (OSError, ValueError, EOFError) as error:
            raise LongtailError(f"{folder}: not a whole index ({error}); run the stage `index` again") from None
        self.count, scores = self._index.scores["num_docs"], self._index.scores
        self._term_number = lru_cache(REMEMBERED)(partial(_term_number, vocabulary))
        for array in ("data", "indices", "indptr"):  # slicing a plain view is faster than slicing np.memmap
            scores[array] = scores[array].view(np.ndarray)

    def search(self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None) -> Found:
        """See Retriever.search. A document without any of the query's terms scores 0."""
        k = min(k, self.count)
        positions, scores = np.full((len(texts), k), -1, np.int64), np.full((len(texts), k), -np.inf, np.float32)
        hidden = documents.ranges_of_sources(self._docs, without or [None] * len(texts))
        for i, terms in enumerate(self._analyser.terms(texts)):
            numbers = map(self._term_number, terms)
            all_scores = self._index.get_scores_from_ids([number for number in numbers if number is not None])
            all_scores[slice(*hidden[i])] = -np.inf
            best = top_k(all_scores, k)
            positions[i, : len(best)], scores[i, : len(best)] = best, all_scores[best]
        return positions, scores


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest finite `scores` (documents,), the largest first, ties by position, unlike bm25s."""
    columns, least = len(scores) // GROUP, -np.inf
    if k <= columns:  # the k-th best of the groups' maxima is a lower bound of the k-th best score
        maxima = scores[: columns * GROUP].reshape(GROUP, columns).max(0)
        least = np.partition(maxima, columns - k)[columns - k]
    positions = np.flatnonzero((scores >= least) & (scores > -np.inf))
    values = scores[positions]
    if len(positions) > k:
        last = np.partition(values, len(values) - k)[len(values) - k]
        higher = positions[values > last]
        positions = np.concatenate([higher, positions[values == last][: k - len(higher)]])
    return positions[np.lexsort((positions, -scores[positions]))]


def arrow_strings(texts: Sequence[str]) -> pa.Array:
    """The same array as pa.array(texts), without importing pandas; characters that are no UTF-8 become "?"."""
    encoded = [text.encode(errors="replace") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _term_number(vocabulary: mmap, term: str) -> int | None:
    """A term's number in a file like {"a":0,"b":1,"":2}; None if the term isn't there.

    All terms but the last are sorted, so a binary search over the file finds one. Loading it would take half a minute.
    """

    def entry(offset: int) -> tuple[bytes, int]:
        """The term of the entry that the byte at `offset` belongs to, and where the term ends."""
        begin = max(vocabulary.rfind(b',"', 0, offset), 0) + 2
        end = vocabulary.find(b'":', begin)
        return vocabulary[begin:end], end

    wanted = term.encode()
    offsets = range(max(vocabulary.rfind(b',"'), 0))
    found, end = entry(bisect_left(offsets, wanted, key=lambda offset: entry(offset)[0]))
    return int(vocabulary[end + 2 : vocabulary.find(b",", end)]) if found == wanted else None
