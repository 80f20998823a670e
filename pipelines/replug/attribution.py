"""Stage `attribute`: what the tokens of test queries owe to memory and to documents (REPLUG §9).

It writes data/attribution/<corpus>/tokens.parquet and texts.parquet, by the main language model
with the ensemble of the params' section `replug`. data/metrics/attribution_<corpus>.json has, by
retriever:

- memory, the mean share over all tokens;
- by_frequency, rows of tokens whose words are equally frequent (word_frequency.py): tokens, bits
  per token without documents, bits saved, memory, and the row's share of all bits saved (null
  unless documents clearly save bits);
- counted_in, where words were counted: C4, or the corpus.

Intervals are 95 % bootstrap intervals over source documents.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import catalogue, progress
from pipelines.params import params
from pipelines.params.param_types import LMName, Section
from pipelines.replug import responsibility, word_frequency
from pipelines.replug.attribution_figures import TokenSums
from pipelines.replug.responsibility import Attribution
from pipelines.replug.word_frequency import UNKNOWN
from pipelines.scoring.logprob_files import ScoredTexts, read_scored_texts
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.tables.language_modelling import TEXTS, TOKENS
from pipelines.work import stage

CORPORA = Path("data/corpus")
LOGPROBS = Path("data/logprobs")
OUT = Path("data/attribution")
METRICS = Path("data/metrics")
TEXTS_AT_ONCE = 512  # in memory


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    compute: params.Compute
    ingest: params.Ingest
    c4: params.C4
    lms: list[LMName]
    replug: params.Replug
    report: params.Report


@dataclass(frozen=True)
class Block:
    """Some texts with a retriever's documents, attributed."""

    texts: ScoredTexts
    shares: Attribution
    continuations: np.ndarray  # (n,) str
    clusters: np.ndarray  # (n,) numbers of the texts' source documents
    frequency: np.ndarray  # of each token's word, (tokens,); UNKNOWN for a token without a word


def attribute_corpus(settings: Settings, corpus: str) -> stage.Metrics:
    """Attribute every scored continuation of a corpus, for every retriever.

    Writes the tables and the metrics.
    """
    tables = LOGPROBS / corpus / settings.lms[0]
    docs = CORPORA / corpus / "docs.parquet"
    figures = {}
    with atomic(OUT / corpus) as folder:
        folder.mkdir()
        scratch = folder.parent
        with database.connect(settings.ingest.memory_gb, settings.compute.threads) as db:
            database.view(db, "logprobs", tables / "logprobs.parquet")
            database.view(db, "retrieved", tables / "retrieved.parquet")
            retrievers = _retrievers(db)
            queries = _scored_queries(db, corpus, scratch)
            frequency, in_c4 = word_frequency.count_words(
                db, queries, docs, settings.c4, settings.seed, scratch
            )

        sources = queries["source_document"].to_numpy().astype(object)
        source_documents, clusters = np.unique(sources, return_inverse=True)
        n_texts = len(retrievers) * len(queries)
        with (
            parquet.writer(folder / "tokens.parquet", TOKENS.schema) as token_rows,
            database.row_group_writer(folder / "texts.parquet", TEXTS.schema) as add_text_rows,
            progress.bar(f"attribute@{corpus}", n_texts, "text") as bar,
        ):
            for retriever in retrievers:
                sums = TokenSums(len(source_documents))
                for block in _blocks(
                    tables, retriever, queries, frequency, clusters, settings.replug
                ):
                    key = {"lm": settings.lms[0], "retriever": retriever}
                    token_rows.write_table(_tokens(key, block))
                    add_text_rows(_texts(key, block))
                    _add_block(sums, block)
                    bar.update(len(block.texts.ids))
                figures[retriever] = sums.figures(settings.seed, settings.report.bootstrap)
                figures[retriever]["counted_in"] = "c4" if in_c4 else corpus

    write_json(METRICS / f"attribution_{corpus}.json", figures)
    logged = {}
    for retriever, figures_of_retriever in figures.items():
        logged[f"{retriever}.memory"] = figures_of_retriever["memory"]["value"]
    return logged


def _retrievers(db: duckdb.DuckDBPyConnection) -> list[str]:
    """The retrievers of the table `retrieved`, without those over a share of the documents."""
    rows = db.sql(
        "SELECT DISTINCT retriever FROM retrieved WHERE retriever NOT LIKE '%@%' ORDER BY 1"
    ).fetchall()
    return [retriever for (retriever,) in rows]


def _scored_queries(db: duckdb.DuckDBPyConnection, corpus: str, scratch: Path) -> pa.Table:
    """The queries of the table `logprobs`, ordered by id, mapped from a file in `scratch`."""
    database.view(db, "queries", CORPORA / corpus / "queries.parquet")
    rows = db.sql(
        """SELECT query_id, context, continuation, source_document, bytes
        FROM logprobs JOIN queries ON query_id = queries.id
        WHERE doc_id = '' ORDER BY query_id"""
    ).to_arrow_reader(TEXTS_AT_ONCE)
    return database.mapped(scratch / "queries", rows.schema, rows)


def _blocks(
    tables: Path,
    retriever: str,
    queries: pa.Table,
    frequency: pa.ChunkedArray,
    clusters: np.ndarray,
    replug: params.Replug,
) -> Iterator[Block]:
    """The texts with a retriever's documents, in the order of the queries.

    `frequency` (tokens,) is of all queries' tokens. `clusters` (queries,) are numbers of the
    queries' source documents.
    """
    lengths = pc.list_value_length(queries["bytes"]).to_numpy()
    bounds = np.append(0, np.cumsum(lengths, dtype=np.int64))  # of each query's tokens
    start = 0
    for by_retriever in read_scored_texts(tables, TEXTS_AT_ONCE, retriever, replug.top_k):
        texts = by_retriever[retriever]
        stop = start + len(texts.ids)
        rows = slice(start, stop)
        ids = queries["query_id"][rows].to_pylist()
        assert ids == list(texts.ids), "data/logprobs is of other queries"

        tokens = slice(bounds[start], bounds[stop])
        shares = responsibility.attribute_tokens(texts, replug.temperature, replug.mixture)
        continuations = queries["continuation"][rows].to_numpy()
        yield Block(
            texts=texts,
            shares=shares,
            continuations=continuations,
            clusters=clusters[rows],
            frequency=frequency[tokens].to_numpy(),
        )
        start = stop


def _add_block(sums: TokenSums, block: Block) -> None:
    texts = block.texts
    shares = block.shares
    is_token = texts.is_token
    clusters = np.repeat(block.clusters, texts.lengths)
    sums.add(
        nats_without=-texts.log_probs_alone[is_token],
        nats=-shares.mixed[is_token],
        memory=shares.memory[is_token],
        frequency=block.frequency,
        clusters=clusters,
    )


def _tokens(key: Mapping[str, str], block: Block) -> pa.Table:
    """The rows of tokens.parquet for a block, with the language model and retriever of `key`."""
    texts = block.texts
    shares = block.shares
    is_token = texts.is_token
    n_tokens = int(texts.lengths.sum())
    numbers_in_text = np.arange(is_token.shape[1], dtype=np.int32)
    columns: dict[str, Any] = {}
    for name, value in key.items():
        columns[name] = [value] * n_tokens
    columns["query_id"] = np.repeat(texts.ids, texts.lengths)
    columns["token"] = np.broadcast_to(numbers_in_text, is_token.shape)[is_token]
    columns["text"] = _texts_of_tokens(block)
    columns["log_prob_none"] = texts.log_probs_alone[is_token].astype(np.float32)
    columns["log_prob"] = shares.mixed[is_token].astype(np.float32)
    columns["memory"] = shares.memory[is_token].astype(np.float32)
    documents = shares.documents.swapaxes(1, 2)  # (n, tokens, k), as is_token has them
    responsibilities = shares.responsibilities.swapaxes(1, 2)
    columns["documents"] = _lists(documents[is_token])
    columns["responsibilities"] = _lists(responsibilities[is_token])
    has_no_word = block.frequency == UNKNOWN
    columns["frequency"] = pa.array(block.frequency, pa.int64(), mask=has_no_word)
    return pa.table(columns, schema=TOKENS.schema)


def _texts_of_tokens(block: Block) -> list[str]:
    """The text of each token of a block."""
    texts = block.texts
    token_texts = []
    rows = zip(block.continuations, texts.bytes, texts.lengths.tolist(), strict=True)
    for continuation, n_bytes, length in rows:
        token_texts += responsibility.token_texts(continuation, n_bytes[:length])
    return token_texts


def _texts(key: Mapping[str, str], block: Block) -> pa.Table:
    """The rows of texts.parquet for a block, with the language model and retriever of `key`."""
    texts = block.texts
    shares = block.shares
    n, k = texts.doc_ids.shape
    memory = responsibility.means_over_tokens(shares.memory, texts)
    doc_ids = pa.array(texts.doc_ids.ravel())
    columns: dict[str, Any] = {}
    for name, value in key.items():
        columns[name] = [value] * n
    columns["query_id"] = texts.ids
    columns["tokens"] = texts.lengths.astype(np.int32)
    columns["nats_none"] = -texts.log_probs_alone.sum(1)
    columns["nats"] = -np.where(texts.is_token, shares.mixed, 0.0).sum(1)
    columns["memory"] = memory.astype(np.float32)
    columns["documents"] = _lists(responsibility.means_over_tokens(shares.documents, texts))
    columns["weights"] = _lists(shares.weights)
    columns["doc_ids"] = pa.ListArray.from_arrays(_bounds(n, k), doc_ids)
    return pa.table(columns, schema=TEXTS.schema)


def _lists(shares: np.ndarray) -> pa.ListArray:
    """Shares (rows, k) as a column of lists."""
    values = shares.ravel().astype(np.float32)
    return pa.ListArray.from_arrays(_bounds(*shares.shape), values)


def _bounds(n: int, k: int) -> np.ndarray:
    """Where n lists of k values begin and end, (n + 1,) int32."""
    return np.arange(0, n * k + 1, k, dtype=np.int32)


def main() -> None:
    """Run the stage on the corpus that the command line names."""
    corpus = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    stage.run(
        f"attribute@{corpus}",
        Settings,
        lambda settings: attribute_corpus(settings, corpus),
        out=str(OUT / corpus),
    )


if __name__ == "__main__":
    main()
