"""Which knowledge a text came from: its probability, token by token, attributed to memory and documents (REPLUG §9).

REPLUG names it as a limitation that a prediction can't be traced to the model's own knowledge or to what was retrieved.
Two numbers per token trace it: p(y_t) = sum_d lambda_d p_d(y_t) of the ensemble, and p_0(y_t) without documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import logsumexp

from pipelines.replug import ensemble
from pipelines.storage import parquet


@dataclass(frozen=True)
class Texts:
    """Scored continuations, ordered by id; places beyond a continuation's end hold 0."""

    ids: np.ndarray  # (n,) str
    bytes: np.ndarray  # (n, tokens) int64
    lengths: np.ndarray  # (n,) tokens
    closed: np.ndarray  # (n, tokens) log p without documents
    log_probs: np.ndarray  # (n, k, tokens) log p with each document; in empty places without documents
    similarities: np.ndarray  # (n, k); -inf in empty places
    doc_ids: np.ndarray  # (n, k) str; "" in empty places

    @property
    def real(self) -> np.ndarray:
        """Which places are tokens, (n, tokens) bool."""
        return np.arange(self.closed.shape[1]) < self.lengths[:, None]


@dataclass(frozen=True)
class Attribution:
    """The documents' weights, each token's log-probability under the ensemble, and shares of that probability."""

    weights: np.ndarray  # (n, k) lambda, before any token
    mixed: np.ndarray  # (n, tokens) log p
    responsibilities: np.ndarray  # (n, k, tokens) lambda_d p_d / p, the posterior of each document; adds up to 1
    documents: np.ndarray  # (n, k, tokens) part of the responsibility beyond what the model gives without documents
    memory: np.ndarray  # (n, tokens) what the model gives without documents; adds up to 1 with `documents`


def read_scored_texts(tables: Path, retriever: str, k: int, size: int) -> Iterator[Texts]:
    """The texts with their best k documents, from `tables`/logprobs.parquet and retrieved.parquet, block by block.

    A block is as many row groups as hold `size` texts. Each row group is read once.
    """
    logprobs = parquet.row_groups(tables / "logprobs.parquet", ["query_id", "doc_id", "log_probs", "bytes"])
    retrieved = parquet.row_groups(tables / "retrieved.parquet")
    with duckdb.connect() as db:
        scored, candidates, n = [], [], 0
        for of_group, candidates_of_group in zip(logprobs, retrieved, strict=True):  # of the same queries
            scored.append(of_group)
            candidates.append(candidates_of_group)
            n += pc.sum(pc.equal(of_group["doc_id"], "")).as_py()
            if n >= size:
                yield _texts(db, pa.concat_tables(scored), pa.concat_tables(candidates), retriever, k)
                scored, candidates, n = [], [], 0
        if scored:
            yield _texts(db, pa.concat_tables(scored), pa.concat_tables(candidates), retriever, k)


def _texts(db: duckdb.DuckDBPyConnection, scored: pa.Table, candidates: pa.Table, retriever: str, k: int) -> Texts:
    db.register("scored", scored)
    db.register("candidates", candidates)
    alone = db.sql("SELECT query_id, log_probs, bytes FROM scored WHERE doc_id = '' ORDER BY query_id").to_arrow_table()
    ranked = db.sql(
        """SELECT query_id, rank, doc_id, similarity, log_probs FROM candidates JOIN scored USING (query_id, doc_id)
        WHERE retriever = ? AND rank <= ? ORDER BY query_id, rank""",
        params=[retriever, k],
    ).to_arrow_table()
    ids = alone["query_id"].to_numpy().astype(object)
    lengths = np.diff(alone["log_probs"].combine_chunks().offsets.to_numpy()).astype(np.int64)
    real = np.arange(lengths.max(initial=0)) < lengths[:, None]
    closed, n_bytes = (np.zeros(real.shape, kind) for kind in (np.float64, np.int64))
    closed[real], n_bytes[real] = (alone[name].combine_chunks().flatten().to_numpy() for name in ("log_probs", "bytes"))

    places = np.searchsorted(ids, ranked["query_id"].to_numpy().astype(object)), ranked["rank"].to_numpy() - 1
    similarities, doc_ids = np.full((len(ids), k), -np.inf), np.full((len(ids), k), "", object)
    similarities[places], doc_ids[places] = ranked["similarity"].to_numpy(), ranked["doc_id"].to_numpy().astype(object)
    log_probs = np.repeat(closed[:, None], k, axis=1)
    with_documents = np.zeros((ranked.num_rows, real.shape[1]))
    with_documents[real[places[0]]] = ranked["log_probs"].combine_chunks().flatten().to_numpy()
    log_probs[places] = with_documents
    return Texts(ids, n_bytes, lengths, closed, log_probs, similarities, doc_ids)


def attribute_tokens(texts: Texts, temperature: float, mixture: str) -> Attribution:
    """Attribute each token's probability under the ensemble to memory and documents.

    Each term of p = sum_d lambda_d p_d is split at p_0. The model gives lambda_d min(p_d, p_0) without documents too,
    so this part belongs to memory. The rest, lambda_d max(0, p_d - p_0), belongs to document d. Divided by p, the parts
    add up to 1 and none is negative. If no document lowers the token's probability, memory's share is min(1, p_0 / p);
    if all documents do, it is 1. A document that repeats what the model knows gets nothing: shares say what changed,
    not where else the knowledge stands. Under `sequence_mixture` lambda_d is the weight at the token (see ensemble).
    """
    weights = ensemble.log_weights(texts.similarities, temperature)
    joint = texts.log_probs + ensemble.WEIGHTS[mixture](texts.log_probs, weights)
    mixed = logsumexp(joint, axis=1)
    responsibilities = np.exp(joint - mixed[:, None])
    known = np.minimum(texts.closed[:, None] - texts.log_probs, 0.0)  # log of min(1, p_0 / p_d)
    documents = responsibilities * -np.expm1(known)
    memory = (responsibilities * np.exp(known)).sum(1)
    return Attribution(np.exp(weights), mixed, responsibilities, documents, memory)


def of_texts(shares: np.ndarray, texts: Texts) -> np.ndarray:
    """The mean of shares (n, ..., tokens) over each text's tokens, (n, ...)."""
    inside = texts.real.reshape(len(shares), *[1] * (shares.ndim - 2), -1)
    return np.where(inside, shares, 0.0).sum(-1) / np.maximum(texts.lengths, 1).reshape(-1, *[1] * (shares.ndim - 2))


def token_texts(continuation: str, n_bytes: np.ndarray) -> list[str]:
    """The text of each token: `continuation` cut after each token's bytes, which never end inside a character."""
    whole, stops = continuation.encode(), np.cumsum(n_bytes).tolist()
    return [whole[a:b].decode() for a, b in zip([0, *stops], stops, strict=False)]
