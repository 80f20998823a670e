"""The protocol that all retrievers follow (REPLUG §3.1), and the function that opens an index as one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from pipelines import params
from pipelines.retrieval import documents


class Retriever(Protocol):
    """Takes texts and returns the positions of the best documents."""

    count: int  # documents in the index

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions (texts, min(k, count)) int64 and scores float32 of the best documents, ties by position.

        `without` names a source document for each text, "" or None for none. Its documents are left out, so that a
        query does not find its own page. Where fewer than k documents remain, the last positions are -1 and their
        scores -inf.
        """


def open_retriever(
    index: Path, docs: Path, encoder: Path | None, retriever: params.Retriever, compute: params.Compute
) -> Retriever:
    """Open the index in the folder `index` over `docs` (docs.parquet); without an `encoder` it is BM25.

    Raises LongtailError if there are no documents, or if the index was made from other documents or another encoder.
    """
    documents.count(docs)
    if encoder is None:
        from pipelines.retrieval.bm25 import BM25

        return BM25.load(index, docs)
    from pipelines.retrieval.dense import Dense
    from pipelines.retrieval.encoder import Encoder

    return Dense.load(index, docs, encoder, Encoder.open(encoder, retriever, compute), compute)
