"""Stage `build_popqa`: PopQA from the triples, the published file, or both (PopQA, 3.3 and appendix A).

Writes data/popqa/{popqa.tsv,popqa.parquet,rejects.parquet}: the published 17 columns; the table adds question_id,
relation, split, month and origin. Published questions come first, in their order, then our own, by (relation, subject,
object); their subj_id, prop_id and obj_id are Wikidata's numbers.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines import draws, params, shards, stage
from pipelines.errors import LongtailError
from pipelines.popqa import database, published
from pipelines.popqa.relations import RELATIONS
from pipelines.popqa.split import ENTITY, split_of
from pipelines.sources.rejects import Rejects

TRIPLES = Path("data/triples")
PUBLISHED = Path("data/raw/popqa/popQA.tsv")
PUBLISHED_MONTH = "2021-10"  # of the published page views
OUT = Path("data/popqa")
METRICS = Path("data/metrics/popqa.json")
BATCH = 100_000  # triples
TRIPLE = ["s_qid", "p_pid", "o_qid"]

EXTRA = [(name, pa.string()) for name in ("question_id", "relation", "split", "month", "origin")]
SCHEMA = pa.schema([*published.SCHEMA, *(pa.field(*extra) for extra in EXTRA)])


def build_popqa(
    triples: Path,
    published_file: Path,
    out: Path,
    *,
    popqa: params.PopQA,
    seed: int,
    ingest: params.Ingest,
    threads: int,
) -> dict[str, int]:
    """Write the stage's folder `out`; return its counts.

    Raises LongtailError when the source named by `popqa.source` is missing or no question comes out of it.
    """
    rejects = Rejects(ingest.max_reject_share)
    counts: dict[str, int] = {}
    questions = SCHEMA.empty_table()
    if popqa.source in ("published", "both"):
        questions = _published(published_file, rejects)
        counts["published.empty_subject"] = pc.sum(pc.equal(questions["subj"], "")).as_py()
    if popqa.source in ("wikidata", "both"):
        with database.connect(ingest.memory_gb, threads) as db:
            counts |= sample_triples(db, triples, popqa, seed)
            db.execute(f"CREATE TEMP VIEW triples AS SELECT * FROM '{triples}'")
            db.register("published", questions.select(["s_uri", "relation"]))
            ours = _ask(db, popqa.month)
        counts["wikidata.also_published"] = counts["wikidata.kept"] - counts["wikidata.over_cap"] - len(ours)
        questions = pa.concat_tables([questions, ours])
    if not questions.num_rows:
        raise LongtailError(
            f"{triples}: no question comes out of its triples (popqa.sampling: {popqa.sampling}), expected some; "
            "data/metrics/triples.json says where they fell out"
        )
    split = pa.array(split_of(seed, questions["s_uri"].to_pylist(), popqa.train_share), pa.string())
    questions = questions.set_column(SCHEMA.get_field_index("split"), "split", split).combine_chunks()
    with shards.atomic(out) as folder:
        folder.mkdir()
        published.write_tsv(questions, folder / "popqa.tsv")
        pq.write_table(questions, folder / "popqa.parquet", compression="zstd")
        rejects.write(folder / "rejects.parquet")
    return counts | _describe(questions, rejects)


def keep_probability(term_frequency: np.ndarray) -> np.ndarray:
    """P(f > exp(8u - 6)) for u ~ U(0, 1): clip((ln f + 6) / 8, 0, 1), and 0 at f = 0 (PopQA, appendix A)."""
    with np.errstate(divide="ignore"):
        return np.clip((np.log(term_frequency.astype(float)) + 6) / 8, 0, 1)


def kept(term_frequency: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Whether f > exp(8u - 6), for each triple, (n,) bool."""
    return uniform < keep_probability(term_frequency)


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
            uniform = draws.uniforms(seed, "popqa.keep", keys.to_pylist())
            keep = pa.array(kept(batch["term_frequency"].to_numpy(), uniform))
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
    return {"wikidata.triples": seen, "wikidata.kept": drawn, "wikidata.over_cap": drawn - sampled}


def _keys(triples: pa.RecordBatch | pa.Table) -> pa.Array:
    """ "Q1-P2-Q3" for each triple: what draws and question ids go by."""
    return pc.binary_join_element_wise(*(triples[name].cast(pa.string()) for name in TRIPLE), "-")


def _ask(db: duckdb.DuckDBPyConnection, month: str) -> pa.Table:
    """A question for each row of table sampled that table published has none for, as SCHEMA without split.

    The acceptable answers are the label and aliases of every object of (subject, relation), each once, by object.
    """
    db.register("relations", pa.Table.from_pylist([vars(relation) for relation in RELATIONS.values()]))
    rows = database.read(
        db,
        f"""WITH places AS (
            SELECT s_qid, p_pid, unnest(list_prepend(o_label, o_aliases)) AS name,
                substr(o_qid, 2)::HUGEINT * 1000000 + generate_subscripts(list_prepend(o_label, o_aliases), 1) AS place
            FROM triples SEMI JOIN sampled USING (s_qid, p_pid)
        ), answers AS (
            SELECT s_qid, p_pid, list(name ORDER BY place) AS possible_answers
            FROM (SELECT s_qid, p_pid, name, min(place) AS place FROM places GROUP BY ALL) GROUP BY ALL
        )
        SELECT t.*, relations.name AS prop, '{ENTITY}' || s_qid AS s_uri,
            '{ENTITY}' || o_qid AS o_uri, substr(s_qid, 2)::BIGINT AS subj_id, substr(p_pid, 2)::BIGINT AS prop_id,
            substr(o_qid, 2)::BIGINT AS obj_id, replace(template, '{{}}', s_label) AS question, possible_answers
        FROM triples AS t SEMI JOIN sampled USING (s_qid, p_pid, o_qid) JOIN relations ON pid = p_pid
            JOIN answers USING (s_qid, p_pid)
            ANTI JOIN published ON s_uri = '{ENTITY}' || s_qid AND relation = p_pid
        ORDER BY prop_id, subj_id, obj_id""",
    )
    keys = _keys(rows)
    columns = {"subj": rows["s_label"], "obj": rows["o_label"], "question_id": keys, "relation": rows["p_pid"]}
    columns |= {"id": pa.array([_number(key) for key in keys.to_pylist()], pa.int64())}
    columns |= {name: pa.repeat(value, len(rows)) for name, value in (("month", month), ("origin", "wikidata"))}
    columns |= {"split": pa.nulls(len(rows), pa.string())}
    return pa.table([columns[name] if name in columns else rows[name] for name in SCHEMA.names], schema=SCHEMA)


def _number(key: str) -> int:
    """The `id` of our own question: 53 bits, above all published ones, from nothing but the triple."""
    return 2**52 + int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") % 2**52


def _published(file: Path, rejects: Rejects) -> pa.Table:
    rows = published.read_published(file, rejects)
    columns = {name: rows[name] for name in rows.column_names}
    columns |= {
        "question_id": rows["id"].cast(pa.string()),
        "relation": pa.array([published.BY_NAME[name] for name in rows["prop"].to_pylist()], pa.string()),
        "split": pa.nulls(len(rows), pa.string()),
        "month": pa.repeat(PUBLISHED_MONTH, len(rows)),
        "origin": pa.repeat("published", len(rows)),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _describe(questions: pa.Table, rejects: Rejects) -> dict[str, int]:
    """Questions by origin, split and relation; how many repeat another's text; rejected rows by reason."""
    counts = {"questions": len(questions), "subjects": pc.count_distinct(questions["s_uri"]).as_py()}
    counts["repeated_questions"] = len(questions) - pc.count_distinct(questions["question"]).as_py()
    for column in ("origin", "split", "relation"):
        for value in pc.value_counts(questions[column]).to_pylist():
            counts[f"{column}.{value['values']}"] = value["counts"]
    counts |= {f"rejected.{reason}": n for reason, n in rejects.reasons().items()}
    return counts | {"rejected": len(rejects.rows)}


def work(chosen: SimpleNamespace) -> stage.Metrics:
    counts = build_popqa(
        TRIPLES / "triples.parquet",
        PUBLISHED,
        OUT,
        popqa=chosen.popqa,
        seed=chosen.seed,
        ingest=chosen.ingest,
        threads=chosen.compute.threads,
    )
    shards.write_json(METRICS, counts)
    return {name: float(n) for name, n in counts.items()}


def main() -> None:
    stage.run("build_popqa", ("seed", "compute", "ingest", "popqa"), work, out=str(OUT))


if __name__ == "__main__":
    main()
