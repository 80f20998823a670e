"""Opening an index by its name as a retriever (documents.py), and hybrids, which fuse the ranks of two retrievers.

Fusion sums the reciprocals of ranks (Cormack, Clarke and Buettcher 2009).
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.retrieval.documents import Found, Retriever

CONSTANT = 60  # the formula's constant; the larger it is, the less the first ranks count
DEPTH = 100  # documents of each retriever that are fused, or as many as are asked for


def open_index(
    index: str, corpus: str, chosen: SimpleNamespace, data: Path = Path("data")
) -> Retriever:
    """Open a corpus's index by its name (methods.py), as bm25, dense or lsr_bert, with its retriever's encoder.

    A hybrid opens both of its indexes, and reranked the cross-encoder of the section reranker.

    `chosen` are params with the sections compute, retriever and retrievers. Raises LongtailError if there are no
    documents, or if the index was made from other documents or another encoder.
    """
    kind, name = methods.resolve(index, chosen.retrievers)
    if kind == "hybrid":
        return Fused(
            *(
                open_index(methods.named(*of), corpus, chosen, data)
                for of in methods.indexes_of(kind, name)
            )
        )
    docs = data / "corpus" / corpus / "docs.parquet"
    if kind == "reranked":
        from pipelines.retrieval.reranker import CrossEncoder, Reranked

        if chosen.reranker is None:
            raise LongtailError(
                f"{index}: params.yaml's section reranker is null, expected a cross-encoder"
            )
        first = open_index(methods.named("dense", name), corpus, chosen, data)
        encoder = CrossEncoder(data / methods.RERANKER, chosen.reranker, chosen.compute)
        return Reranked(
            first, encoder, docs, chosen.retriever[name].document, chosen.reranker.candidates
        )
    folder = methods.index(kind, name, corpus, data)
    if not name:
        from pipelines.retrieval.bm25 import BM25

        return BM25(folder, docs)
    from pipelines.retrieval.dense import Dense
    from pipelines.retrieval.encoder import Encoder

    model = methods.encoder(kind, name, data)
    return Dense(
        folder,
        docs,
        model,
        Encoder.open(model, chosen.retriever[name], chosen.compute),
        chosen.compute,
    )


def fuse(rankings: Sequence[np.ndarray], k: int) -> Found:
    """Positions (queries, k) int64 and scores float32 of the documents with the largest sum of 1 / (CONSTANT + rank).

    `rankings` are each retriever's positions (queries, any), best first, -1 for none; ranks count from 1. Ties go by
    position. Where fewer than k documents are ranked, the last positions are -1 and their scores -inf.
    """
    n = len(rankings[0])
    positions, scores = np.full((n, k), -1, np.int64), np.full((n, k), -np.inf, np.float32)
    for query in range(n):
        ranked = [ranking[query][ranking[query] >= 0] for ranking in rankings]
        places, document = np.unique(np.concatenate(ranked), return_inverse=True)
        reciprocals = np.concatenate([1 / (CONSTANT + 1 + np.arange(len(row))) for row in ranked])
        sums = np.bincount(document, reciprocals, len(places)).astype(np.float32)
        best = np.lexsort((places, -sums))[:k]
        positions[query, : len(best)], scores[query, : len(best)] = places[best], sums[best]
    return positions, scores


def matching(positions: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """BM25's positions; -1 for documents without a term of the query, which score 0 and are ordered by position."""
    return np.where(scores > 0, positions, -1)


class Fused:
    """BM25 and a dense retriever, over the same documents; implements Retriever."""

    def __init__(self, bm25: Retriever, dense: Retriever) -> None:
        self.count, self._bm25, self._dense = dense.count, bm25, dense

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> Found:
        """See Retriever.search; the score is the sum of reciprocal ranks."""
        depth = max(DEPTH, k)
        by_terms = matching(*self._bm25.search(texts, depth, without))
        return fuse([by_terms, self._dense.search(texts, depth, without)[0]], min(k, self.count))
