"""Controls of the ensemble: its documents in one prompt, and as much more of the text itself instead of a document.

The first says what REPLUG's ensemble is worth against concatenation (§3.2), as far as the model's positions allow. The
second says what a document is worth beside plain context. They are scored beside the candidates' pairs, and stand in
controls.parquet beside logprobs.parquet:

query_id, control (concatenated or longer_context), retriever ("" for longer_context), documents (read whole, or as the
only one), added_bytes (in front of the context), log_probs (per token of the continuation)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from pipelines import database, parquet, workers
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.retrieval import documents
from pipelines.scoring.logprobs import Candidates
from pipelines.scoring.queries import Queries

if TYPE_CHECKING:
    from pipelines.lm.open_lm import LMWorkers

CONCATENATED, LONGER_CONTEXT = "concatenated", "longer_context"
RETRIEVERS = ("dense", "lsr")  # whose documents are concatenated
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("query_id", "control", "retriever")),
        *((name, pa.int32()) for name in ("documents", "added_bytes")),
        ("log_probs", pa.list_(pa.float32())),
    ]
)


def compared(retrieved: Sequence[Candidates]) -> list[Candidates]:
    """The candidates that are concatenated: those of RETRIEVERS, or the first retriever's where a run has neither."""
    return [candidates for candidates in retrieved if candidates.retriever in RETRIEVERS] or list(retrieved[:1])


def score(
    stage: str,
    key: str,
    lm: LanguageModel | LMWorkers,
    queries: Queries,
    before: np.ndarray,
    docs: Path,
    retrieved: Sequence[Candidates],
    k: int,
    size: int,
) -> list[Path]:
    """Score the controls of `size` queries at a time: a Parquet file of SCHEMA for each part, in the queries' order.

    `before` (queries,) is the text in front of each context. The first k documents of each of `retrieved`, which have
    candidates for all queries, are put into one prompt. The files stay under (stage, key), as in logprobs.score_parts.
    """

    def read(rows: np.ndarray) -> Part:
        texts = [documents.read(docs, c.positions[rows, :k]).filled(queries.document) for c in retrieved]
        return Part(queries.take(rows), before[rows], dict(zip((c.retriever for c in retrieved), texts, strict=True)))

    def write(_: np.ndarray, table: pa.Table, path: Path) -> None:
        parquet.write(table, path)

    every = np.arange(len(queries))
    parts = np.split(every, every[size::size])
    steps, sizes = workers.Steps(read, _scored, write, Part.length), [len(part) for part in parts]
    return workers.map_texts(lm, stage, key, parts, steps, sizes=sizes, unit="query")


class Part(NamedTuple):
    """Queries, the text in front of each (queries,), and by retriever the documents of each, (queries, k)."""

    queries: Queries
    before: np.ndarray
    texts: dict[str, np.ndarray]

    def length(self) -> int:
        """How many characters there are to read."""
        alone = [self.queries.contexts, self.queries.continuations]
        return sum(len(text) for texts in (*alone * (1 + len(self.texts)), self.before) for text in texts) + sum(
            len(text) for texts in self.texts.values() for text in texts.ravel()
        )


def _scored(lm: LanguageModel, part: Part) -> pa.Table:
    """The rows of SCHEMA of some queries."""
    queries, every, tables = part.queries, np.arange(len(part.queries)), []
    asked = [(LONGER_CONTEXT, "", *longer_context(queries, part.before, every))]
    for retriever, texts in part.texts.items():
        asked.append((CONCATENATED, retriever, *concatenated(lm, queries, texts, every)))
    continuations = list(queries.continuations) * len(asked)
    scores = lm.score([p for *_, prompts in asked for p in prompts], continuations).log_probs
    for number, (control, retriever, counts, prompts) in enumerate(asked):
        sizes = [len((prompt.document + prompt.context).encode()) for prompt in prompts]
        added = [size - len(context.encode()) for size, context in zip(sizes, queries.contexts, strict=True)]
        log_probs = scores[number * len(queries) : (number + 1) * len(queries)]
        n = len(queries)
        columns = [queries.ids, [control] * n, [retriever] * n, counts, added, log_probs]
        tables.append(pa.table(columns, schema=SCHEMA))
    return pa.concat_tables(tables)


def longer_context(queries: Queries, before: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, list[Prompt]]:
    """No documents, (n,), and prompts in which the text itself runs on into each context.

    A prompt that is too long loses its beginning, the part that is farthest from the continuation.
    """
    prompts = [Prompt(before[row] + queries.contexts[row]) for row in rows]
    return np.zeros(len(rows), np.int32), prompts


def concatenated(
    lm: LanguageModel, queries: Queries, texts: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, list[Prompt]]:
    """How many documents each prompt has, (n,), and the prompts: the documents, the best nearest the context.

    `texts` (n, k) are the documents, best first, "" in empty places, which come last. Where they don't fit into what
    the model reads, the worst are left out one by one. A single document that is too long is cut as in an ensemble.
    """
    counts = (texts != "").sum(1).astype(np.int32)

    def prompt(i: int) -> Prompt:
        return queries.prompt(rows[i], "".join(texts[i, : counts[i]][::-1]))

    prompts = [prompt(i) for i in range(len(rows))]
    several = np.flatnonzero(counts > 1)
    while len(several):
        fits = lm.fits([prompts[i] for i in several], list(queries.continuations[rows[several]]))
        too_long = several[~fits]
        counts[too_long] -= 1
        for i in too_long:
            prompts[i] = prompt(i)
        several = too_long[counts[too_long] > 1]
    return counts, prompts


def read_before(corpus: Path, ids: np.ndarray) -> np.ndarray:
    """The text in front of each query's context, up to a document's length, (queries,) str; `ids` are sorted."""
    with duckdb.connect() as db:
        db.register("asked", pa.table({"id": pa.array(ids, pa.string())}))
        database.view(db, "queries", corpus / "queries.parquet")
        rows = db.sql("SELECT before FROM queries SEMI JOIN asked USING (id) ORDER BY id").to_arrow_table()
    return rows["before"].to_numpy(zero_copy_only=False).astype(object)
