"""How much of each token the documents spell out: the longest n-gram that it is part of and that a document has too.

It tells copying from other ways in which a document helps. N-grams are of the language model's tokens. It writes, in
tokens.parquet, shared (the length of that n-gram, 9 for longer ones; null: the model's tokenizer is not known), and in
the metrics by_shared, a row per length.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from pipelines.intervals import Interval
from pipelines.lm.ragged import Ragged
from pipelines.lm.token_prompts import PromptTokenizer, open_tokenizer
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.evaluation.stage_metrics import StageMetrics
    from pipelines.replug.attribution import Attributing, OfTokens

LONGEST = 9  # longer n-grams count as this long
COLUMN = pa.field("shared", pa.int32())
EDGES = np.array([3, 5, 9])  # up to 2, 3 and 4, 5 to 8, and more
MODELS = Path("data/models/lm")
TABLES = {
    "copied": {"corpus": str, "retriever": str, "least": int, "most": int, "tokens": int, "share": float}
    | dict.fromkeys(("bits_without", "bits_saved", "share_of_saved", "memory"), Interval)
}


def of_tokens(of: Attributing) -> tuple[OfTokens | None, dict[str, str]]:
    """The longest n-gram that each token shares with the documents; None where the model's tokenizer is not known."""
    if not (tokenizer := open_tokenizer(MODELS / of.params.lms[0])):
        return None, {}
    documents, continuations = Documents(of.db, of.tables, of.docs, tokenizer, of.scratch), of.queries["continuation"]

    def of_block(queries: slice, tokens: slice, doc_ids: np.ndarray) -> np.ndarray:
        return documents.shared(continuations[queries].to_numpy(), doc_ids)

    return of_block, {}


def of_metrics(of: StageMetrics) -> dict[str, list[dict]]:
    """What documents save by how long an n-gram around a token stands in them."""
    return {"copied": of.by_tokens("by_shared")}


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


def report_entries() -> list:
    """How much is copied."""
    from pipelines.report.entries import Drawn, Entry, Shown
    from pipelines.report.figures import bars

    def copied(inputs):
        """Of the main corpus, by the longest n-gram; nothing where the model's tokenizer is not known."""
        return [
            row | {"longest": f"{row['least']} or more" if row["most"] is None else f"{row['least']} to {row['most']}"}
            for row in inputs.tables["copied"]
            if row["corpus"] == inputs.main_corpus
        ]

    parts = [
        Drawn(
            bars, "gain-by-shared-ngram", copied, "longest", "bits_saved",
            "bits that documents save per token, by the longest n-gram that one of them shares.",
            {"y": "bits saved per token"}, series="retriever", each="corpus",
        ),
        "How much of this is copying? A token is sorted by the longest n-gram of tokens that it is part of and that "
        "one of the documents has too.",
        Shown(
            "gain-by-shared-ngram", copied,
            ["retriever", "longest", "tokens", "bits_without", "bits_saved", "share_of_saved"],
            "Tokens by the longest n-gram of the continuation that is in a document: bits per token without documents, "
            "bits saved, and the row's share of all bits saved.",
            {"longest": "longest n-gram", "bits_without": "bits without documents", "bits_saved": "bits saved",
             "share_of_saved": "share of saved"},
        ),
    ]  # fmt: skip
    return [Entry("copying", "How much is copied", parts, after="attribution")]
