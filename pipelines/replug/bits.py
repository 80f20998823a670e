"""Nats per query from the log-probability table: ensembles of every k, temperature and share of the corpus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from pipelines.params import params
from pipelines.replug import ensemble
from pipelines.scoring.logprobs import padded
from pipelines.storage import parquet

TEMPERATURES = (1.0, 0.3, 0.1)
Setting = tuple[str, int, float]  # retriever, k, temperature; without documents "none" and k = 0


@dataclass(frozen=True)
class Bits:
    """Nats of each query's continuation by setting, NaN if a query was not scored in it; arrays (queries,)."""

    ids: np.ndarray
    nats: dict[Setting, np.ndarray]
    bytes: np.ndarray
    tokens: np.ndarray


def measure(tables: Path, replug: params.Replug) -> Bits:
    """The queries' nats without documents and under each retriever's ensembles of its first 1, 2 ... k documents.

    `tables` is a folder with the tables of scoring.logprobs. A share of the corpus (dense@0.1), and every
    temperature of TEMPERATURES, is measured at `replug.top_k` only. One row group is in memory at a time.
    """
    queries: list[tuple[np.ndarray, ...]] = []
    nats: dict[Setting, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)  # numbers of queries, their nats
    count = 0
    for alone, candidates in _parts(tables):
        ids, lengths = alone["query_id"].to_numpy(), pa.compute.list_value_length(alone["log_probs"]).to_numpy()
        queries.append((ids, padded(alone["bytes"], np.int64).sum(1), lengths.astype(np.int64)))
        of_none = -padded(alone["log_probs"], np.float64).sum(1)
        nats["none", 0, replug.temperature].append((np.arange(count, count + len(ids)), of_none))
        for name in candidates["retriever"].unique().to_pylist():
            of_retriever = candidates.filter(pa.compute.equal(candidates["retriever"], name))
            for setting, rows, nats_of_rows in _ensembles(name, of_retriever, ids, count, replug):
                nats[setting].append((rows, nats_of_rows))
        count += len(ids)
    whole = {}
    for setting in list(nats):
        rows, values = (np.concatenate(column) for column in zip(*nats.pop(setting), strict=True))
        whole[setting] = np.full(count, np.nan)
        whole[setting][rows] = values
    ids, n_bytes, tokens = (np.concatenate(column) for column in zip(*queries, strict=True))
    return Bits(ids.astype(object), whole, n_bytes, tokens)


def _parts(tables: Path) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield for each row group its queries' log-probs without a document, and those with each candidate document."""
    logprobs, retrieved = (parquet.row_groups(tables / f"{name}.parquet") for name in ("logprobs", "retrieved"))
    with duckdb.connect() as db:
        for scored, candidates in zip(logprobs, retrieved, strict=True):
            db.register("scored", scored)
            db.register("candidates", candidates)
            alone = db.sql("SELECT query_id, log_probs, bytes FROM scored WHERE doc_id = '' ORDER BY query_id")
            with_documents = db.sql(
                """SELECT retriever, query_id, rank, similarity, log_probs FROM candidates
                   JOIN scored USING (query_id, doc_id) ORDER BY retriever, query_id, rank"""
            )
            yield alone.to_arrow_table(), with_documents.to_arrow_table()


def _ensembles(
    name: str, scored: pa.Table, ids: np.ndarray, first: int, replug: params.Replug
) -> Iterator[tuple[Setting, np.ndarray, np.ndarray]]:
    """Yield each setting of a retriever, the numbers of the queries scored in it, and their nats.

    `scored` is in the order of query and rank. The query ids[i] has the number first + i.
    """
    log_probs, similarities = _by_rank(scored)
    most = similarities.shape[1]
    rows = first + np.searchsorted(ids, scored["query_id"].to_numpy()[::most])
    top_k, temperature = min(most, replug.top_k), replug.temperature
    settings = {(name, top_k, temperature)}
    if "@" not in name:
        settings |= {(name, k, temperature) for k in range(1, most + 1)} | {(name, top_k, t) for t in TEMPERATURES}
    for name, k, temperature in sorted(settings):
        weights = ensemble.log_weights(similarities[:, :k], temperature)
        yield (name, k, temperature), rows, -ensemble.MIXTURES[replug.mixture](log_probs[:, :k], weights).sum(1)


def _by_rank(scored: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs (queries, k, tokens) and similarities (queries, k) of rows in the order of query and rank."""
    most = pa.compute.max(scored["rank"]).as_py()
    log_probs = padded(scored["log_probs"], np.float64)
    return log_probs.reshape(-1, most, log_probs.shape[1]), scored["similarity"].to_numpy().reshape(-1, most)
