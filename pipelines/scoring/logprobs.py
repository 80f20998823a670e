"""The log-probability table (REPLUG §3): a language model's log p of each continuation token, by query and document.

Each (query, document) pair is scored once. Every ensemble, control and bits-per-byte figure is computed from the table.
The stage `score_lm` writes these into data/logprobs/<corpus>/<lm>:

logprobs.parquet   lm, query_id, doc_id ("": no document), log_probs and bytes (a list entry per continuation token)
retrieved.parquet  query_id, retriever (bm25, dense, lsr, random; dense@0.1: over that share of the documents), rank
                   (from 1), doc_id, similarity (the documents' weights are a softmax of it; see score_lm.comparable);
                   where fewer documents were found than asked for, doc_id is "" and similarity -inf
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.lm.language_model import LanguageModel, Prompt
from pipelines.retrieval import documents
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.work import workers

if TYPE_CHECKING:
    from pipelines.lm.open_lm import LMWorkers

SHARD = 4096  # pairs scored at once; a killed run resumes after the last whole shard
NONE = -1  # stands for "no document" among positions of documents
TEXT = pa.string()
SCORED = {
    "doc_id": TEXT,
    "log_probs": pa.list_(pa.float32()),
    "bytes": pa.list_(pa.int32()),
}  # "": no document
SCORED_PAIRS = pa.schema({"query": pa.int64(), "document": pa.int64(), **SCORED})
LOGPROBS = pa.schema({"lm": TEXT, "query_id": TEXT, **SCORED})
RETRIEVED = pa.schema(
    {
        "query_id": TEXT,
        "retriever": TEXT,
        "rank": pa.int32(),
        "doc_id": TEXT,
        "similarity": pa.float32(),
    }
)


@dataclass(frozen=True)
class Queries:
    """What the retriever reads, what the language model reads, and what it is to continue with; arrays of str (n,)."""

    ids: np.ndarray
    texts: np.ndarray  # searched with
    contexts: np.ndarray
    continuations: np.ndarray
    document: str  # template of the document in front of the context (retrieval/documents.py)
    shots: (
        np.ndarray
    )  # (n, 2) demonstrations in front of that: with documents of their own, and without any

    def __len__(self) -> int:
        return len(self.ids)

    def prompt(self, row: int, document: str | None) -> Prompt:
        """What the language model reads; `document` is in the template, or None. Demonstrations are cut first."""
        if shots := self.shots[row, int(document is None)]:
            return Prompt(f"{shots}{document or ''}{self.contexts[row]}")
        return Prompt(self.contexts[row], document or "")

    def columns(self) -> tuple[np.ndarray, ...]:
        return self.ids, self.texts, self.contexts, self.continuations, self.shots

    def take(self, rows: np.ndarray) -> Queries:
        *columns, shots = (column[rows] for column in self.columns())
        return Queries(*columns, self.document, shots)

    def and_then(self, other: Queries) -> Queries:
        *columns, shots = map(np.concatenate, zip(self.columns(), other.columns(), strict=True))
        return Queries(*columns, self.document, shots)


def without_shots(n: int) -> np.ndarray:
    """The `shots` of n queries that have no demonstrations."""
    return np.full((n, 2), "", object)


def read_language_modelling(
    corpus: Path, split: str, seed: int, at_most: int
) -> tuple[Queries, np.ndarray, np.ndarray]:
    """Queries of a corpus's split, drawn by hash, with their source_document and source; LongtailError if no file.

    Documents are read without titles, as published: both texts run on.
    """
    if not (path := corpus / "queries.parquet").is_file():
        raise LongtailError(f"{path}: no such file; `dvc repro` runs the stage that writes it")
    query = "SELECT id, context, continuation, source_document, source FROM rows WHERE split = ? ORDER BY id"
    table = database.ask(query, [split], rows=path).to_arrow_table()
    columns = [column.to_numpy(zero_copy_only=False).astype(object) for column in table.columns]
    ids, contexts, continuations, source_documents, sources = columns
    chosen = (
        draws.sample(seed, f"{split} queries", list(ids), at_most)
        if len(ids)
        else np.empty(0, np.int64)
    )
    read = contexts[chosen]
    queries = Queries(
        ids[chosen], read, read, continuations[chosen], "{text}\n", without_shots(len(chosen))
    )
    return queries, source_documents[chosen], sources[chosen]


@dataclass(frozen=True)
class Candidates:
    """A retriever's documents for some queries, best first; empty places hold NONE with similarity -inf."""

    retriever: str  # "dense@0.1": over a share of the documents
    queries: np.ndarray  # (n,) rows, ascending
    positions: np.ndarray  # (n, k) int64
    similarities: np.ndarray  # (n, k)


def unique_pairs(queries: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The distinct (query, document) pairs of queries (n,) and positions (n, any), sorted, (pairs, 2) int64."""
    return np.unique(
        np.stack([np.repeat(queries, positions.shape[1]), positions.ravel()], axis=1), axis=0
    )


def pair_keys(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """One number for each pair, in the pairs' order; for up to 2^27 queries and 2^36 documents."""
    return (queries << 36) + documents + 1


def keys_of(scored: pa.Table) -> np.ndarray:
    """The `pair_keys` of the rows of SCORED_PAIRS."""
    return pair_keys(scored["query"].to_numpy(), scored["document"].to_numpy())


def prompts(queries: Queries, docs: Path, pairs: np.ndarray) -> tuple[list[Prompt], np.ndarray]:
    """What the language model reads for each pair (n, 2) of query and position, and the documents' ids (n,)."""
    with_document = pairs[:, 1] != NONE
    read = documents.read_documents(docs, pairs[with_document, 1])
    ids, texts = np.full(len(pairs), "", object), np.full(len(pairs), None, object)
    ids[with_document], texts[with_document] = read.ids, read.filled(queries.document)
    return [
        queries.prompt(query, text) for query, text in zip(pairs[:, 0], texts, strict=True)
    ], ids


def score_parts(
    stage: str,
    key: str,
    lm: LanguageModel | LMWorkers,
    queries: Queries,
    docs: Path,
    parts: Sequence[np.ndarray],
) -> list[Path]:
    """Score the continuation of each pair: a Parquet file of SCORED_PAIRS for each part, in the order of its pairs.

    A part is an array (n, 2) of query and position or NONE, whose scores are computed together. The files stay under
    (stage, key) until the caller forgets them, so that a killed run scores no part twice.
    """

    def read(part: np.ndarray) -> ScoringInput:
        return ScoringInput(*prompts(queries, docs, part), list(queries.continuations[part[:, 0]]))

    def write_part(part: np.ndarray, scored: pa.Table, path: Path) -> None:
        parquet.write_parquet(pa.table([*part.T, *scored.columns], schema=SCORED_PAIRS), path)

    steps = workers.Steps(read, scored, write_part, ScoringInput.length)
    return workers.map_texts(lm, stage, key, parts, steps, sizes=list(map(len, parts)), unit="pair")


class ScoringInput(NamedTuple):
    """Pairs as a language model scores them."""

    prompts: list[Prompt]
    doc_ids: np.ndarray
    continuations: list[str]

    def length(self) -> int:
        """How many characters there are to read."""
        prompts = sum(len(prompt.document) + len(prompt.context) for prompt in self.prompts)
        return prompts + sum(map(len, self.continuations))


def scored(lm: LanguageModel, asked: ScoringInput) -> pa.Table:
    """The columns of SCORED."""
    scores = lm.score(asked.prompts, asked.continuations)
    bounds = np.concatenate([[0], np.cumsum([len(row) for row in scores.log_probs])]).astype(
        np.int32
    )
    lists = (
        pa.ListArray.from_arrays(bounds, np.concatenate(values))
        for values in (scores.log_probs, scores.bytes)
    )
    return pa.table([pa.array(asked.doc_ids, TEXT), *lists], schema=pa.schema(SCORED))


def sums(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Sum of log p and number of tokens of each row of SCORED_PAIRS, (rows,) float64 and int64."""
    column = table["log_probs"].combine_chunks()
    bounds = column.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(bounds)
    values = np.append(column.values.to_numpy()[: bounds[-1]].astype(np.float64), 0.0)
    # each row is summed by itself: the last digits of a running sum would depend on the rows before
    return np.where(lengths > 0, np.add.reduceat(values, bounds[:-1]), 0.0), lengths


def gather(
    table: pa.Table, queries: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probs (n, k, tokens) float64 and bytes (n, tokens) int64 of queries (n,) with positions (n, k).

    `table` has SCORED_PAIRS. Shorter continuations are filled up with 0.
    """
    n, k = positions.shape
    keys, wanted = keys_of(table), pair_keys(queries[:, None], positions).ravel()
    order = np.argsort(keys)
    assert np.isin(wanted, keys).all(), "a pair was never scored"
    rows = table.select(["log_probs", "bytes"]).take(
        order[np.searchsorted(keys, wanted, sorter=order)]
    )
    log_probs, n_bytes = padded(rows["log_probs"], np.float64), padded(rows["bytes"], np.int64)
    return log_probs.reshape(n, k, -1), n_bytes.reshape(n, k, -1)[:, 0]


def padded(lists: pa.ChunkedArray, dtype: type) -> np.ndarray:
    """Lists of numbers as the rows of one array; shorter lists are filled up with 0."""
    lists = lists.combine_chunks()
    lengths = np.diff(lists.offsets.to_numpy())
    real = np.arange(lengths.max(initial=0)) < lengths[:, None]
    rows = np.zeros(real.shape, dtype)
    rows[real] = lists.flatten().to_numpy()
    return rows


def write_logprobs(
    out: Path,
    lm: str,
    ids: np.ndarray,
    candidates: Sequence[Candidates],
    files: Sequence[Path],
    size: int,
    others: Mapping[str, Sequence[Path]],
) -> None:
    """Write both files of `out`, sorted by (query_id, doc_id) and by (query_id, retriever, rank), atomically.

    `files` hold SCORED_PAIRS of `size` queries each, in order; `ids` (queries,) are sorted. Each of `others` becomes a
    file of that name, a row group for each of its parts.
    """
    with atomic(out) as folder:
        folder.mkdir()
        with (
            parquet.writer(folder / "logprobs.parquet", LOGPROBS) as logprobs,
            parquet.writer(folder / "retrieved.parquet", RETRIEVED) as retrieved,
        ):
            for number, file in enumerate(files):
                scored = parquet.read_parquet(file, schema=SCORED_PAIRS)
                rows = scored["query"].to_numpy()
                columns = [np.full(len(rows), lm, object), ids[rows], *scored.columns[2:]]
                order = [("query_id", "ascending"), ("doc_id", "ascending")]
                logprobs.write_table(pa.table(columns, schema=LOGPROBS).sort_by(order))
                retrieved.write_table(
                    _ranked(candidates, [number * size, (number + 1) * size], ids, scored)
                )
        for name, parts in others.items():
            with parquet.writer(folder / f"{name}.parquet", parquet.schema_of(parts[0])) as writer:
                for part in parts:
                    writer.write_table(parquet.read_parquet(part))


def _ranked(
    candidates: Sequence[Candidates], bounds: list[int], ids: np.ndarray, scored: pa.Table
) -> pa.Table:
    """A row of RETRIEVED for each candidate of the queries in `bounds`; `scored` says which doc_id a position has."""
    keys, doc_ids, parts = (
        keys_of(scored),
        scored["doc_id"].to_numpy(),
        [],
    )  # keys ascend, as the pairs are sorted
    for retrieved in candidates:
        chosen = slice(*np.searchsorted(retrieved.queries, bounds))
        rows, positions = retrieved.queries[chosen], retrieved.positions[chosen]
        n, k = positions.shape
        part = {
            "query_id": np.repeat(ids[rows], k),
            "retriever": np.full(n * k, retrieved.retriever, object),
            "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), n),
            "doc_id": doc_ids[np.searchsorted(keys, pair_keys(rows[:, None], positions).ravel())],
            "similarity": retrieved.similarities[chosen].astype(np.float32).ravel(),
        }
        parts.append(pa.table(part, schema=RETRIEVED))
    return pa.concat_tables(parts).sort_by(
        [(name, "ascending") for name in ("query_id", "retriever", "rank")]
    )


@dataclass(frozen=True)
class ScoredTexts:
    """Scored continuations, ordered by id, with a retriever's documents; places beyond a continuation's end hold 0."""

    ids: np.ndarray  # (n,) str
    bytes: np.ndarray  # (n, tokens) int64
    lengths: np.ndarray  # (n,) tokens
    closed: np.ndarray  # (n, tokens) log p without documents
    log_probs: (
        np.ndarray
    )  # (n, k, tokens) log p with each document; in empty places without documents
    similarities: np.ndarray  # (n, k); -inf in empty places
    doc_ids: np.ndarray  # (n, k) str; "" in empty places

    @property
    def real(self) -> np.ndarray:
        """Which places are tokens, (n, tokens) bool."""
        return np.arange(self.closed.shape[1]) < self.lengths[:, None]


def read_scored_texts(
    tables: Path, size: int, retriever: str | None = None, at_most: int | None = None
) -> Iterator[dict[str, ScoredTexts]]:
    """Yield by retriever, or of one alone, the texts that have its candidates, with `at_most` of them; "none" has all.

    `tables` is a folder of write_logprobs; a block has as many row groups as hold `size` texts.
    """
    logprobs = parquet.row_groups(
        tables / "logprobs.parquet", ["query_id", "doc_id", "log_probs", "bytes"]
    )
    retrieved = parquet.row_groups(tables / "retrieved.parquet")
    groups, n = [], 0
    with duckdb.connect() as db:
        for of_group in zip(logprobs, retrieved, strict=True):  # of the same queries
            groups.append(of_group)
            n += pa.compute.sum(pa.compute.equal(of_group[0]["doc_id"], "")).as_py()
            if n >= size:
                yield _block(db, groups, retriever, at_most)
                groups, n = [], 0
        if groups:
            yield _block(db, groups, retriever, at_most)


def _block(
    db: duckdb.DuckDBPyConnection,
    groups: list[tuple[pa.Table, pa.Table]],
    retriever: str | None,
    at_most: int | None,
) -> dict[str, ScoredTexts]:
    for name, tables in zip(("scored", "candidates"), zip(*groups, strict=True), strict=True):
        db.register(name, pa.concat_tables(tables))
    names, found = [(retriever,)], {}
    if not retriever:
        names = db.sql(
            "SELECT 'none' UNION ALL (SELECT DISTINCT retriever FROM candidates ORDER BY 1)"
        ).fetchall()
    for (name,) in names:
        alone = db.sql(
            """SELECT query_id, log_probs, bytes FROM scored WHERE doc_id = '' AND ($name = 'none' OR query_id IN
            (SELECT query_id FROM candidates WHERE retriever = $name)) ORDER BY query_id""",
            params={"name": name},
        ).to_arrow_table()
        ranked = db.sql(
            """SELECT query_id, rank, doc_id, similarity, log_probs FROM candidates JOIN scored USING (query_id, doc_id)
            WHERE retriever = ? AND rank <= ? ORDER BY query_id, rank""",
            params=[name, at_most or 1 << 30],
        ).to_arrow_table()
        ids, k = (
            alone["query_id"].to_numpy().astype(object),
            pa.compute.max(ranked["rank"]).as_py() or 0,
        )
        closed, n_bytes = padded(alone["log_probs"], np.float64), padded(alone["bytes"], np.int64)
        places = (
            np.searchsorted(ids, ranked["query_id"].to_numpy().astype(object)),
            ranked["rank"].to_numpy() - 1,
        )
        similarities, doc_ids = np.full((len(ids), k), -np.inf), np.full((len(ids), k), "", object)
        similarities[places], doc_ids[places] = (
            ranked["similarity"].to_numpy(),
            ranked["doc_id"].to_numpy(),
        )
        log_probs = np.repeat(closed[:, None], k, axis=1)
        if k:
            log_probs[places] = padded(ranked["log_probs"], np.float64)
        lengths = pa.compute.list_value_length(alone["log_probs"]).to_numpy().astype(np.int64)
        found[name] = ScoredTexts(ids, n_bytes, lengths, closed, log_probs, similarities, doc_ids)
    return found
