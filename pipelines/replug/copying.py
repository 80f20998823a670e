"""How much of each token the documents spell out: the longest n-gram that it is part of and that a document has too.

It tells copying from other ways in which a document helps. N-grams are of the language model's tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from pipelines import database
from pipelines.lm.ragged import Ragged
from pipelines.lm.token_prompts import PromptTokenizer

LONGEST = 9  # longer n-grams count as this long


def shared(texts: Ragged, documents: Ragged, of_text: np.ndarray) -> np.ndarray:
    """The longest shared n-gram that each token of `texts` is part of, (tokens,) int64, 0 to LONGEST; 0 if none.

    `of_text` (documents,) is the number of the text that a document belongs to. An n-gram is in one text and stands in
    one of that text's documents.
    """
    tokens = np.concatenate([texts.values, documents.values])
    text = np.concatenate(
        [np.repeat(np.arange(len(texts.lengths)), texts.lengths), np.repeat(of_text, documents.lengths)]
    )
    ends = np.concatenate([texts.bounds[1:], len(texts.values) + documents.bounds[1:]])
    room = np.repeat(ends, np.concatenate([texts.lengths, documents.lengths])) - np.arange(len(tokens))
    distinct = tokens.max(initial=0) + 1
    n_of_texts, longest = len(texts.values), np.zeros(len(texts.values), np.int64)
    gram = text  # a number for each n-gram of a text's or its documents' tokens that begins at a place
    for n in range(1, LONGEST + 1):
        places = np.flatnonzero(room >= n)
        numbers = np.unique(gram[places] * distinct + tokens[places + n - 1], return_inverse=True)[1]
        gram = np.zeros(len(tokens), np.int64)
        gram[places] = numbers
        in_document = np.zeros(len(places) + 1, bool)
        in_document[numbers[places >= n_of_texts]] = True
        in_texts = places < n_of_texts
        begins = places[in_texts][in_document[numbers[in_texts]]]
        if not len(begins):
            break
        change = np.bincount(begins, minlength=n_of_texts + 1) - np.bincount(begins + n, minlength=n_of_texts + 1)
        longest[np.cumsum(change)[:n_of_texts] > 0] = n
    return longest


class Documents:
    """The tokens of a corpus's documents, by id, as a language model reads them."""

    def __init__(
        self, db: duckdb.DuckDBPyConnection, tables: Path, docs: Path, tokenizer: PromptTokenizer, scratch: Path
    ) -> None:
        """Copy the texts of all documents that were retrieved to a file in the folder `scratch`."""
        database.view(db, "docs", docs, columns=["id", "text"])
        database.view(db, "retrieved", tables / "retrieved.parquet")
        rows = db.sql(
            """SELECT id, text FROM docs SEMI JOIN (
                  SELECT doc_id AS id FROM retrieved WHERE retriever NOT LIKE '%@%') USING (id)
                ORDER BY id"""
        ).to_arrow_reader(4096)
        self._texts, self._tokenizer = database.mapped(scratch / "documents", rows.schema, rows), tokenizer

    def shared(self, continuations: Sequence[str], doc_ids: np.ndarray) -> np.ndarray:
        """`shared` for texts (n,) and their documents (n, k), "" where there is none."""
        texts, _ = self._tokenizer.continuations(continuations)
        rows, places = np.nonzero(doc_ids != "")
        asked = pa.compute.index_in(pa.array(doc_ids[rows, places], pa.string()), self._texts["id"])
        documents, _ = self._tokenizer.tokens(self._texts["text"].take(asked).to_pylist())
        return shared(texts, documents, rows)
