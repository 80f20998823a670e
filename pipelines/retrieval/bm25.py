"""BM25, the sparse retriever (REPLUG §6): bm25s's eager scores on disk, one analyser for documents and queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN
from bm25s.tokenization import Tokenized
from scipy.sparse import csr_matrix

from pipelines.retrieval.meta import check, describe
from pipelines.shards import write_json

CELLS = 1 << 24  # scores at once: 64 MiB


class Analyser:
    """Text to terms: lower-cased words without English stop words, stemmed. Serves documents and queries."""

    name = "words, lower case, bm25s English stop words, Snowball english"

    def __init__(self) -> None:
        self._words = re.compile(r"\w+")
        self._stop = frozenset(STOPWORDS_EN)
        self._stem = Stemmer.Stemmer("english").stemWords

    def terms(self, text: str) -> list[str]:
        return self._stem([word for word in self._words.findall(text.lower()) if word not in self._stop])


def build(texts: Sequence[str], k1: float, b: float) -> bm25s.BM25:
    """An index over `texts` in their order. Its vocabulary is sorted, so the same texts give the same bytes."""
    analyser = Analyser()
    terms = [analyser.terms(text) for text in texts]
    vocabulary = {term: i for i, term in enumerate(sorted(set(chain.from_iterable(terms)) or {""}))}
    ids = [[vocabulary[term] for term in one] for one in terms]
    index = bm25s.BM25(k1=k1, b=b, method="lucene", backend="numpy")
    index.index(Tokenized(ids=ids, vocab=vocabulary), create_empty_token=False, show_progress=False)
    return index


def save(index: bm25s.BM25, folder: Path, docs: Path) -> None:
    index.save(folder, show_progress=False)
    write_json(folder / "meta.json", describe(docs, None, kind="bm25", analyser=Analyser.name, k1=index.k1, b=index.b))


class BM25:
    """An opened index; implements Retriever."""

    def __init__(self, index: bm25s.BM25) -> None:
        scores = index.scores
        self.count = int(scores["num_docs"])
        self._analyser, self._vocabulary = Analyser(), index.vocab_dict
        shape = (len(scores["indptr"]) - 1, self.count)
        self._postings = csr_matrix((scores["data"], scores["indices"], scores["indptr"]), shape=shape, copy=False)

    @classmethod
    def load(cls, folder: Path, docs: Path) -> BM25:
        """Raises LongtailError where the index is missing, or was made of other documents or with another analyser."""
        check(folder, docs=docs, kind="bm25", analyser=Analyser.name)
        return cls(bm25s.BM25.load(folder, mmap=True, load_corpus=False))

    def search(self, texts: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """As Retriever.search; a document without any of the query's terms scores 0."""
        k = min(k, self.count)
        positions, scores = np.empty((len(texts), k), np.int64), np.empty((len(texts), k), np.float32)
        step = max(1, CELLS // self.count)
        for start in range(0, len(texts), step):
            part = slice(start, start + step)
            positions[part], scores[part] = top(self._scores(texts[part]), k)
        return positions, scores

    def _scores(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, documents) float32; a term counts as often as the query says it."""
        known = [[self._vocabulary[t] for t in self._analyser.terms(text) if t in self._vocabulary] for text in texts]
        bounds = np.concatenate([[0], np.cumsum([len(terms) for terms in known])])
        columns = np.fromiter(chain.from_iterable(known), np.int32, bounds[-1])
        shape = (len(known), self._postings.shape[0])
        queries = csr_matrix((np.ones(len(columns), np.float32), columns, bounds), shape=shape)
        return (queries @ self._postings).toarray()


def top(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest of each row of (rows, documents), best first, ties by position: (rows, k) int64 and float32."""
    last = np.partition(scores, scores.shape[1] - k, axis=1)[:, -k:].min(1, keepdims=True)
    rows, columns = np.nonzero(scores >= last)  # ties at the k-th place make more than k
    order = np.lexsort((columns, -scores[rows, columns], rows))
    starts = np.searchsorted(rows, np.arange(len(scores)))
    chosen = order[starts[:, None] + np.arange(k)]  # `rows` is sorted, so `order` keeps each row's stretch
    return columns[chosen], scores[rows[chosen], columns[chosen]]
