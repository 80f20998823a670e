"""Queries in the form in which they are searched with and scored; language-modelling queries (REPLUG §5)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.storage import database


@dataclass(frozen=True)
class Queries:
    """What the retriever reads, what the language model reads, and what it is to continue with; arrays of str (n,)."""

    ids: np.ndarray
    texts: np.ndarray  # searched with
    contexts: np.ndarray
    continuations: np.ndarray
    document: str  # template of the document in front of the context (retrieval/documents.py)
    shots: np.ndarray  # (n, 2) demonstrations in front of that: with documents of their own, and without any

    def __len__(self) -> int:
        return len(self.ids)

    def prompt(self, row: int, document: str | None) -> Prompt:
        """What the language model reads; `document` is in the template, or None. Demonstrations are cut first."""
        if shots := self.shots[row, int(document is None)]:
            return Prompt(f"{shots}{document or ''}{self.contexts[row]}")
        return Prompt(self.contexts[row], document or "")

    def columns(self) -> tuple[np.ndarray, ...]:
        return self.ids, self.texts, self.contexts, self.continuations, self.shots

    def take(self, rows: np.ndarray) -> Queries:
        *columns, shots = (column[rows] for column in self.columns())
        return Queries(*columns, self.document, shots)

    def and_then(self, other: Queries) -> Queries:
        *columns, shots = map(np.concatenate, zip(self.columns(), other.columns(), strict=True))
        return Queries(*columns, self.document, shots)


def without_shots(n: int) -> np.ndarray:
    """The `shots` of n queries that have no demonstrations."""
    return np.full((n, 2), "", object)


def read_language_modelling(
    corpus: Path, split: str, seed: int, at_most: int
) -> tuple[Queries, np.ndarray, np.ndarray]:
    """Queries of a corpus's split, drawn by hash, with their source_document and source; LongtailError if no file.

    Documents are read without titles, as published: both texts run on.
    """
    if not (path := corpus / "queries.parquet").is_file():
        raise LongtailError(f"{path}: no such file; `dvc repro` runs the stage that writes it")
    query = "SELECT id, context, continuation, source_document, source FROM rows WHERE split = ? ORDER BY id"
    table = database.ask(query, [split], rows=path).to_arrow_table()
    columns = [column.to_numpy(zero_copy_only=False).astype(object) for column in table.columns]
    ids, contexts, continuations, source_documents, sources = columns
    chosen = draws.sample(seed, f"{split} queries", list(ids), at_most) if len(ids) else np.empty(0, np.int64)
    read = contexts[chosen]
    queries = Queries(ids[chosen], read, read, continuations[chosen], "{text}\n", without_shots(len(chosen)))
    return queries, source_documents[chosen], sources[chosen]
