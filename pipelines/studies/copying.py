"""How much of each token the documents spell out: the longest n-gram that it is part of and that a
document has too.

It tells copying from other ways in which a document helps. N-grams are of the language model's
tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines.lm.ragged import Ragged
from pipelines.lm.token_prompts import open_prompt_tokenizer
from pipelines.replug.attribution_figures import UNKNOWN
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.evaluation.stage_metrics import StageMetrics
    from pipelines.replug.attribution import Attributing, TokenNumbering

LONGEST = 9  # longer n-grams count as this long
COLUMN = pa.field("shared", pa.int32())
EDGES = np.array([3, 5, 9])  # up to 2, 3 and 4, 5 to 8, and more
MODELS = Path("data/models/lm")
BATCH_ROWS = 4096  # documents in memory at once
RETRIEVED = """SELECT id, text FROM docs
    SEMI JOIN (SELECT doc_id AS id FROM retrieved WHERE retriever NOT LIKE '%@%') USING (id)
    ORDER BY id"""
TABLES = {
    "copied": (
        "corpus retriever least:int most:int tokens:int share:float bits_without:interval "
        "bits_saved:interval share_of_saved:interval memory:interval"
    )
}


def number_tokens(attributing: Attributing) -> tuple[TokenNumbering, dict[str, str]]:
    """The longest n-gram that each token shares with the documents; UNKNOWN where the model's
    tokenizer is not known."""
    tokenizer = open_prompt_tokenizer(MODELS / attributing.settings.lms[0])
    if not tokenizer:
        return _unknown, {}
    database.view(attributing.db, "docs", attributing.docs)
    rows = attributing.db.sql(RETRIEVED).to_arrow_reader(BATCH_ROWS)
    documents = database.mapped(attributing.scratch / "documents", rows.schema, rows)

    def number_block(queries: slice, tokens: slice, doc_ids: np.ndarray) -> np.ndarray:
        continuations = attributing.queries["continuation"][queries].to_pylist()
        tokens_of_texts, _ = tokenizer.continuations(continuations)
        text_numbers, ranks = np.nonzero(doc_ids != "")
        ids = pa.array(doc_ids[text_numbers, ranks], pa.string())
        rows = pa.compute.index_in(ids, documents["id"])
        document_texts = documents["text"].take(rows)
        tokens_of_documents, _ = tokenizer.tokens(document_texts.to_pylist())
        return shared(tokens_of_texts, tokens_of_documents, text_numbers)

    return number_block, {}


def _unknown(queries: slice, tokens: slice, doc_ids: np.ndarray) -> np.ndarray:
    return np.full(tokens.stop - tokens.start, UNKNOWN)


def shared(texts: Ragged, documents: Ragged, text_of_document: np.ndarray) -> np.ndarray:
    """The longest shared n-gram that each token of `texts` is part of, (tokens,) int64, 0 to
    LONGEST; 0 if none.

    `text_of_document` (documents,) is the number of the text that a document belongs to. An n-gram
    is in one text and stands in one of that text's documents.
    """
    n_of_texts = len(texts.values)
    tokens = np.concatenate([texts.values, documents.values])
    lengths = np.concatenate([texts.lengths, documents.lengths])
    text_numbers = np.arange(len(texts.lengths))
    text_of_sequence = np.concatenate([text_numbers, text_of_document])
    text_of_token = np.repeat(text_of_sequence, lengths)
    ends = np.cumsum(lengths)
    room = np.repeat(ends, lengths) - np.arange(len(tokens))  # tokens up to the end
    distinct = tokens.max(initial=0) + 1

    longest = np.zeros(n_of_texts, np.int64)
    # a number for each n-gram of a text's or its documents' tokens that begins at a place
    gram = text_of_token
    for n in range(1, LONGEST + 1):
        places = np.flatnonzero(room >= n)
        next_tokens = tokens[places + n - 1]
        extended = gram[places] * distinct + next_tokens
        numbers = np.unique(extended, return_inverse=True)[1]
        gram = np.zeros(len(tokens), np.int64)
        gram[places] = numbers

        in_texts = places < n_of_texts
        in_document = np.zeros(len(places) + 1, bool)
        in_document[numbers[~in_texts]] = True
        begins = places[in_texts][in_document[numbers[in_texts]]]
        if not len(begins):
            break
        opened = np.bincount(begins, minlength=n_of_texts + 1)
        closed = np.bincount(begins + n, minlength=n_of_texts + 1)
        covered = np.cumsum(opened - closed)[:n_of_texts] > 0
        longest[covered] = n

    return longest


def rows_of_metrics(metrics: StageMetrics) -> dict[str, list[dict]]:
    """What documents save by how long an n-gram around a token stands in them."""
    return {"copied": metrics.by_tokens("by_shared")}
