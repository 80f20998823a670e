"""From the log-probability table to nats per query: ensembles of every k, of other temperatures, of smaller corpora."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import params
from pipelines.replug import ensemble
from pipelines.scoring.logprobs import padded

TEMPERATURES = (1.0, 0.3, 0.1)
Setting = tuple[str, int, float]  # retriever, k, temperature; "none" has k 0


@dataclass(frozen=True)
class Bits:
    """Nats of each query's continuation by setting, NaN where a query was not asked of it.

    Arrays are (queries,), in the order of `ids`.
    """

    ids: np.ndarray
    nats: dict[Setting, np.ndarray]
    bytes: np.ndarray
    tokens: np.ndarray


def measure(tables: Path, replug: params.Replug) -> Bits:
    """Every ensemble out of a folder's tables (see logprobs.py): none, and each retriever's first 1, 2 ... k documents.

    A share of the corpus (dense@0.1), and every temperature of TEMPERATURES, is measured at `replug.top_k` only. One
    row group of the tables is in memory at a time.
    """
    queries: list[tuple[np.ndarray, ...]] = []
    nats: dict[Setting, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)  # rows of the queries, and theirs
    count = 0
    for alone, found in _parts(tables):
        ids, lengths = alone["query_id"].to_numpy(), pa.compute.list_value_length(alone["log_probs"]).to_numpy()
        queries.append((ids, padded(alone["bytes"], np.int64).sum(1), lengths.astype(np.int64)))
        own = -padded(alone["log_probs"], np.float64).sum(1)
        nats["none", 0, replug.temperature].append((np.arange(count, count + len(ids)), own))
        for name in found["retriever"].unique().to_pylist():
            of_retriever = found.filter(pa.compute.equal(found["retriever"], name))
            for setting, rows, own in _ensembles(name, of_retriever, ids, count, replug):
                nats[setting].append((rows, own))
        count += len(ids)
    whole = {}
    for setting in list(nats):
        rows, own = (np.concatenate(column) for column in zip(*nats.pop(setting), strict=True))
        whole[setting] = np.full(count, np.nan)
        whole[setting][rows] = own
    ids, n_bytes, tokens = (np.concatenate(column) for column in zip(*queries, strict=True))
    return Bits(ids.astype(object), whole, n_bytes, tokens)


def _parts(tables: Path) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Row group by row group, of some queries each: what was said without a document, and with each candidate."""
    logprobs, retrieved = (pq.ParquetFile(tables / f"{name}.parquet") for name in ("logprobs", "retrieved"))
    with logprobs, retrieved, duckdb.connect() as db:
        for group in range(logprobs.num_row_groups):
            db.register("scored", logprobs.read_row_group(group))
            db.register("candidates", retrieved.read_row_group(group))
            alone = db.sql("SELECT query_id, log_probs, bytes FROM scored WHERE doc_id = '' ORDER BY query_id")
            found = db.sql(
                """SELECT retriever, query_id, rank, similarity, log_probs FROM candidates
                   JOIN scored USING (query_id, doc_id) ORDER BY retriever, query_id, rank"""
            )
            yield alone.to_arrow_table(), found.to_arrow_table()


def _ensembles(
    name: str, found: pa.Table, ids: np.ndarray, first: int, replug: params.Replug
) -> Iterator[tuple[Setting, np.ndarray, np.ndarray]]:
    """Each setting of a retriever, the rows of the queries asked of it, and their nats; `ids` are of rows from `first`.

    `found` is in order.
    """
    k = pa.compute.max(found["rank"]).as_py()
    rows = first + np.searchsorted(ids, found["query_id"].to_numpy()[::k])
    log_probs = padded(found["log_probs"], np.float64).reshape(len(rows), k, -1)
    similarities = found["similarity"].to_numpy().reshape(len(rows), k)
    top, heat = (name, min(k, replug.top_k)), replug.temperature
    settings = {(*top, heat)}
    if "@" not in name:
        settings |= {(name, few, heat) for few in range(1, k + 1)} | {(*top, other) for other in TEMPERATURES}
    for name, few, heat in sorted(settings):
        weights = ensemble.log_weights(similarities[:, :few], heat)
        yield (name, few, heat), rows, -ensemble.MIXTURES[replug.mixture](log_probs[:, :few], weights).sum(1)
