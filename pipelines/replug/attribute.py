"""Stage `attribute`: what each token and text of the test queries owes to memory and to each document (REPLUG §9, B).

data/attribution/, by the main language model, with the ensemble that the section `replug` sets:
  tokens.parquet  lm, retriever, query_id, token (from 0), text, frequency (its word's in the corpus; null: no word),
                  log_prob_none and log_prob (without documents and under the ensemble, nats), memory (share of the
                  probability), documents and responsibilities (a list entry per rank; see attribution.Attribution)
  texts.parquet   lm, retriever, query_id, tokens, nats_none, nats, memory and documents (mean shares over the tokens),
                  weights (lambda) and doc_ids, by rank ("" where there was none)
data/metrics/attribution.json, by retriever: memory, the mean share over all tokens; by_frequency, a row per power of
ten of the word's frequency: tokens, bits a token without documents, bits saved, memory; 95 % bootstrap intervals over
source documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pipelines import shards, stage

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pipelines.replug.attribution import Attribution, Texts

CORPUS = Path("data/corpus/pile")
LOGPROBS = Path("data/logprobs/pile")
OUT = Path("data/attribution")
METRICS = Path("data/metrics/attribution.json")
SECTIONS = ("seed", "compute", "ingest", "lms", "replug", "report")
BLOCK = 512  # texts shared out at once
UNKNOWN = -1  # frequency of a token without a word


def attribute(params: SimpleNamespace) -> stage.Metrics:
    """Share out every scored continuation, for every retriever; write data/attribution and the metrics."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipelines import database
    from pipelines.replug import rarity

    lm, tables = params.lms[0], LOGPROBS / params.lms[0]
    with database.connect(params.ingest.memory_gb, params.compute.threads) as db:
        queries = database.read(
            db,
            f"""SELECT query_id, context, continuation, source_document, bytes
            FROM '{tables}/logprobs.parquet' JOIN '{CORPUS}/queries.parquet' AS asked ON query_id = asked.id
            WHERE doc_id = '' ORDER BY query_id""",
        )
        whole = "retriever NOT LIKE '%@%'"  # not those over a share of the documents
        retrievers = db.sql(f"SELECT DISTINCT retriever FROM '{tables}/retrieved.parquet' WHERE {whole} ORDER BY 1")
        retrievers = [name for (name,) in retrievers.fetchall()]
        ids, contexts, continuations, sources = (
            queries[name].to_numpy().astype(object)
            for name in ("query_id", "context", "continuation", "source_document")
        )
        n_bytes = queries["bytes"].combine_chunks()
        bounds = n_bytes.offsets.to_numpy().astype(np.int64)
        words, own = rarity.words(contexts, continuations, n_bytes.flatten().to_numpy(), np.diff(bounds))
        counted = rarity.frequencies(db, CORPUS / "docs.parquet", words)
    frequency = np.where(own >= 0, counted[own] if len(counted) else 0, UNKNOWN)
    clusters = np.repeat(np.unique(sources, return_inverse=True)[1], np.diff(bounds))  # of each token

    texts, figures = [], {}
    with shards.atomic(OUT) as folder:
        folder.mkdir()
        with pq.ParquetWriter(folder / "tokens.parquet", _tokens_schema(), compression="zstd") as writer:
            for name in retrievers:
                measured = []
                for rows, block, found in _blocks(tables, ids, lm, name, params.replug):
                    part = frequency[bounds[rows.start] : bounds[rows.stop]]
                    writer.write_table(_tokens(lm, name, block, found, continuations[rows], part))
                    texts.append(_texts(lm, name, block, found))
                    real = block.real
                    measured.append(np.stack([-block.closed[real], -found.mixed[real], found.memory[real]], axis=1))
                figures[name] = _figures(np.concatenate(measured), frequency, clusters, params)
        pq.write_table(pa.concat_tables(texts), folder / "texts.parquet", compression="zstd")
    shards.write_json(METRICS, figures)
    return {f"{name}.memory": figure["memory"]["value"] for name, figure in figures.items()}


def _blocks(
    tables: Path, ids: np.ndarray, lm: str, retriever: str, replug
) -> Iterator[tuple[slice, Texts, Attribution]]:
    from pipelines.replug import attribution

    for start in range(0, len(ids), BLOCK):
        rows = slice(start, min(start + BLOCK, len(ids)))
        block = attribution.read(tables, lm, retriever, replug.top_k, ids[rows])
        yield rows, block, attribution.attribute(block, replug.temperature, replug.mixture)


def _tokens_schema() -> pa.Schema:
    import pyarrow as pa

    shares = pa.list_(pa.float32())
    return pa.schema(
        [
            *((name, pa.string()) for name in ("lm", "retriever", "query_id")),
            ("token", pa.int32()),
            ("text", pa.string()),
            ("frequency", pa.int64()),
            *((name, pa.float32()) for name in ("log_prob_none", "log_prob", "memory")),
            *((name, shares) for name in ("documents", "responsibilities")),
        ]
    )


def _tokens(
    lm: str, retriever: str, texts: Texts, found: Attribution, continuations: np.ndarray, frequency: np.ndarray
) -> pa.Table:
    """The block's rows of tokens.parquet; frequency (tokens,)."""
    import numpy as np
    import pyarrow as pa

    from pipelines.replug import attribution

    real = texts.real
    pairs = zip(continuations, texts.bytes, texts.lengths.tolist(), strict=True)
    words = [text for whole, own, n in pairs for text in attribution.token_texts(whole, own[:n])]
    columns = [
        [lm] * len(words),
        [retriever] * len(words),
        np.repeat(texts.ids, texts.lengths),
        np.broadcast_to(np.arange(real.shape[1], dtype=np.int32), real.shape)[real],
        words,
        pa.array(frequency, pa.int64(), mask=frequency == UNKNOWN),
        *(array[real].astype(np.float32) for array in (texts.closed, found.mixed, found.memory)),
        *(_lists(np.moveaxis(array, 1, 2)[real]) for array in (found.documents, found.responsibilities)),
    ]
    return pa.table(columns, schema=_tokens_schema())


def _texts(lm: str, retriever: str, texts: Texts, found: Attribution) -> pa.Table:
    """The block's rows of texts.parquet."""
    import numpy as np
    import pyarrow as pa

    from pipelines.replug.attribution import of_texts

    n, k = texts.doc_ids.shape
    return pa.table(
        {
            "lm": pa.array([lm] * n, pa.string()),
            "retriever": pa.array([retriever] * n, pa.string()),
            "query_id": pa.array(texts.ids, pa.string()),
            "tokens": texts.lengths.astype(np.int32),
            "nats_none": -texts.closed.sum(1),
            "nats": -np.where(texts.real, found.mixed, 0.0).sum(1),
            "memory": of_texts(found.memory, texts).astype(np.float32),
            "documents": _lists(of_texts(found.documents, texts)),
            "weights": _lists(found.weights),
            "doc_ids": pa.ListArray.from_arrays(np.arange(0, n * k + 1, k, np.int32), pa.array(texts.doc_ids.ravel())),
        }
    )


def _lists(shares: np.ndarray) -> pa.ListArray:
    """(rows, k) as a column of lists."""
    import numpy as np
    import pyarrow as pa

    n, k = shares.shape
    return pa.ListArray.from_arrays(np.arange(0, n * k + 1, k, dtype=np.int32), shares.ravel().astype(np.float32))


def _figures(measured: np.ndarray, frequency: np.ndarray, clusters: np.ndarray, params: SimpleNamespace) -> dict:
    """One retriever's figures; measured (tokens, 3): nats without documents and with, and memory's share."""
    import numpy as np

    from pipelines import draws
    from pipelines.evaluation import intervals

    none, nats, memory = measured.T
    bits = {"none": none / np.log(2), "gain": (none - nats) / np.log(2), "memory": memory}

    def mean(values: np.ndarray, own: np.ndarray) -> dict:
        generator = draws.generator(params.seed, "attribution")  # the same resamples for all: comparable
        return intervals.mean(values[own], generator, params.report.bootstrap, clusters[own]).as_json()

    tens = 10 ** np.arange(18)
    place = np.where(frequency >= 0, np.searchsorted(tens, frequency, side="right"), -1)
    rows = []
    for i in np.unique(place[place >= 0]).tolist():
        own = place == i
        least, most = (int(tens[i - 1]), int(tens[i] - 1)) if i else (0, 0)
        rows.append(
            {"least": least, "most": most, "tokens": int(own.sum())}
            | {name: mean(values, own) for name, values in bits.items()}
        )
    return {"memory": mean(memory, np.ones(len(memory), bool)), "by_frequency": rows}


def main() -> None:
    stage.run("attribute", SECTIONS, attribute, out=f"{OUT} and {METRICS}")


if __name__ == "__main__":
    main()
