"""How much of each token the documents spell out: the longest n-gram that it is part of and that a document has too.

It tells copying from other ways in which a document helps. N-grams are of the language model's tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines.lm.ragged import Ragged
from pipelines.lm.token_prompts import open_tokenizer
from pipelines.storage import database

if TYPE_CHECKING:
    from pipelines.evaluation.stage_metrics import StageMetrics
    from pipelines.replug.attribution import Attributing, OfTokens

LONGEST = 9  # longer n-grams count as this long
COLUMN = pa.field("shared", pa.int32())
EDGES = np.array([3, 5, 9])  # up to 2, 3 and 4, 5 to 8, and more
MODELS = Path("data/models/lm")
TABLES = {
    "copied": (
        "corpus retriever least:int most:int tokens:int share:float bits_without:interval "
        "bits_saved:interval share_of_saved:interval memory:interval"
    )
}


def number_tokens(of: Attributing) -> tuple[OfTokens | None, dict[str, str]]:
    """The longest n-gram that each token shares with the documents; None where the model's tokenizer is not known."""
    if not (tokenizer := open_tokenizer(MODELS / of.params.lms[0])):
        return None, {}
    database.view(of.db, "docs", of.docs, columns=["id", "text"])
    rows = of.db.sql(
        """SELECT id, text FROM docs
        SEMI JOIN (SELECT doc_id AS id FROM retrieved WHERE retriever NOT LIKE '%@%') USING (id) ORDER BY id"""
    ).to_arrow_reader(4096)
    documents = database.mapped(of.scratch / "documents", rows.schema, rows)

    def of_block(queries: slice, tokens: slice, doc_ids: np.ndarray) -> np.ndarray:
        texts, _ = tokenizer.continuations(of.queries["continuation"][queries].to_pylist())
        rows, ranks = np.nonzero(doc_ids != "")
        asked = pa.compute.index_in(pa.array(doc_ids[rows, ranks], pa.string()), documents["id"])
        of_texts, _ = tokenizer.tokens(documents["text"].take(asked).to_pylist())
        return shared(texts, of_texts, rows)

    return of_block, {}


def rows_of_figures(of: StageMetrics) -> dict[str, list[dict]]:
    """What documents save by how long an n-gram around a token stands in them."""
    return {"copied": of.by_tokens("by_shared")}


def shared(texts: Ragged, documents: Ragged, of_text: np.ndarray) -> np.ndarray:
    """The longest shared n-gram that each token of `texts` is part of, (tokens,) int64, 0 to LONGEST; 0 if none.

    `of_text` (documents,) is the number of the text that a document belongs to. An n-gram is in one text and stands in
    one of that text's documents.
    """
    tokens = np.concatenate([texts.values, documents.values])
    text = np.concatenate(
        [
            np.repeat(np.arange(len(texts.lengths)), texts.lengths),
            np.repeat(of_text, documents.lengths),
        ]
    )
    ends = np.concatenate([texts.bounds[1:], len(texts.values) + documents.bounds[1:]])
    room = np.repeat(ends, np.concatenate([texts.lengths, documents.lengths])) - np.arange(
        len(tokens)
    )
    distinct = tokens.max(initial=0) + 1
    n_of_texts, longest = len(texts.values), np.zeros(len(texts.values), np.int64)
    gram = (
        text  # a number for each n-gram of a text's or its documents' tokens that begins at a place
    )
    for n in range(1, LONGEST + 1):
        places = np.flatnonzero(room >= n)
        numbers = np.unique(gram[places] * distinct + tokens[places + n - 1], return_inverse=True)[
            1
        ]
        gram = np.zeros(len(tokens), np.int64)
        gram[places] = numbers
        in_document = np.zeros(len(places) + 1, bool)
        in_document[numbers[places >= n_of_texts]] = True
        in_texts = places < n_of_texts
        begins = places[in_texts][in_document[numbers[in_texts]]]
        if not len(begins):
            break
        change = np.bincount(begins, minlength=n_of_texts + 1) - np.bincount(
            begins + n, minlength=n_of_texts + 1
        )
        longest[np.cumsum(change)[:n_of_texts] > 0] = n
    return longest
