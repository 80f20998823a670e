"""Opens an index as a retriever (documents.py), and fuses the ranks of two retrievers.

Fusion sums the reciprocals of ranks (Cormack, Clarke and Buettcher 2009).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.methods import Method
from pipelines.params import params
from pipelines.params.param_types import RetrieverName, Section
from pipelines.retrieval.documents import Found, Retriever, Sources, nothing_found

RANK_CONSTANT = 60  # of the formula; the larger it is, the less the first ranks count
DEPTH = 100  # documents of each retriever that are fused, at least


class RetrievalSettings(Section):
    """The sections of params.yaml that opening an index needs."""

    compute: params.Compute
    retriever: dict[RetrieverName, params.Retriever]


def open_index(
    index: Method,
    corpus: str,
    settings: RetrievalSettings,
    *,
    of_texts: bool = False,
    data: Path = Path("data"),
) -> Retriever:
    """Open the index, or the indexes, in which a method finds the documents of a corpus.

    `of_texts`: what is searched for are queries of language modelling, not questions. Raises
    LongtailError if there are no documents, or if the index was made from other documents or by
    another encoder.
    """
    docs = data / "corpus" / corpus / "docs.parquet"

    def open_single(single: Method) -> Retriever:
        folder = methods.index_folder(single, corpus, data)
        return _open_single(single, folder, docs, settings, of_texts, data)

    if index.kind == "hybrid":
        bm25, dense = index.indexes
        return Fused(open_single(bm25), open_single(dense))
    (single,) = index.indexes
    return open_single(single)


def _open_single(
    index: Method,
    folder: Path,
    docs: Path,
    settings: RetrievalSettings,
    of_texts: bool,
    data: Path,
) -> Retriever:
    """Open BM25's index, or a dense one with its encoder."""
    if not folder.is_dir():
        raise LongtailError(f"{folder}: no such index; `longtail run` makes it")
    if index.kind == "bm25":
        from pipelines.retrieval.bm25 import BM25

        return BM25(folder, docs)

    from pipelines.retrieval.dense import Dense
    from pipelines.retrieval.encoder import Encoder

    model = methods.encoder_folder(index, data)
    encoder = Encoder.open(model, settings.retriever[index.retriever], settings.compute)
    return Dense(
        folder,
        docs=docs,
        model=model,
        encoder=encoder,
        compute=settings.compute,
        of_texts=of_texts,
    )


def fuse(rankings: Sequence[np.ndarray], k: int) -> Found:
    """The k documents with the largest sum of 1 / (RANK_CONSTANT + rank), (queries, k) each.

    `rankings` are each retriever's positions (queries, any), best first, -1 for none; ranks count
    from 1. Returns positions int64 and sums float32; ties are ordered by position. Where fewer than
    k documents are ranked, the last positions are -1 and their sums -inf.
    """
    positions, scores = nothing_found(len(rankings[0]), k)
    for query in range(len(positions)):
        ranked = []
        reciprocals = []
        for ranking in rankings:
            found = ranking[query][ranking[query] >= 0]
            ranked.append(found)
            reciprocals.append(1 / (RANK_CONSTANT + 1 + np.arange(len(found))))

        distinct, numbers = np.unique(np.concatenate(ranked), return_inverse=True)
        sums = np.bincount(numbers, np.concatenate(reciprocals)).astype(np.float32)

        best = np.lexsort((distinct, -sums))[:k]
        positions[query, : len(best)] = distinct[best]
        scores[query, : len(best)] = sums[best]
    return positions, scores


def matching(positions: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """BM25's positions, with -1 for documents without any term of the query, which score 0."""
    return np.where(scores > 0, positions, -1)


class Fused:
    """BM25 and a dense retriever, over the same documents; implements Retriever."""

    def __init__(self, bm25: Retriever, dense: Retriever) -> None:
        self.count = dense.count
        self._bm25 = bm25
        self._dense = dense

    def search(self, texts: Sequence[str], k: int, without: Sources = None) -> Found:
        """See Retriever.search; the score is the sum of reciprocal ranks."""
        depth = max(DEPTH, k)
        sparse_positions, sparse_scores = self._bm25.search(texts, depth, without)
        dense_positions, _ = self._dense.search(texts, depth, without)

        rankings = [matching(sparse_positions, sparse_scores), dense_positions]
        return fuse(rankings, min(k, self.count))
