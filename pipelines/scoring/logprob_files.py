"""data/logprobs/<corpus>/<lm>, written part by part: what the language model said, and of which documents.

logprobs.parquet   lm, query_id, doc_id ("" = none), log_probs and bytes (a list entry per continuation token)
retrieved.parquet  query_id, retriever (bm25, dense, lsr, random; dense@0.1: over that share of the documents), rank
                   (from 1), doc_id, similarity (what lambda is a softmax of: see ensemble.comparable); where fewer
                   documents were left than asked for, doc_id is "" and similarity -inf
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import shards
from pipelines.scoring import logprob_table
from pipelines.scoring.candidates import Candidates

TEXT = pa.string()
LOGPROBS = pa.schema(
    [
        ("lm", TEXT),
        ("query_id", TEXT),
        ("doc_id", TEXT),
        *(logprob_table.COLUMNS.field(name) for name in ("log_probs", "bytes")),
    ]
)
RETRIEVED = pa.schema(
    [("query_id", TEXT), ("retriever", TEXT), ("rank", pa.int32()), ("doc_id", TEXT), ("similarity", pa.float32())]
)


def write(out: Path, lm: str, ids: np.ndarray, found: Sequence[Candidates], files: Sequence[Path], size: int) -> None:
    """Both tables, whole or not at all, by their unique keys: (query_id, doc_id) and (query_id, retriever, rank).

    `files` (table.COLUMNS) hold the scored pairs of `size` queries each, in order; `ids` (queries,) are sorted. One
    file is in memory at a time.
    """
    with shards.atomic(out) as folder:
        folder.mkdir()
        with (
            pq.ParquetWriter(folder / "logprobs.parquet", LOGPROBS, compression="zstd") as logprobs,
            pq.ParquetWriter(folder / "retrieved.parquet", RETRIEVED, compression="zstd") as retrieved,
        ):
            for number, file in enumerate(files):
                scored = pq.read_table(file, schema=logprob_table.COLUMNS)
                rows = scored["query"].to_numpy()
                columns = {"lm": np.full(len(rows), lm, object), "query_id": ids[rows]}
                columns |= {name: scored[name] for name in ("doc_id", "log_probs", "bytes")}
                order = [("query_id", "ascending"), ("doc_id", "ascending")]
                logprobs.write_table(pa.table(columns, schema=LOGPROBS).sort_by(order))
                own = range(number * size, min((number + 1) * size, len(ids)))
                retrieved.write_table(_ranked(found, own, ids, scored))


def _ranked(found: Sequence[Candidates], own: range, ids: np.ndarray, scored: pa.Table) -> pa.Table:
    """A row for each candidate of the queries `own`, with the doc_id that `scored` has for its position."""
    queries, positions, doc_ids = (scored[name].to_numpy() for name in ("query", "document", "doc_id"))
    width = positions.max() + 2
    keys = queries * width + positions  # ascending, as the pairs are
    parts = []
    for one in found:
        some = slice(*np.searchsorted(one.queries, [own.start, own.stop]))
        rows, asked = one.queries[some, None], one.positions[some]
        n, k = asked.shape
        part = {
            "query_id": np.repeat(ids[rows[:, 0]], k),
            "retriever": np.full(n * k, one.retriever, object),
            "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), n),
            "doc_id": doc_ids[np.searchsorted(keys, (rows * width + asked).ravel())],
            "similarity": one.similarities[some].astype(np.float32).ravel(),
        }
        parts.append(pa.table(part, schema=RETRIEVED))
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in ("query_id", "retriever", "rank")])
