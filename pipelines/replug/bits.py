"""From the log-probability table to bits per byte: ensembles of every k, their intervals, and the tables on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import draws, shards
from pipelines.evaluation import intervals
from pipelines.replug import ensemble, table
from pipelines.replug.queries import Queries
from pipelines.retrieval import documents

TEMPERATURES = (1.0, 0.3, 0.1)
Found = dict[str, tuple[np.ndarray, np.ndarray]]  # retriever -> positions and scores, (queries, k) each


@dataclass(frozen=True)
class Bits:
    """Per query: nats of the continuation under (retriever, k), bytes and tokens of it, (queries,) each."""

    nats: dict[tuple[str, int], np.ndarray]
    bytes: np.ndarray
    tokens: np.ndarray
    sharpened: dict[tuple[str, float], np.ndarray]  # nats under (retriever, temperature) at the largest k


def measure(scored: pa.Table, found: Found, temperature: float, mixture: str) -> Bits:
    """Every ensemble out of the one table: each retriever's first 1, 2, ... k documents, and none."""
    mix = ensemble.MIXTURES[mixture]
    rows = np.arange(len(next(iter(found.values()))[0]))
    alone, n_bytes = table.gather(scored, rows, np.full((len(rows), 1), table.NONE))
    _, tokens = table.sums(scored.filter(pa.compute.equal(scored["document"], table.NONE)))
    nats, sharpened = {("none", 0): -alone[:, 0].sum(1)}, {}
    for name, (positions, scores) in found.items():
        log_probs, _ = table.gather(scored, rows, positions)
        similarities = ensemble.comparable(scores, name)
        for k in range(1, positions.shape[1] + 1):
            weights = ensemble.log_weights(similarities[:, :k], temperature)
            nats[name, k] = -mix(log_probs[:, :k], weights).sum(1)
        for sharp in TEMPERATURES:
            sharpened[name, sharp] = -mix(log_probs, ensemble.log_weights(similarities, sharp)).sum(1)
    return Bits(nats, n_bytes.sum(1), tokens, sharpened)


def figures(bits: Bits, source_documents: np.ndarray, params: SimpleNamespace) -> dict[str, dict[str, float | None]]:
    """The metrics that pipelines.replug.score describes: {name: {value, low, high}}."""

    def interval(name: str, columns: list[np.ndarray], statistic) -> tuple[str, dict]:
        sums = intervals.cluster_sums(np.stack(columns, axis=1), source_documents)
        generator = draws.generator(params.seed, "language modelling")  # the same resamples for all: comparable
        return name, intervals.bootstrap(sums, statistic, generator, params.report.bootstrap).as_json()

    def every() -> Iterator[tuple[str, dict]]:
        none, top = bits.nats["none", 0], max(k for _, k in bits.nats)
        for (name, k), nats in bits.nats.items():
            label = f"{name}_k{k}" if k else name
            yield interval(f"bpb_{label}", [nats, bits.bytes], _bits_per_byte)
            if k in (0, top):
                yield interval(f"perplexity_{label}", [nats, bits.tokens], _perplexity)
            if k:
                yield interval(f"gain_{label}", [nats, none], _gain)
            if name == "lsr":
                yield interval(f"lsr_gain_k{k}", [nats, bits.nats["dense", k]], _gain)
        for (name, temperature), nats in bits.sharpened.items():
            yield interval(f"bpb_{name}_k{top}_t{temperature:g}", [nats, bits.bytes], _bits_per_byte)

    return dict(every())


def _bits_per_byte(sums: np.ndarray) -> np.ndarray:
    return ensemble.bits_per_byte(sums[:, 0], sums[:, 1])


def _perplexity(sums: np.ndarray) -> np.ndarray:
    return np.exp(sums[:, 0] / sums[:, 1])


def _gain(sums: np.ndarray) -> np.ndarray:
    """In %: how far the first column lies below the second. The bytes are the same, so they cancel out."""
    return 100 * (1 - sums[:, 0] / sums[:, 1])


def write_tables(
    out: Path,
    docs: Path,
    scored: pa.Table,
    found: Found,
    bits: Bits,
    *,
    lm: str,
    queries: Queries,
    source_documents: np.ndarray,
    sources: np.ndarray,
) -> None:
    """The three tables of data/logprobs, whole or not at all, each in the order of its unique key."""
    rows, positions = scored["query"].to_numpy(), scored["document"].to_numpy()
    doc_ids = np.full(len(rows), "", object)
    some = positions != table.NONE
    doc_ids[some] = documents.read(docs, positions[some]).ids
    logprobs = {
        "lm": np.full(len(rows), lm, object),
        "query_id": queries.ids[rows],
        "doc_id": doc_ids,
        "log_probs": scored["log_probs"],
        "bytes": scored["bytes"],
    }
    parts = [
        {
            "query_id": np.repeat(queries.ids, found_here.shape[1]),
            "retriever": np.full(found_here.size, name, object),
            "rank": np.tile(np.arange(1, found_here.shape[1] + 1, dtype=np.int32), len(found_here)),
            "doc_id": documents.read(docs, found_here).ids.ravel(),
            "similarity": ensemble.comparable(scores, name).astype(np.float32).ravel(),
        }
        for name, (found_here, scores) in sorted(found.items())
    ]
    per_query = [
        {
            "lm": np.full(len(nats), lm, object),
            "retriever": np.full(len(nats), name, object),
            "k": np.full(len(nats), k, np.int32),
            "query_id": queries.ids,
            "source_document": source_documents,
            "source": sources,
            "nats": nats,
            "bytes": bits.bytes,
            "tokens": bits.tokens.astype(np.int32),
        }
        for (name, k), nats in sorted(bits.nats.items())
    ]
    tables = {
        "logprobs": pa.table(logprobs).sort_by([(name, "ascending") for name in ("lm", "query_id", "doc_id")]),
        "retrieved": pa.concat_tables(pa.table(part) for part in parts).sort_by(
            [(name, "ascending") for name in ("query_id", "retriever", "rank")]
        ),
        "bpb": pa.concat_tables(pa.table(part) for part in per_query),
    }
    with shards.atomic(out) as folder:
        folder.mkdir()
        for name, rows_of in tables.items():
            pq.write_table(rows_of, folder / f"{name}.parquet", compression="zstd")
