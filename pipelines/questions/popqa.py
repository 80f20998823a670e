"""Stage `build_popqa`: PopQA from the triples, the published file, or both (PopQA, 3.3 and appendix A).

Writes data/questions/popqa/{popqa.tsv,popqa.parquet,rejects.parquet}: the published 17 columns; the table adds question_id,
relation, split, month and origin. Published questions come first, in their order, then our own, by (relation, subject,
object); their subj_id, prop_id and obj_id are Wikidata's numbers, which no release changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines import database, draws, params, shards, stage
from pipelines.errors import LongtailError
from pipelines.questions import published
from pipelines.questions.tuning_split import ENTITY, split_of
from pipelines.relations import RELATIONS, Relation
from pipelines.sources.rejects import Rejects

TRIPLES = Path("data/knowledge/triples/triples.parquet")
PUBLISHED = Path("data/raw/popqa/popQA.tsv")
PUBLISHED_MONTH = "2021-10"  # of the published page views
BATCH = 100_000  # triples
TRIPLE = ["s_qid", "p_pid", "o_qid"]
COLUMNS = [*published.COLUMNS, "question_id", "relation", "split", "month", "origin"]


def build_popqa(
    triples: Path,
    published_file: Path,
    out: Path,
    *,
    relations: Mapping[str, Relation],
    popqa: params.PopQA,
    month: str,
    seed: int,
    ingest: params.Ingest,
    threads: int,
) -> dict[str, int]:
    """Write the stage's folder `out`; `month` is that of the triples' page views. Returns its counts.

    Raises LongtailError when the source named by `popqa.source` is missing or no question comes out of it.
    """
    rejects = Rejects(ingest.max_reject_share)
    counts: dict[str, int] = {}
    rows = published.SCHEMA.empty_table()
    if popqa.source != "wikidata":
        rows = published.read_published(published_file, rejects)
        counts["published.empty_subject"] = pc.sum(pc.equal(rows["subj"], "")).as_py()
    with shards.atomic(out) as folder, database.connect(ingest.memory_gb, threads) as db:
        folder.mkdir()
        db.register("published", _extended(rows, seed, popqa.train_share))
        questions = "SELECT * FROM published"
        if popqa.source != "published":
            db.register("relations", pa.Table.from_pylist([vars(relation) for relation in relations.values()]))
            counts |= sample_triples(db, triples, popqa, seed)
            if not counts["wikidata.triples"]:
                raise LongtailError(
                    f"{triples}: no triple in it though popqa.source is {popqa.source}, expected some; fetch Wikidata "
                    "or set popqa.source: published (data/metrics/triples.json says where claims fell out)"
                )
            counts["wikidata.also_published"] = _number(db, seed, popqa.train_share)
            questions += f" UNION ALL BY NAME {_asked(triples, month)}"
        columns = ", ".join(COLUMNS)
        order = "origin, position, prop_id, subj_id, obj_id"
        database.write(db, f"SELECT {columns} FROM ({questions}) ORDER BY {order}", folder / "popqa.parquet")
        counts |= _describe(db, folder / "popqa.parquet")
        if not counts["questions"]:
            raise LongtailError(
                f"{triples}: no question comes out of its triples (popqa.sampling: {popqa.sampling}), expected some; "
                "data/metrics/term_frequency.json says how many subjects the C4 sample mentions"
            )
        published.write_tsv(pq.ParquetFile(folder / "popqa.parquet").iter_batches(BATCH), folder / "popqa.tsv")
        rejects.write(folder / "rejects.parquet")
    counts |= {f"rejected.{reason}": n for reason, n in rejects.reasons().items()}
    return counts | {"rejected": len(rejects.rows)}


def keep_probability(term_frequency: np.ndarray) -> np.ndarray:
    """P(f > exp(8u - 6)) for u ~ U(0, 1): clip((ln f + 6) / 8, 0, 1), and 0 at f = 0 (PopQA, appendix A)."""
    with np.errstate(divide="ignore"):
        return np.clip((np.log(term_frequency.astype(float)) + 6) / 8, 0, 1)


def kept(term_frequency: np.ndarray, keys: list[str], seed: int) -> np.ndarray:
    """Whether f > exp(8u - 6) for each triple, (n,) bool; u is a hash of (seed, key), drawn only where it decides."""
    probability = keep_probability(term_frequency)
    keep = probability == 1
    doubtful = np.flatnonzero((probability > 0) & ~keep)
    keep[doubtful] = draws.uniforms(seed, "popqa.keep", [keys[i] for i in doubtful.tolist()]) < probability[doubtful]
    return keep


def sample_triples(db: duckdb.DuckDBPyConnection, triples: Path, popqa: params.PopQA, seed: int) -> dict[str, int]:
    """Table sampled(s_qid, p_pid, o_qid) from triples.parquet; counts triples seen, kept and cut by a relation's cap.

    Both draws (is a triple kept; which of a relation come first) are hashes of the triple, so that a triple's fate
    depends on nothing but itself, as long as its relation's cap is not reached.
    """
    db.execute("CREATE TEMP TABLE drawn (s_qid VARCHAR, p_pid VARCHAR, o_qid VARCHAR, place DOUBLE)")
    seen = 0
    for batch in pq.ParquetFile(triples).iter_batches(BATCH, columns=[*TRIPLE, "term_frequency"]):
        seen += batch.num_rows
        keys = _keys(batch)
        if popqa.sampling == "term_frequency":
            keep = pa.array(kept(batch["term_frequency"].to_numpy(), keys.to_pylist(), seed))
            batch, keys = batch.filter(keep), keys.filter(keep)
        place = pa.array(draws.uniforms(seed, "popqa.place", keys.to_pylist()))
        db.register("batch", batch.select(TRIPLE).append_column("place", place))
        db.execute("INSERT INTO drawn SELECT * FROM batch")
        db.unregister("batch")
    db.execute(
        f"""CREATE TEMP TABLE sampled AS SELECT s_qid, p_pid, o_qid FROM drawn
        QUALIFY row_number() OVER (PARTITION BY p_pid ORDER BY place, s_qid, o_qid) <= {popqa.per_relation}"""
    )
    drawn, sampled = database.row(db, "SELECT (SELECT count(*) FROM drawn), (SELECT count(*) FROM sampled)")
    db.execute("DROP TABLE drawn")
    return {"wikidata.triples": seen, "wikidata.kept": drawn, "wikidata.over_cap": drawn - sampled}


def _keys(triples: pa.RecordBatch | pa.Table) -> pa.Array:
    """ "Q1-P2-Q3" for each triple: what draws and question ids go by."""
    return pc.binary_join_element_wise(*(triples[name].cast(pa.string()) for name in TRIPLE), "-")


def _number(db: duckdb.DuckDBPyConnection, seed: int, train_share: float) -> int:
    """Table numbered(s_qid, p_pid, o_qid, question_id, id, split): sampled triples that no published question is on.

    Returns how many are left out.
    """
    db.execute(
        f"""CREATE TEMP TABLE fresh AS SELECT * FROM sampled
        ANTI JOIN published ON s_uri = '{ENTITY}' || s_qid AND relation = p_pid"""
    )
    db.execute(
        """CREATE TEMP TABLE numbered
        (s_qid VARCHAR, p_pid VARCHAR, o_qid VARCHAR, question_id VARCHAR, id BIGINT, split VARCHAR)"""
    )
    sampled, fresh = database.row(db, "SELECT (SELECT count(*) FROM sampled), (SELECT count(*) FROM fresh)")
    for start in range(0, fresh, BATCH):
        batch = database.read(db, f"SELECT * FROM fresh WHERE rowid >= {start} AND rowid < {start + BATCH}")
        keys = _keys(batch)
        uris = [ENTITY + qid for qid in batch["s_qid"].to_pylist()]
        batch = batch.append_column("question_id", keys)
        batch = batch.append_column("id", pa.array([_id(key) for key in keys.to_pylist()], pa.int64()))
        db.register("batch", batch.append_column("split", pa.array(split_of(seed, uris, train_share), pa.string())))
        db.execute("INSERT INTO numbered SELECT * FROM batch")
        db.unregister("batch")
    return sampled - fresh


def _id(key: str) -> int:
    """The `id` of our own question: 53 bits, above all published ones, from nothing but the triple."""
    return 2**52 + int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % 2**52


def _asked(triples: Path, month: str) -> str:
    """The query of our own questions, one for each row of table numbered.

    The acceptable answers are the label and aliases of every object of (subject, relation), each once, by object.
    """
    return f"""(
        WITH places AS (
            SELECT s_qid, p_pid, unnest(list_prepend(o_label, o_aliases)) AS name,
                substr(o_qid, 2)::HUGEINT * 1000000 + generate_subscripts(list_prepend(o_label, o_aliases), 1) AS place
            FROM '{triples}' SEMI JOIN numbered USING (s_qid, p_pid)
        ), answers AS (
            SELECT s_qid, p_pid, list(name ORDER BY place) AS possible_answers
            FROM (SELECT s_qid, p_pid, name, min(place) AS place FROM places GROUP BY ALL) GROUP BY ALL
        )
        SELECT t.*, s_label AS subj, o_label AS obj, name AS prop, '{ENTITY}' || s_qid AS s_uri,
            '{ENTITY}' || o_qid AS o_uri, substr(s_qid, 2)::BIGINT AS subj_id, substr(p_pid, 2)::BIGINT AS prop_id,
            substr(o_qid, 2)::BIGINT AS obj_id, replace(template, '{{}}', s_label) AS question, possible_answers,
            question_id, id, p_pid AS relation, split, '{month}' AS month, 'wikidata' AS origin, 0 AS position
        FROM '{triples}' AS t JOIN numbered USING (s_qid, p_pid, o_qid) JOIN relations ON pid = p_pid
            JOIN answers USING (s_qid, p_pid)
    )"""


def _extended(rows: pa.Table, seed: int, train_share: float) -> pa.Table:
    """The published questions with our columns, and their position."""
    columns = {
        "question_id": rows["id"].cast(pa.string()),
        "relation": pa.array([published.BY_NAME[name] for name in rows["prop"].to_pylist()], pa.string()),
        "split": pa.array(split_of(seed, rows["s_uri"].to_pylist(), train_share), pa.string()),
        "month": pa.repeat(PUBLISHED_MONTH, len(rows)),
        "origin": pa.repeat("published", len(rows)),
        "position": pa.array(range(len(rows)), pa.int64()),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def _describe(db: duckdb.DuckDBPyConnection, questions: Path) -> dict[str, int]:
    """Questions by origin, split and relation; how many repeat another's text."""
    asked, subjects, texts = database.row(
        db, f"SELECT count(*), count(DISTINCT s_uri), count(DISTINCT question) FROM '{questions}'"
    )
    counts = {"questions": asked, "subjects": subjects, "repeated_questions": asked - texts}
    for column in ("origin", "split", "relation"):
        for value, n in db.sql(f"SELECT {column}, count(*) FROM '{questions}' GROUP BY 1 ORDER BY 1").fetchall():
            counts[f"{column}.{value}"] = n
    return counts


def make(params: SimpleNamespace, out: Path) -> stage.Metrics:
    """Build this question set into the folder `out`, by the params of the stage `questions`."""
    return build_popqa(
        TRIPLES,
        PUBLISHED,
        out,
        relations=RELATIONS,
        popqa=params.popqa,
        month=params.popularity.month,
        seed=params.seed,
        ingest=params.ingest,
        threads=params.compute.threads,
    )
