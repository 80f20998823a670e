"""Opening an index by its name as one of the retrievers (protocol.py), with what it was made from."""

from pathlib import Path
from types import SimpleNamespace

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.retrieval.protocol import Retriever


def open_index(index: str, corpus: str, chosen: SimpleNamespace, data: Path = Path("data")) -> Retriever:
    """Open a corpus's index by its name (methods.py), as bm25, dense or lsr_bert, with its retriever's encoder.

    A hybrid opens both of its indexes, and reranked the cross-encoder of the section reranker.

    `chosen` are params with the sections compute, retriever and retrievers. Raises LongtailError if there are no
    documents, or if the index was made from other documents or another encoder.
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
    folder = methods.index(kind, name, corpus, data)
    if not name:
        from pipelines.retrieval.bm25 import BM25

        return BM25(folder, docs)
    from pipelines.retrieval.dense import Dense
    from pipelines.retrieval.encoder import Encoder

    model = methods.encoder(kind, name, data)
    return Dense(folder, docs, model, Encoder.open(model, chosen.retriever[name], chosen.compute), chosen.compute)
