"""Stage `attribute`: what the tokens of test queries owe to memory and to documents (REPLUG §9).

It writes data/attribution/<corpus>/tokens.parquet and texts.parquet, by the main language model
with the ensemble of the params' section `replug`. data/metrics/attribution_<corpus>.json has, by
retriever:

- memory, the mean share over all tokens;
- by_<column> of each study, rows of tokens with like numbers: tokens, bits per token without
  documents, bits saved, memory, and the row's share of all bits saved (null unless documents
  clearly save bits).

Intervals are 95 % bootstrap intervals over source documents.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import catalogue, progress
from pipelines.params import params
from pipelines.params.param_types import LMName, Section
from pipelines.replug import responsibility
from pipelines.replug.attribution_figures import UNKNOWN, TokenSums
from pipelines.replug.responsibility import Attribution
from pipelines.scoring.logprob_files import ScoredTexts, read_scored_texts
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

CORPORA = Path("data/corpus")
LOGPROBS = Path("data/logprobs")
OUT = Path("data/attribution")
METRICS = Path("data/metrics")
TEXTS_AT_ONCE = 512  # in memory

# queries, their tokens, and the ids of their documents -> a number for each token, (tokens,)
TokenNumbering = Callable[[slice, slice, np.ndarray], np.ndarray]

_KEY = {"lm": pa.string(), "retriever": pa.string(), "query_id": pa.string()}
_SHARES = pa.list_(pa.float32())
TEXTS = pa.schema(
    {
        **_KEY,
        "tokens": pa.int32(),
        "nats_none": pa.float64(),
        "nats": pa.float64(),
        "memory": pa.float32(),
        "documents": _SHARES,
        "weights": _SHARES,
        "doc_ids": pa.list_(pa.string()),
    }
)


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    seed: int
    compute: params.Compute
    ingest: params.Ingest
    c4: params.C4  # studies read it
    lms: list[LMName]
    replug: params.Replug
    report: params.Report


@dataclass(frozen=True)
class Attributing:
    """What a study of tokens has at hand."""

    settings: Settings
    corpus: str
    docs: Path
    tables: Path  # the folder of logprobs.parquet
    db: duckdb.DuckDBPyConnection
    queries: pa.Table  # context, continuation and bytes of each token, ordered by id
    block: int  # queries in memory at once
    scratch: Path


class TokenStudy(Protocol):
    """A module of pipelines/studies that gives tokens a number, by which figures are shown."""

    COLUMN: pa.Field  # the number's column in tokens.parquet
    EDGES: np.ndarray  # where each row of figures begins, but the first

    def number_tokens(
        self, attributing: Attributing
    ) -> tuple[TokenNumbering | None, dict[str, str]]:
        """The function that numbers a block's tokens, and facts for the metrics."""


@dataclass(frozen=True)
class Block:
    """Some texts with a retriever's documents, attributed."""

    texts: ScoredTexts
    shares: Attribution
    continuations: np.ndarray  # (n,) str
    clusters: np.ndarray  # (n,) numbers of the texts' source documents
    # column of a study -> the number of each token, (tokens,), UNKNOWN for none; None where the
    # study has none at all
    numbers: Mapping[str, np.ndarray | None]


def tokens_schema(studies: Sequence[TokenStudy]) -> pa.Schema:
    """The columns of tokens.parquet, with those of studies."""
    return pa.schema(
        {
            **_KEY,
            "token": pa.int32(),
            "text": pa.string(),
            **{study.COLUMN.name: study.COLUMN.type for study in studies},
            "log_prob_none": pa.float32(),
            "log_prob": pa.float32(),
            "memory": pa.float32(),
            "documents": _SHARES,
            "responsibilities": _SHARES,
        }
    )


def attribute_corpus(
    settings: Settings, corpus: str, studies: Sequence[TokenStudy] = ()
) -> stage.Metrics:
    """Attribute every scored continuation of a corpus, for every retriever.

    Writes the tables and the metrics.
    """
    lm = settings.lms[0]
    tables = LOGPROBS / corpus / lm
    schema = tokens_schema(studies)
    edges = {f"by_{study.COLUMN.name}": study.EDGES for study in studies}
    numberings = {}  # column of a study -> its TokenNumbering, or None
    facts: dict[str, str] = {}  # of studies, for the metrics
    figures = {}
    with atomic(OUT / corpus) as folder:
        folder.mkdir()
        with database.connect(settings.ingest.memory_gb, settings.compute.threads) as db:
            database.view(db, "logprobs", tables / "logprobs.parquet")
            database.view(db, "retrieved", tables / "retrieved.parquet")
            retrievers = _retrievers(db)
            queries = _scored_queries(db, corpus, folder.parent)
            attributing = Attributing(
                settings=settings,
                corpus=corpus,
                docs=CORPORA / corpus / "docs.parquet",
                tables=tables,
                db=db,
                queries=queries,
                block=TEXTS_AT_ONCE,
                scratch=folder.parent,
            )
            for study in studies:
                numbering, facts_of_study = study.number_tokens(attributing)
                numberings[study.COLUMN.name] = numbering
                facts |= facts_of_study

        sources = queries["source_document"].to_numpy().astype(object)
        distinct_sources, clusters = np.unique(sources, return_inverse=True)
        with (
            parquet.writer(folder / "tokens.parquet", schema) as token_rows,
            database.row_group_writer(folder / "texts.parquet", TEXTS) as add_text_rows,
            progress.bar(f"attribute@{corpus}", len(retrievers) * len(queries), "text") as bar,
        ):
            for retriever in retrievers:
                sums = TokenSums(len(distinct_sources), edges)
                for block in _blocks(
                    tables,
                    retriever,
                    queries=queries,
                    clusters=clusters,
                    numberings=numberings,
                    replug=settings.replug,
                ):
                    token_rows.write_table(_tokens(lm, retriever, block, schema))
                    add_text_rows(_texts(lm, retriever, block))
                    _add_block(sums, block)
                    bar.update(len(block.texts.ids))
                figures[retriever] = sums.figures(settings.seed, settings.report.bootstrap) | facts
    write_json(METRICS / f"attribution_{corpus}.json", figures)
    return {f"{name}.memory": figure["memory"]["value"] for name, figure in figures.items()}


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
    clusters: np.ndarray,
    numberings: Mapping[str, TokenNumbering | None],
    replug: params.Replug,
) -> Iterator[Block]:
    """The texts with a retriever's documents, in the order of `queries`."""
    lengths = pc.list_value_length(queries["bytes"]).to_numpy()
    bounds = np.append(0, np.cumsum(lengths, dtype=np.int64))  # of each query's tokens
    start = 0
    for texts_of_names in read_scored_texts(tables, TEXTS_AT_ONCE, retriever, replug.top_k):
        texts = texts_of_names[retriever]
        stop = start + len(texts.ids)
        ids = queries["query_id"][start:stop].to_pylist()
        assert ids == list(texts.ids), "data/logprobs is of others"

        rows = slice(start, stop)
        tokens = slice(bounds[start], bounds[stop])
        numbers = {}
        for column, numbering in numberings.items():
            numbers[column] = numbering and numbering(rows, tokens, texts.doc_ids)
        yield Block(
            texts=texts,
            shares=responsibility.attribute_tokens(texts, replug.temperature, replug.mixture),
            continuations=queries["continuation"][start:stop].to_numpy(),
            clusters=clusters[rows],
            numbers=numbers,
        )
        start = stop


def _add_block(sums: TokenSums, block: Block) -> None:
    texts = block.texts
    real = texts.real
    sums.add(
        nats_none=-texts.closed[real],
        nats=-block.shares.mixed[real],
        memory=block.shares.memory[real],
        numbers={f"by_{column}": numbers for column, numbers in block.numbers.items()},
        clusters=np.repeat(block.clusters, texts.lengths),
    )


def _tokens(lm: str, retriever: str, block: Block, schema: pa.Schema) -> pa.Table:
    """The rows of tokens.parquet for a block."""
    texts = block.texts
    shares = block.shares
    real = texts.real
    n_tokens = int(texts.lengths.sum())
    numbers_in_text = np.broadcast_to(np.arange(real.shape[1], dtype=np.int32), real.shape)
    token_texts = []
    rows = zip(block.continuations, texts.bytes, texts.lengths.tolist(), strict=True)
    for continuation, n_bytes, length in rows:
        token_texts += responsibility.token_texts(continuation, n_bytes[:length])

    columns = {
        "lm": [lm] * n_tokens,
        "retriever": [retriever] * n_tokens,
        "query_id": np.repeat(texts.ids, texts.lengths),
        "token": numbers_in_text[real],
        "text": token_texts,
        "log_prob_none": texts.closed[real].astype(np.float32),
        "log_prob": shares.mixed[real].astype(np.float32),
        "memory": shares.memory[real].astype(np.float32),
        "documents": _lists(np.moveaxis(shares.documents, 1, 2)[real]),
        "responsibilities": _lists(np.moveaxis(shares.responsibilities, 1, 2)[real]),
    }
    for column, numbers in block.numbers.items():
        column_type = schema.field(column).type
        if numbers is None:
            columns[column] = pa.nulls(n_tokens, column_type)
        else:
            columns[column] = pa.array(numbers, column_type, mask=numbers == UNKNOWN)
    return pa.table(columns, schema=schema)


def _texts(lm: str, retriever: str, block: Block) -> pa.Table:
    """The rows of texts.parquet for a block."""
    texts = block.texts
    shares = block.shares
    n, k = texts.doc_ids.shape
    bounds = np.arange(0, n * k + 1, k, dtype=np.int32)
    memory = responsibility.means_over_tokens(shares.memory, texts)
    columns = {
        "lm": [lm] * n,
        "retriever": [retriever] * n,
        "query_id": texts.ids,
        "tokens": texts.lengths.astype(np.int32),
        "nats_none": -texts.closed.sum(1),
        "nats": -np.where(texts.real, shares.mixed, 0.0).sum(1),
        "memory": memory.astype(np.float32),
        "documents": _lists(responsibility.means_over_tokens(shares.documents, texts)),
        "weights": _lists(shares.weights),
        "doc_ids": pa.ListArray.from_arrays(bounds, pa.array(texts.doc_ids.ravel())),
    }
    return pa.table(columns, schema=TEXTS)


def _lists(shares: np.ndarray) -> pa.ListArray:
    """Shares (rows, k) as a column of lists."""
    n, k = shares.shape
    bounds = np.arange(0, n * k + 1, k, dtype=np.int32)
    return pa.ListArray.from_arrays(bounds, shares.ravel().astype(np.float32))


def main(studies: Sequence[TokenStudy]) -> None:
    """Run the stage on the corpus that the command line names."""
    corpus = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus

    def work(settings: Settings) -> stage.Metrics:
        return attribute_corpus(settings, corpus, studies)

    stage.run(f"attribute@{corpus}", Settings, work, out=str(OUT / corpus))
