"""The log-probability table: log p of every continuation token, per (language model, query, document or none).

Computed once per pair and never changed; every ensemble, control and bits-per-byte figure is a query over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import shards
from pipelines.lm.language_model import LanguageModel
from pipelines.retrieval import documents
from pipelines.scoring.queries import Queries

SHARD = 4096  # pairs scored between two points that a killed run goes on from
NONE = -1  # position of no document
COLUMNS = pa.schema(
    [
        ("query", pa.int64()),
        ("document", pa.int64()),
        ("doc_id", pa.string()),  # "" of no document
        ("log_probs", pa.list_(pa.float32())),
        ("bytes", pa.list_(pa.int32())),
    ]
)


def unique_pairs(queries: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The distinct (query, document) of `found` (n, any) for `queries` (n,), in order, (pairs, 2) int64."""
    pairs = np.stack([np.repeat(queries, found.shape[1]), found.ravel()], axis=1)
    return np.unique(pairs, axis=0)


def score_parts(
    stage: str, key: str, lm: LanguageModel, queries: Queries, docs: Path, parts: Sequence[np.ndarray]
) -> list[Path]:
    """log p of each pair's continuation, a Parquet file of COLUMNS for each part, in the order of its pairs.

    A part is (n, 2) of query and position or NONE. The files stay under (stage, key) until the caller forgets them: a
    killed run does not score a part twice, and only one part is in memory.
    """

    def score(part: np.ndarray, path: Path) -> None:
        some = part[:, 1] != NONE
        found = documents.read(docs, part[some, 1])
        ids, texts = np.full(len(part), "", object), np.full(len(part), None, object)
        ids[some], texts[some] = found.ids, found.texts
        prompts = [queries.prompt(query, text) for query, text in zip(part[:, 0], texts, strict=True)]
        scores = lm.score(prompts, list(queries.continuations[part[:, 0]]))
        bounds = np.concatenate([[0], np.cumsum([len(one) for one in scores.log_probs])]).astype(np.int32)
        columns = [
            pa.array(part[:, 0]),
            pa.array(part[:, 1]),
            pa.array(ids, pa.string()),
            *(pa.ListArray.from_arrays(bounds, np.concatenate(values)) for values in (scores.log_probs, scores.bytes)),
        ]
        pq.write_table(pa.table(columns, schema=COLUMNS), path, compression="zstd")

    return shards.map_shards(stage, key, score, parts)


def sums(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Sum of log p and number of tokens of each row, (rows,) float64 and int64."""
    column = table["log_probs"].combine_chunks()
    bounds = column.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(bounds)
    values = np.append(column.values.to_numpy()[: bounds[-1]].astype(np.float64), 0.0)
    # each row by itself: a running sum's last digits would depend on the rows before
    return np.where(lengths > 0, np.add.reduceat(values, bounds[:-1]), 0.0), lengths


def gather(table: pa.Table, queries: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs (n, k, tokens) float64 of the pairs (queries (n,), found (n, k)), and bytes (n, tokens) int64.

    Tokens are as many as the longest continuation's; the places beyond a shorter one's end hold 0.
    """
    n, k = found.shape
    asked = pa.table(
        {"place": np.arange(n * k), "query": np.repeat(queries, k), "document": np.ascontiguousarray(found).ravel()}
    )
    with duckdb.connect() as connection:
        connection.register("scored", table)
        connection.register("asked", asked)
        rows = connection.sql(
            "SELECT log_probs, bytes FROM asked JOIN scored USING (query, document) ORDER BY place"
        ).to_arrow_table()
    assert rows.num_rows == n * k, "a pair was never scored"
    log_probs, n_bytes = padded(rows["log_probs"], np.float64), padded(rows["bytes"], np.int64)
    return log_probs.reshape(n, k, -1), n_bytes.reshape(n, k, -1)[:, 0]


def padded(lists: pa.ChunkedArray, kind: type) -> np.ndarray:
    """Lists of numbers as the rows of one array, the shorter ones filled with 0."""
    lists = lists.combine_chunks()
    lengths = np.diff(lists.offsets.to_numpy())
    real = np.arange(lengths.max(initial=0)) < lengths[:, None]
    rows = np.zeros(real.shape, kind)
    rows[real] = lists.flatten().to_numpy()
    return rows
