"""One way to an index on disk, checked against the documents and the encoder that it was made of."""

from __future__ import annotations

from pathlib import Path

from pipelines import params
from pipelines.retrieval import documents
from pipelines.retrieval.retriever import Retriever


def open_retriever(
    index: Path, docs: Path, encoder: Path | None, retriever: params.Retriever, compute: params.Compute
) -> Retriever:
    """The index in the folder `index` over `docs` (docs.parquet); BM25 when there is no encoder.

    Raises LongtailError where there are no documents, or the index was made of others or by another encoder.
    """
    documents.count(docs)
    if encoder is None:
        from pipelines.retrieval.bm25 import BM25

        return BM25.load(index, docs)
    from pipelines.retrieval.dense import Dense
    from pipelines.retrieval.encoder import Encoder

    return Dense.load(index, docs, encoder, Encoder.open(encoder, retriever, compute), compute)
