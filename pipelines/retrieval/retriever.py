"""The protocol that all retrievers follow (REPLUG §3.1), and opening an index as one of them.

An index is opened only with what it was made from: its meta.json has fingerprints of documents and encoder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import numpy as np

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.retrieval import documents
from pipelines.storage.shards import fingerprint


class Retriever(Protocol):
    """Takes texts and returns the positions of the best documents."""

    count: int  # documents in the index

    def search(
        self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions (texts, min(k, count)) int64 and scores float32 of the best documents, ties by position.

        The documents of the source document that `without` names for a text are left out; "" or None: none are. Where
        fewer than k documents remain, the last positions are -1 and their scores -inf.
        """


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


def describe(docs: Path, encoder: Path | None, **facts) -> dict:
    """The content of meta.json: fingerprints of documents and encoder, the number of documents, and `facts`."""
    inputs = {"docs": fingerprint(docs), "count": documents.count_documents(docs)}
    return inputs | ({"encoder": fingerprint(encoder)} if encoder else {}) | facts


def check_index(folder: Path, *, docs: Path, encoder: Path | None = None, **expected) -> dict:
    """The content of the folder's meta.json. Raises LongtailError if it does not agree with the files at hand."""
    try:
        meta = json.loads((Path(folder) / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise LongtailError(f"{folder}: no meta.json to read, expected an index; run the stage `index`") from None
    for name, value in describe(docs, encoder, **expected).items():
        if meta.get(name) != value:
            source = {"docs": docs, "encoder": encoder}.get(name, name)
            raise LongtailError(
                f"{folder}: was made with another {name} ({meta.get(name)}; {source} is {value}); "
                "run the stage `index` again"
            )
    return meta
