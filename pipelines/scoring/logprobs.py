"""The log-probability table (REPLUG §3): a language model's log p of each continuation token.

Each (query, document) pair is scored once. Every ensemble, control and bits-per-byte figure is
computed from the table. A query and a document are known by their positions, and NONE stands for no
document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import draws
from pipelines.arrays import arrays_of, take_rows
from pipelines.errors import LongtailError
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.retrieval import documents
from pipelines.storage import database, parquet
from pipelines.tables.language_modelling import SCORED
from pipelines.tables.table import schema_of
from pipelines.work import workers

if TYPE_CHECKING:
    from pipelines.lm.open_lm import LMWorkers

SHARD = 4096  # pairs scored at once; a killed run resumes after the last whole shard
NONE = -1  # stands for "no document" among positions of documents
# Rows of a pair's numbers and of LOGPROBS' columns SCORED
SCORED_PAIRS = pa.schema([("query", pa.int64()), ("document", pa.int64()), *schema_of(SCORED)])


@dataclass(frozen=True)
class Queries:
    """Texts that are searched with, and the contexts and continuations that a language model
    scores.

    All are arrays of str (n,).
    """

    ids: np.ndarray
    texts: np.ndarray  # searched with
    contexts: np.ndarray
    continuations: np.ndarray
    # (n, 2) demonstrations, which come first: with documents of their own, and without any
    shots: np.ndarray
    document: str  # template of the document before the context (retrieval/documents.py)

    def __len__(self) -> int:
        return len(self.ids)

    def prompt(self, row: int, document: str | None) -> Prompt:
        """The prompt of a query with a document, which is filled into the template already.

        Where a prompt is too long for the language model, demonstrations are cut first.
        """
        shots = self.shots[row, int(document is None)]
        if shots:
            return Prompt(f"{shots}{document or ''}{self.contexts[row]}")
        return Prompt(self.contexts[row], document or "")

    def take(self, rows: np.ndarray) -> Queries:
        return take_rows(self, rows)

    def and_then(self, other: Queries) -> Queries:
        others = arrays_of(other)
        columns: dict[str, Any] = {}
        for name, array in arrays_of(self).items():
            columns[name] = np.concatenate([array, others[name]])
        return replace(self, **columns)


def without_shots(n: int) -> np.ndarray:
    """The `shots` of n queries that have no demonstrations."""
    return np.full((n, 2), "", object)


def read_language_modelling(
    corpus: Path, split: str, seed: int, at_most: int
) -> tuple[Queries, np.ndarray]:
    """Queries of a corpus's split, drawn by hash, and their source documents.

    Documents are read without titles, as published: both texts run on. Raises LongtailError if
    there is no file.
    """
    path = corpus / "queries.parquet"
    if not path.is_file():
        raise LongtailError(f"{path}: no such file; `dvc repro` runs the stage that writes it")
    table = database.ask(
        """SELECT id, context, continuation, source_document
        FROM rows WHERE split = ? ORDER BY id""",
        [split],
        rows=path,
    ).to_arrow_table()

    def column(name: str) -> np.ndarray:
        return table[name].to_numpy(zero_copy_only=False).astype(object)

    ids = column("id")
    drawn = np.empty(0, np.int64)
    if len(ids):
        purpose = f"{split} queries"
        drawn = draws.sample(seed, purpose, list(ids), at_most)
    contexts = column("context")[drawn]
    queries = Queries(
        ids=ids[drawn],
        texts=contexts,
        contexts=contexts,
        continuations=column("continuation")[drawn],
        document="{text}\n",
        shots=without_shots(len(drawn)),
    )
    return queries, column("source_document")[drawn]


@dataclass(frozen=True)
class Candidates:
    """A retriever's documents for some queries, best first.

    Empty places hold NONE with similarity -inf.
    """

    retriever: str  # "dense@0.1": over a share of the documents
    queries: np.ndarray  # (n,) rows, ascending
    positions: np.ndarray  # (n, k) int64
    similarities: np.ndarray  # (n, k)


def unique_pairs(queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The distinct (query, document) pairs of queries (n,) and positions (n, any).

    They are sorted, (pairs, 2) int64.
    """
    repeated = np.repeat(queries, positions.shape[1])
    pairs = np.stack([repeated, positions.ravel()], axis=1)
    return np.unique(pairs, axis=0)


def pair_keys(queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """One number for each pair, in the pairs' order; for up to 2^27 queries and 2^36 documents."""
    return (queries << 36) + positions + 1


def keys_of(scored: pa.Table) -> np.ndarray:
    """The `pair_keys` of the rows of SCORED_PAIRS."""
    return pair_keys(scored["query"].to_numpy(), scored["document"].to_numpy())


def prompts(queries: Queries, docs: Path, pairs: np.ndarray) -> tuple[list[Prompt], np.ndarray]:
    """What the language model reads for each pair (n, 2), and the documents' ids (n,)."""
    rows = pairs[:, 0]
    positions = pairs[:, 1]
    read = documents.read_documents(docs, positions)
    texts = read.filled(queries.document)
    texts[positions == NONE] = None
    prompts_of_pairs = []
    for row, text in zip(rows, texts, strict=True):
        prompts_of_pairs.append(queries.prompt(row, text))
    return prompts_of_pairs, read.ids


class ScoringInput(NamedTuple):
    """Pairs as a language model scores them."""

    prompts: list[Prompt]
    doc_ids: np.ndarray
    continuations: list[str]

    def length(self) -> int:
        """How many characters there are to read."""
        n_characters = sum(map(len, self.continuations))
        for prompt in self.prompts:
            n_characters += len(prompt.document) + len(prompt.context)
        return n_characters


def score_parts(
    work: str,
    key: str,
    lm: LanguageModel | LMWorkers,
    queries: Queries,
    docs: Path,
    parts: Sequence[np.ndarray],
) -> list[Path]:
    """Score the continuation of each pair: a Parquet file of SCORED_PAIRS for each part.

    A part is an array (n, 2) of query and position or NONE, whose scores are computed together. The
    files stay under (work, key) until the caller forgets them, so that a killed run scores no part
    twice.
    """

    def read(part: np.ndarray) -> ScoringInput:
        prompts_of_part, doc_ids = prompts(queries, docs, part)
        continuations = queries.continuations[part[:, 0]]
        return ScoringInput(prompts_of_part, doc_ids, list(continuations))

    def write(part: np.ndarray, scored: pa.Table, path: Path) -> None:
        columns = [*part.T, *scored.columns]
        parquet.write_parquet(pa.table(columns, schema=SCORED_PAIRS), path)

    steps = workers.Steps(read=read, work=score, write=write, length=ScoringInput.length)
    sizes = [len(part) for part in parts]
    return workers.map_texts(lm, work, key, parts, steps, sizes=sizes, unit="pair")


def score(lm: LanguageModel, scoring_input: ScoringInput) -> pa.Table:
    """The columns of SCORED."""
    scores = lm.score(scoring_input.prompts, scoring_input.continuations)
    lengths = [len(row) for row in scores.log_probs]
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    log_probs = np.concatenate(scores.log_probs)
    n_bytes = np.concatenate(scores.bytes)
    columns = {
        "doc_id": pa.array(scoring_input.doc_ids, pa.string()),
        "log_probs": pa.ListArray.from_arrays(bounds, log_probs),
        "bytes": pa.ListArray.from_arrays(bounds, n_bytes),
    }
    return pa.table(columns, schema=schema_of(SCORED))


def sums(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Sum of log p and number of tokens of each row of SCORED_PAIRS, (rows,) float64 and int64."""
    column = table["log_probs"].combine_chunks()
    bounds = column.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(bounds)
    log_probs = column.values.to_numpy()[: bounds[-1]].astype(np.float64)
    # Each row is summed by itself: the last digits of a running sum depend on the rows before.
    # The 0 at the end is there for empty rows that begin at the end.
    with_end = np.append(log_probs, 0.0)
    row_sums = np.add.reduceat(with_end, bounds[:-1])
    return np.where(lengths > 0, row_sums, 0.0), lengths


def gather(
    table: pa.Table, queries: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probs (n, k, tokens) float64 and bytes (n, tokens) int64 of scored pairs.

    The pairs are of queries (n,) with positions (n, k), and `table` has SCORED_PAIRS. Shorter
    continuations are filled up with 0.
    """
    n, k = positions.shape
    keys = keys_of(table)
    wanted = pair_keys(queries[:, None], positions).ravel()
    assert np.isin(wanted, keys).all(), "a pair was never scored"

    order = np.argsort(keys)
    places = order[np.searchsorted(keys, wanted, sorter=order)]
    rows = table.select(["log_probs", "bytes"]).take(places)
    log_probs = padded(rows["log_probs"], np.float64).reshape(n, k, -1)
    n_bytes = padded(rows["bytes"], np.int64).reshape(n, k, -1)
    return log_probs, n_bytes[:, 0]  # a continuation has the same bytes with each document


def padded(lists: pa.ChunkedArray, dtype: type) -> np.ndarray:
    """Lists of numbers as the rows of one array; shorter lists are filled up with 0."""
    lists = lists.combine_chunks()
    lengths = np.diff(lists.offsets.to_numpy())
    places = np.arange(lengths.max(initial=0))
    is_value = places < lengths[:, None]
    rows = np.zeros(is_value.shape, dtype)
    rows[is_value] = lists.flatten().to_numpy()
    return rows
