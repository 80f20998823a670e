"""The files of the log-probability table, which the stage `score_lm` writes.

data/logprobs/<corpus>/<lm> has these files:

logprobs.parquet   lm, query_id, doc_id ("": no document), log_probs and bytes (a list entry for
                   each continuation token)
retrieved.parquet  query_id, retriever (bm25, dense, lsr, random; dense@0.1: over that share of the
                   documents), rank (from 1), doc_id, similarity (the documents' weights are a
                   softmax of it; see candidates.comparable); where there were fewer documents than
                   asked for, doc_id is "" and similarity -inf
controls.parquet   the scores of the ensemble's controls (controls.py)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.scoring.logprobs import (
    SCORED_PAIRS,
    Candidates,
    keys_of,
    padded,
    pair_keys,
)
from pipelines.storage import parquet
from pipelines.storage.atomic import atomic
from pipelines.tables.language_modelling import CONTROLS, LOGPROBS, RETRIEVED, SCORED

ALL_RANKS = 1 << 30  # more than a query has candidates
Groups = list[tuple[pa.Table, pa.Table]]  # row groups of LOGPROBS and RETRIEVED of the same queries


def write_logprobs(
    out: Path,
    lm: str,
    ids: np.ndarray,
    candidates: Sequence[Candidates],
    files: Sequence[Path],
    size: int,
    controls: Sequence[Path],
) -> None:
    """Write the files of `out` atomically.

    They are sorted by (query_id, doc_id), and by (query_id, retriever, rank). `files` hold
    SCORED_PAIRS of `size` queries each, in order; `ids` (queries,) are sorted. `controls` hold
    CONTROLS, and each becomes a row group.
    """
    with atomic(out) as folder:
        folder.mkdir()
        with (
            parquet.writer(folder / "logprobs.parquet", LOGPROBS.schema) as logprobs,
            parquet.writer(folder / "retrieved.parquet", RETRIEVED.schema) as retrieved,
        ):
            for number, file in enumerate(files):
                scored = parquet.read_parquet(file, schema=SCORED_PAIRS)
                logprobs.write_table(_logprobs(lm, ids, scored))
                bounds = [number * size, (number + 1) * size]
                retrieved.write_table(_ranked(candidates, bounds, ids, scored))

        with parquet.writer(folder / "controls.parquet", CONTROLS.schema) as writer:
            for file in controls:
                writer.write_table(parquet.read_parquet(file, schema=CONTROLS.schema))


def _logprobs(lm: str, ids: np.ndarray, scored: pa.Table) -> pa.Table:
    """The rows of LOGPROBS of scored pairs."""
    query_ids = ids[scored["query"].to_numpy()]
    columns: dict[str, Any] = {column.name: scored[column.name] for column in SCORED}
    columns["lm"] = [lm] * len(query_ids)
    columns["query_id"] = query_ids
    table = pa.table(columns, schema=LOGPROBS.schema)
    return table.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])


def _ranked(
    candidates: Sequence[Candidates], bounds: list[int], ids: np.ndarray, scored: pa.Table
) -> pa.Table:
    """A row of RETRIEVED for each candidate of the queries in `bounds`.

    `scored` says which doc_id a position has.
    """
    keys = keys_of(scored)  # they ascend, as the pairs are sorted
    doc_ids = scored["doc_id"].to_numpy()
    parts = []
    for retrieved in candidates:
        first, stop = np.searchsorted(retrieved.queries, bounds)
        rows = retrieved.queries[first:stop]
        positions = retrieved.positions[first:stop]
        similarities = retrieved.similarities[first:stop]
        n, k = positions.shape
        wanted = pair_keys(rows[:, None], positions).ravel()
        places = np.searchsorted(keys, wanted)
        ranks = np.arange(1, k + 1, dtype=np.int32)
        columns = {
            "query_id": np.repeat(ids[rows], k),
            "retriever": [retrieved.retriever] * (n * k),
            "rank": np.tile(ranks, n),
            "doc_id": doc_ids[places],
            "similarity": similarities.astype(np.float32).ravel(),
        }
        parts.append(pa.table(columns, schema=RETRIEVED.schema))
    order = [("query_id", "ascending"), ("retriever", "ascending"), ("rank", "ascending")]
    return pa.concat_tables(parts).sort_by(order)


@dataclass(frozen=True)
class ScoredTexts:
    """Scored continuations, ordered by id, with a retriever's documents.

    Places beyond a continuation's end hold 0.
    """

    ids: np.ndarray  # (n,) str
    bytes: np.ndarray  # (n, tokens) int64
    lengths: np.ndarray  # (n,) tokens
    log_probs_alone: np.ndarray  # (n, tokens) log p without documents
    # (n, k, tokens) log p with each document; in empty places without documents
    log_probs: np.ndarray
    similarities: np.ndarray  # (n, k); -inf in empty places
    doc_ids: np.ndarray  # (n, k) str; "" in empty places

    @property
    def is_token(self) -> np.ndarray:
        """Which places are tokens, (n, tokens) bool."""
        places = np.arange(self.log_probs_alone.shape[1])
        return places < self.lengths[:, None]


def read_scored_texts(
    tables: Path, size: int, retriever: str | None = None, at_most: int | None = None
) -> Iterator[dict[str, ScoredTexts]]:
    """Yield blocks of texts by retriever, or of one retriever alone.

    They are the texts that have the retriever's candidates, with `at_most` of these; "none" has all
    texts. `tables` is a folder of write_logprobs. A block has as many row groups as hold `size`
    texts.
    """
    columns = ["query_id", "doc_id", "log_probs", "bytes"]
    logprobs = parquet.row_groups(tables / "logprobs.parquet", columns)
    retrieved = parquet.row_groups(tables / "retrieved.parquet")
    groups: Groups = []
    n_texts = 0
    with duckdb.connect() as db:
        for scored, candidates in zip(logprobs, retrieved, strict=True):
            groups.append((scored, candidates))
            without_document = pc.equal(scored["doc_id"], "")
            n_texts += pc.sum(without_document).as_py()
            if n_texts >= size:
                yield _block(db, groups, retriever, at_most)
                groups = []
                n_texts = 0
        if groups:
            yield _block(db, groups, retriever, at_most)


def _block(
    db: duckdb.DuckDBPyConnection, groups: Groups, retriever: str | None, at_most: int | None
) -> dict[str, ScoredTexts]:
    scored, candidates = zip(*groups, strict=True)
    db.register("scored", pa.concat_tables(scored))
    db.register("candidates", pa.concat_tables(candidates))
    if retriever:
        names = [retriever]
    else:
        rows = db.sql("SELECT DISTINCT retriever FROM candidates ORDER BY 1").fetchall()
        names = ["none", *(name for (name,) in rows)]
    ranks = at_most or ALL_RANKS
    return {name: _texts_of_retriever(db, name, ranks) for name in names}


def _texts_of_retriever(db: duckdb.DuckDBPyConnection, retriever: str, at_most: int) -> ScoredTexts:
    """The texts of the tables `scored` and `candidates` with a retriever's first candidates."""
    alone = db.sql(
        """SELECT query_id, log_probs, bytes FROM scored
        WHERE doc_id = '' AND ($name = 'none' OR query_id IN
            (SELECT query_id FROM candidates WHERE retriever = $name))
        ORDER BY query_id""",
        params={"name": retriever},
    ).to_arrow_table()
    ranked = db.sql(
        """SELECT query_id, rank, doc_id, similarity, log_probs
        FROM candidates JOIN scored USING (query_id, doc_id)
        WHERE retriever = ? AND rank <= ? ORDER BY query_id, rank""",
        params=[retriever, at_most],
    ).to_arrow_table()
    ids = alone["query_id"].to_numpy().astype(object)
    log_probs_alone = padded(alone["log_probs"], np.float64)
    lengths = pc.list_value_length(alone["log_probs"]).to_numpy()

    k = pc.max(ranked["rank"]).as_py() or 0
    query_ids = ranked["query_id"].to_numpy().astype(object)
    rows = np.searchsorted(ids, query_ids)
    columns = ranked["rank"].to_numpy() - 1
    similarities = np.full((len(ids), k), -np.inf)
    similarities[rows, columns] = ranked["similarity"].to_numpy()
    doc_ids = np.full((len(ids), k), "", object)
    doc_ids[rows, columns] = ranked["doc_id"].to_numpy()
    log_probs = np.repeat(log_probs_alone[:, None], k, axis=1)
    if k:
        log_probs[rows, columns] = padded(ranked["log_probs"], np.float64)
    return ScoredTexts(
        ids=ids,
        bytes=padded(alone["bytes"], np.int64),
        lengths=lengths.astype(np.int64),
        log_probs_alone=log_probs_alone,
        log_probs=log_probs,
        similarities=similarities,
        doc_ids=doc_ids,
    )
