"""Opening an index by its name as one of the retrievers (protocol.py), with what it was made from."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.retrieval.protocol import Retriever


def open_index(index: str, corpus: str, chosen: SimpleNamespace, data: Path = Path("data")) -> Retriever:
    """Open a corpus's index by its name (methods.py), as bm25, dense or lsr_bert, with its retriever's encoder.

    A hybrid opens both of its indexes, and reranked the cross-encoder of the section reranker.

    `chosen` are params with the sections compute, retriever and retrievers. Raises LongtailError as `open_retriever`.
    """
    kind, name = methods.resolve(index, chosen.retrievers)
    if kind == "hybrid":
        from pipelines.retrieval.fusion import Fused

        return Fused(*(open_index(methods.named(*of), corpus, chosen, data) for of in methods.indexes_of(kind, name)))
    docs = data / "corpus" / corpus / "docs.parquet"
    if kind == "reranked":
        from pipelines.retrieval.reranker import CrossEncoder, Reranked

        if chosen.reranker is None:
            raise LongtailError(f"{index}: params.yaml's section reranker is null, expected a cross-encoder")
        first = open_index(methods.named("dense", name), corpus, chosen, data)
        encoder = CrossEncoder(data / methods.RERANKER, chosen.reranker, chosen.compute)
        return Reranked(first, encoder, docs, chosen.retriever[name].document, chosen.reranker.candidates)
    encoder, settings = (methods.encoder(kind, name, data), chosen.retriever[name]) if name else (None, None)
    return open_retriever(methods.index(kind, name, corpus, data), docs, encoder, settings, chosen.compute)


def open_retriever(
    index: Path, docs: Path, encoder: Path | None, retriever: params.Retriever | None, compute: params.Compute
) -> Retriever:
    """Open the index in the folder `index` over `docs` (docs.parquet); without an `encoder` it is BM25.

    Raises LongtailError if there are no documents, or if the index was made from other documents or another encoder.
    """
    documents.count_documents(docs)
    if encoder is None:
        from pipelines.retrieval.bm25 import BM25

        return BM25.load(index, docs)
    from pipelines.retrieval.dense import Dense
    from pipelines.retrieval.encoder import Encoder

    return Dense.load(index, docs, encoder, Encoder.open(encoder, retriever, compute), compute)
