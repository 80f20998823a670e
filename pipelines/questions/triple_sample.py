"""Which knowledge triples become questions of PopQA (PopQA, 3.3 and appendix A).

Whether a triple is drawn, and its place among the triples of its relation, are hashes of the
triple. So its fate depends on the triple alone as long as no bound is reached.
"""

from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa

from pipelines import draws
from pipelines.language.relations import RELATIONS, Relation
from pipelines.params.params import PopQA
from pipelines.storage import database

QUESTION_ID = "s_qid || '-' || p_pid || '-' || o_qid"  # "Q1-P2-Q3": what a triple's draws depend on


def keep_probability(term_frequency: np.ndarray) -> np.ndarray:
    """P(f > exp(8u - 6)) for u ~ U(0, 1): clip((ln f + 6) / 8, 0, 1), and 0 at f = 0 (PopQA,
    appendix A).
    """
    with np.errstate(divide="ignore"):
        return np.clip((np.log(term_frequency.astype(float)) + 6) / 8, 0, 1)


def keep_triples(term_frequency: np.ndarray, question_ids: list[str], seed: int) -> np.ndarray:
    """Whether each triple is kept, (n,) bool: f > exp(8u - 6), where u is a hash of (seed, question
    id).
    """
    return draws.uniforms(seed, "popqa.keep", question_ids) < keep_probability(term_frequency)


def create_functions(db: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Make `keep`, and the draw of a triple's place, SQL functions."""

    def keep(term_frequency: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.Array:
        return pa.array(keep_triples(term_frequency.to_numpy(), ids.to_pylist(), seed))

    def draw_place(ids: pa.ChunkedArray) -> pa.Array:
        return pa.array(draws.uniforms(seed, "popqa.place", ids.to_pylist()))

    db.create_function("keep", keep, ["BIGINT", "VARCHAR"], "BOOLEAN", type="arrow")
    db.create_function("draw_place", draw_place, ["VARCHAR"], "DOUBLE", type="arrow")


def sample_triples(
    db: duckdb.DuckDBPyConnection,
    popqa: PopQA,
    relations: Mapping[str, Relation] = RELATIONS,
) -> dict[str, int]:
    """Create table sampled(s_qid, p_pid, o_qid) from triples of `relations`; count these triples,
    those not drawn, kept, and cut off by the bound popqa.per_relation.

    The functions of `create_functions` must be there.
    """
    condition = "true"
    if popqa.sampling == "term_frequency":
        condition = f"keep(term_frequency, {QUESTION_ID})"
    db.register("asked_about", pa.table({"p_pid": list(relations)}))
    db.execute(
        f"""CREATE TEMP TABLE kept AS
        SELECT s_qid, p_pid, o_qid, draw_place({QUESTION_ID}) AS place
        FROM triples JOIN asked_about USING (p_pid) WHERE {condition}"""
    )
    db.execute(
        f"""CREATE TEMP TABLE sampled AS SELECT s_qid, p_pid, o_qid FROM (
            SELECT *, row_number() OVER (PARTITION BY p_pid ORDER BY place, s_qid, o_qid) AS number
            FROM kept
        ) WHERE number <= {popqa.per_relation}"""
    )
    n_triples = _count(db, "triples SEMI JOIN asked_about USING (p_pid)")
    n_kept = _count(db, "kept")
    n_sampled = _count(db, "sampled")
    db.execute("DROP TABLE kept")

    return {
        "wikidata.triples": n_triples,
        "wikidata.not_drawn": n_triples - n_kept,
        "wikidata.kept": n_kept,
        "wikidata.over_cap": n_kept - n_sampled,
    }


def _count(db: duckdb.DuckDBPyConnection, table: str) -> int:
    return database.row(db, f"SELECT count(*) FROM {table}")[0]
