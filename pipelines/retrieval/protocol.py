"""The protocol that all retrievers follow (REPLUG §3.1), and what ties an index to the files that it was made from."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from pipelines.errors import LongtailError
from pipelines.retrieval import documents
from pipelines.storage.shards import fingerprint

Found = tuple[np.ndarray, np.ndarray]  # positions of documents (queries, k) int64, and their scores float32


class Retriever(Protocol):
    """Takes texts and returns the positions of the best documents."""

    count: int  # documents in the index

    def search(self, texts: Sequence[str], k: int, without: Sequence[str | None] | None = None) -> Found:
        """Positions (texts, min(k, count)) int64 and scores float32 of the best documents, ties by position.

        The documents of the source document that `without` names for a text are left out; "" or None: none are. Where
        fewer than k documents remain, the last positions are -1 and their scores -inf.
        """


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
