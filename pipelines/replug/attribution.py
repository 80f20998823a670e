"""Stage `attribute`: what each token and text of the test queries owes to memory and to each document (REPLUG §9, B).

It writes data/attribution/<corpus>/tokens.parquet and texts.parquet, by the main language model with the ensemble of
the params' section `replug`, and data/metrics/attribution_<corpus>.json, by retriever: memory, the mean share over all
tokens; by_<column> of each study, rows of tokens with like numbers: tokens, bits per token without documents, bits
saved, memory, and the row's share of all bits saved (null unless documents clearly save bits). Intervals are 95 %
bootstrap intervals over source documents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import catalogue, draws, intervals, progress
from pipelines.intervals import NOTHING
from pipelines.replug import responsibility
from pipelines.replug.responsibility import Attribution
from pipelines.scoring.logprobs import ScoredTexts, read_scored_texts
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

CORPORA = Path("data/corpus")
LOGPROBS = Path("data/logprobs")
OUT = Path("data/attribution")
METRICS = Path("data/metrics")
SECTIONS = ("seed", "compute", "ingest", "c4", "lms", "replug", "report")
BLOCK = 512  # texts in memory at once
UNKNOWN = -1  # a study's number of a token of which it knows none
NAMES = (
    "tokens",
    "none",
    "gain",
    "memory",
)  # what is summed: tokens, bits without documents, bits saved, memory's share
OfTokens = Callable[
    [slice, slice, np.ndarray], np.ndarray
]  # queries, their tokens, ids of documents -> (tokens,)
_KEY = dict.fromkeys(("lm", "retriever", "query_id"), pa.string())
_SHARES = pa.list_(pa.float32())
TEXTS = pa.schema(
    _KEY
    | {
        "tokens": pa.int32(),
        "nats_none": pa.float64(),
        "nats": pa.float64(),
        "memory": pa.float32(),
    }
    | {"documents": _SHARES, "weights": _SHARES, "doc_ids": pa.list_(pa.string())}
)


@dataclass(frozen=True)
class Attributing:
    """What a study of tokens has at hand."""

    params: SimpleNamespace
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

    def number_tokens(self, of: Attributing) -> tuple[OfTokens | None, dict[str, str]]:
        """The function that numbers a block's tokens, and facts for the metrics."""


def tokens_schema(studies: Sequence[TokenStudy]) -> pa.Schema:
    """The columns of tokens.parquet, with those of studies."""
    return pa.schema(
        _KEY
        | {"token": pa.int32(), "text": pa.string()}
        | {study.COLUMN.name: study.COLUMN.type for study in studies}
        | dict.fromkeys(("log_prob_none", "log_prob", "memory"), pa.float32())
        | {"documents": _SHARES, "responsibilities": _SHARES}
    )


def attribute_corpus(
    params: SimpleNamespace, corpus: str, studies: Sequence[TokenStudy] = ()
) -> stage.Metrics:
    """Attribute every scored continuation of a corpus, for every retriever; write the tables and the metrics."""
    lm, tables, replug = params.lms[0], LOGPROBS / corpus / params.lms[0], params.replug
    schema = tokens_schema(studies)
    edges = {"all": ()} | {f"by_{study.COLUMN.name}": study.EDGES for study in studies}
    docs, figures, of_study, facts = CORPORA / corpus / "docs.parquet", {}, {}, {}
    with atomic(OUT / corpus) as folder:
        folder.mkdir()
        with database.connect(params.ingest.memory_gb, params.compute.threads) as db:
            for name in ("logprobs", "retrieved"):
                database.view(db, name, tables / f"{name}.parquet")
            retrievers = db.sql(  # without those over a share of the documents
                "SELECT DISTINCT retriever FROM retrieved WHERE retriever NOT LIKE '%@%' ORDER BY 1"
            ).fetchall()
            database.view(db, "queries", CORPORA / corpus / "queries.parquet")
            rows = db.sql(
                """SELECT query_id, context, continuation, source_document, bytes
                FROM logprobs JOIN queries ON query_id = queries.id
                WHERE doc_id = '' ORDER BY query_id"""
            ).to_arrow_reader(BLOCK)
            queries = database.mapped(folder.parent / "queries", rows.schema, rows)
            bounds = np.append(
                0, np.cumsum(pc.list_value_length(queries["bytes"]).to_numpy(), dtype=np.int64)
            )
            for study in studies:
                at_hand = Attributing(
                    params, corpus, docs, tables, db, queries, BLOCK, folder.parent
                )
                of_study[study.COLUMN.name], of_all = study.number_tokens(at_hand)
                facts |= of_all
        clusters = np.unique(
            queries["source_document"].to_numpy().astype(object), return_inverse=True
        )[1]
        with (
            parquet.writer(folder / "tokens.parquet", schema) as token_rows,
            database.row_group_writer(folder / "texts.parquet", TEXTS) as add_text_rows,
            progress.bar(f"attribute@{corpus}", len(retrievers) * len(queries), "text") as bar,
        ):
            for (name,) in retrievers:
                sums, start = _Sums(clusters.max(initial=-1) + 1, edges), 0
                for by_retriever in read_scored_texts(tables, BLOCK, name, replug.top_k):
                    block = by_retriever[name]
                    stop = start + len(block.ids)
                    assert queries["query_id"][start:stop].to_pylist() == list(block.ids), (
                        "data/logprobs is of others"
                    )
                    shares = responsibility.attribute_tokens(
                        block, replug.temperature, replug.mixture
                    )
                    continuations = queries["continuation"][start:stop].to_numpy()
                    asked = slice(start, stop), slice(bounds[start], bounds[stop]), block.doc_ids
                    numbers = {
                        column: of_block and of_block(*asked)
                        for column, of_block in of_study.items()
                    }
                    token_rows.write_table(
                        _tokens(lm, name, block, shares, continuations, numbers, schema)
                    )
                    add_text_rows(_texts(lm, name, block, shares))
                    real = block.real
                    none, nats, memory = (
                        -block.closed[real],
                        -shares.mixed[real],
                        shares.memory[real],
                    )
                    places = {
                        f"by_{column}": known
                        for column, known in numbers.items()
                        if known is not None
                    }
                    sums.add(
                        none, nats, memory, places, np.repeat(clusters[start:stop], block.lengths)
                    )
                    start = stop
                    bar.update(len(block.ids))
                figures[name] = sums.figures(params) | facts
    write_json(METRICS / f"attribution_{corpus}.json", figures)
    return {f"{name}.memory": figure["memory"]["value"] for name, figure in figures.items()}


def _tokens(
    lm: str,
    retriever: str,
    texts: ScoredTexts,
    shares: Attribution,
    continuations: np.ndarray,
    numbers: Mapping[str, np.ndarray | None],
    schema: pa.Schema,
) -> pa.Table:
    """The rows of tokens.parquet for a block; `numbers` are those of studies, (tokens,), None where not known."""
    real = texts.real
    rows = zip(continuations, texts.bytes, texts.lengths.tolist(), strict=True)
    tokens = [
        token
        for text, n_bytes, n in rows
        for token in responsibility.token_texts(text, n_bytes[:n])
    ]
    columns = [
        *([name] * len(tokens) for name in (lm, retriever)),
        np.repeat(texts.ids, texts.lengths),
        np.broadcast_to(np.arange(real.shape[1], dtype=np.int32), real.shape)[real],
        tokens,
        *(
            pa.nulls(len(tokens), kind) if of is None else pa.array(of, kind, mask=of == UNKNOWN)
            for of, kind in ((of, schema.field(name).type) for name, of in numbers.items())
        ),
        *(array[real].astype(np.float32) for array in (texts.closed, shares.mixed, shares.memory)),
        *(
            _lists(np.moveaxis(array, 1, 2)[real])
            for array in (shares.documents, shares.responsibilities)
        ),
    ]
    return pa.table(columns, schema=schema)


def _texts(lm: str, retriever: str, texts: ScoredTexts, shares: Attribution) -> pa.Table:
    """The rows of texts.parquet for a block."""
    n, k = texts.doc_ids.shape
    columns = [
        *([name] * n for name in (lm, retriever)),
        texts.ids,
        texts.lengths.astype(np.int32),
        -texts.closed.sum(1),
        -np.where(texts.real, shares.mixed, 0.0).sum(1),
        responsibility.of_texts(shares.memory, texts).astype(np.float32),
        _lists(responsibility.of_texts(shares.documents, texts)),
        _lists(shares.weights),
        pa.ListArray.from_arrays(
            np.arange(0, n * k + 1, k, np.int32), pa.array(texts.doc_ids.ravel())
        ),
    ]
    return pa.table(columns, schema=TEXTS)


def _lists(shares: np.ndarray) -> pa.ListArray:
    """Shares (rows, k) as a column of lists."""
    n, k = shares.shape
    return pa.ListArray.from_arrays(
        np.arange(0, n * k + 1, k, dtype=np.int32), shares.ravel().astype(np.float32)
    )


class _Sums:
    """Sums over tokens for the figures of one retriever, by source document: of all tokens, and in rows.

    `edges` say where each row begins, but the first; "all" has one row.
    """

    def __init__(self, clusters: int, edges: Mapping[str, Sequence[int]]) -> None:
        self._edges = edges
        self._of = {
            by: np.zeros((len(NAMES), len(bounds) + 1, clusters)) for by, bounds in edges.items()
        }

    def add(
        self,
        none: np.ndarray,
        nats: np.ndarray,
        memory: np.ndarray,
        by: dict[str, np.ndarray],
        clusters: np.ndarray,
    ) -> None:
        """Add tokens (tokens,): nats without documents and with them, memory, what rows go by, source document."""
        values = {
            "tokens": np.ones(len(none)),
            "none": none / np.log(2),
            "gain": (none - nats) / np.log(2),
        }
        values |= {"memory": memory}
        for name, of_tokens in ({"all": 0 * clusters} | by).items():
            known, sums = of_tokens != UNKNOWN, self._of[name]
            rows = np.searchsorted(self._edges[name], of_tokens[known], side="right")
            places = rows * sums.shape[2] + clusters[known]
            for number, value in enumerate(NAMES):
                np.add.at(
                    sums[number].ravel(), places, values[value][known]
                )  # token after token, in any blocks

    def figures(self, params: SimpleNamespace) -> dict:
        """The retriever's part of the metrics."""

        def ratio(sums: np.ndarray, to: np.ndarray, drawn: np.ndarray) -> dict:
            generator = draws.generator(
                params.seed, "attribution"
            )  # all means have the same resamples: comparable
            columns = np.stack([sums, to], axis=1)[drawn]
            return intervals.bootstrap(
                columns, intervals.ratio, generator, params.report.bootstrap
            ).as_json()

        n_tokens, _, saved, memory = self._of.pop("all")[:, 0]
        clearly = (
            ratio(saved, n_tokens, n_tokens > 0)["low"] or 0
        ) > 0  # a share of nothing, or of a loss, is nothing
        found = {"memory": ratio(memory, n_tokens, n_tokens > 0)}
        for by, sums in self._of.items():
            bounds, found[by] = [0, *(int(edge) for edge in self._edges[by]), None], []
            for (least, end), (tokens, *others) in zip(
                pairwise(bounds), sums.swapaxes(0, 1), strict=True
            ):
                if not tokens.any():
                    continue
                row = {
                    "least": least,
                    "most": end if end is None else end - 1,
                    "tokens": int(tokens.sum()),
                }
                row |= {
                    name: ratio(values, tokens, tokens > 0)
                    for name, values in zip(NAMES[1:], others, strict=True)
                }
                share = ratio(others[1], saved, n_tokens > 0) if clearly else NOTHING.as_json()
                found[by].append(row | {"share_of_gain": share})
        return found


def main(studies: Sequence[TokenStudy]) -> None:
    """Run the stage on the corpus that the command line names."""
    corpus = stage.arguments(__doc__, corpus=catalogue.names("documents")).corpus
    stage.run(
        f"attribute@{corpus}",
        SECTIONS,
        lambda params: attribute_corpus(params, corpus, studies),
        out=str(OUT / corpus),
    )
