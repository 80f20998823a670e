"""PopQA from knowledge triples, from the published file, or from both (PopQA, 3.3, appendix A).

Writes data/questions/popqa/{popqa.tsv,popqa.parquet,rejects.parquet}. popqa.tsv has the 17 published columns;
popqa.parquet also has question_id, relation, split, month and origin. Published questions come first, in the published
order. Questions from triples follow, sorted by relation, subject and object; their numbers are those of Wikidata's ids.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.relations import RELATIONS, Relation, read_relations
from pipelines.params import params
from pipelines.questions import published
from pipelines.questions.published import ENTITY, MONTH
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import source_files
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.subsets import read_subsets

TRIPLES = Path("data/knowledge/triples/triples.parquet")
PUBLISHED = Path(
    "data/raw/popqa"
)  # holds one file, called popQA.tsv by the authors and test.tsv on the Hub
COLUMNS = [*published.COLUMNS, "question_id", "relation", "split", "month", "origin"]
QUESTION_ID = "s_qid || '-' || p_pid || '-' || o_qid"  # "Q1-P2-Q3": what a triple's draws depend on


def build_popqa(
    params: SimpleNamespace,
    out: Path,
    triples: Path = TRIPLES,
    published_file: Path = PUBLISHED,
    relations: Mapping[str, Relation] | None = None,
) -> dict[str, int]:
    """Write the stage's folder `out`; return counts. By default, all relations with a template in the language ask.

    LongtailError if the source that `popqa.source` names is missing, or if no question comes out of it.
    """
    popqa, rejects = params.popqa, Rejects(params.ingest.max_reject_share)
    relations = (
        read_relations(language=language.read_language(params.language))
        if relations is None
        else relations
    )
    counts: dict[str, int] = {}
    rows = published.SCHEMA.empty_table()
    if popqa.source != "wikidata":
        files = source_files(published_file) if published_file.is_dir() else [published_file]
        if len(files) > 1:
            names = ", ".join(path.name for path in files)
            raise LongtailError(
                f"{published_file}: {names}, expected one file; name one under fetch.files.popqa"
            )
        rows = published.read_published(files[0], rejects)
        if popqa.subset:
            ids = pa.array(map(int, read_subsets()[popqa.subset].ids), pa.int64())
            rows = rows.filter(pc.is_in(rows["id"], ids))
        counts["published.empty_subject"] = pc.sum(pc.equal(rows["subj"], "")).as_py()
    with (
        atomic(out) as folder,
        database.connect(params.ingest.memory_gb, params.compute.threads) as db,
    ):
        folder.mkdir()
        _create_functions(db, params.seed)
        create_split_of(db, params.seed, popqa.train_share)
        db.register(
            "relations", pa.Table.from_pylist([vars(relation) for relation in relations.values()])
        )
        _load_published(db, rows)
        month = params.popularity.month
        if popqa.source != "published" or popqa.refresh:
            database.view(db, "triples", triples)
        if popqa.source != "wikidata" and popqa.refresh:
            counts["published.no_longer_stated"] = len(rows) - _refresh_published(db, month)
        elif len(rows) and month != MONTH:
            counts["published.of_another_month"] = len(rows)
            print(
                f"popqa: the {len(rows):,} published questions have the page views and answers of {MONTH}, "
                f"popularity.month is {month}; popqa.refresh: true gives them those of {month}",
                flush=True,
            )
        questions, values = "FROM published", {}
        if popqa.source != "published":
            counts |= sample_triples(db, popqa, relations)
            doubled = (
                f"SELECT 1 FROM published WHERE s_uri = '{ENTITY}' || s_qid AND relation = p_pid"
            )
            (gone,) = db.execute(f"DELETE FROM sampled WHERE EXISTS ({doubled})").fetchone()
            counts["wikidata.also_published"] = gone
            questions += f" UNION ALL BY NAME {_questions_of_triples()}"
            values = {"month": month}
        order = "origin, position, prop_id, subj_id, obj_id"
        query = f"SELECT {', '.join(COLUMNS)} FROM ({questions}) ORDER BY {order}"
        database.write_query(db, query, folder / "popqa.parquet", values)
        database.view(db, "questions", folder / "popqa.parquet")
        counts |= _count_questions(db)
        if not counts["questions"] or counts.get("wikidata.triples") == 0:
            raise LongtailError(
                f"{triples}: no question comes out of its {counts.get('wikidata.triples', 0):,} triples (popqa.source: "
                f"{popqa.source}, popqa.sampling: {popqa.sampling}), expected some; data/metrics/triples.json says "
                "where claims fell out, term_frequency.json how many subjects the C4 sample mentions"
            )
        published.write_tsv(parquet.batches(folder / "popqa.parquet"), folder / "popqa.tsv")
        rejects.write(folder / "rejects.parquet")
    return counts | rejects.metrics()


def keep_probability(term_frequency: np.ndarray) -> np.ndarray:
    """P(f > exp(8u - 6)) for u ~ U(0, 1): clip((ln f + 6) / 8, 0, 1), and 0 at f = 0 (PopQA, appendix A)."""
    with np.errstate(divide="ignore"):
        return np.clip((np.log(term_frequency.astype(float)) + 6) / 8, 0, 1)


def keep_triples(term_frequency: np.ndarray, question_ids: list[str], seed: int) -> np.ndarray:
    """Whether each triple is kept, (n,) bool: f > exp(8u - 6), where u is a hash of (seed, question id)."""
    return draws.uniforms(seed, "popqa.keep", question_ids) < keep_probability(term_frequency)


def split_of(seed: int, uris: Iterable[str], train_share: float) -> list[str]:
    """The split of all questions on each subject URI: "train", to tune the retriever, or "test".

    A hash of (seed, URI) decides. EntityQuestions has the same split, so no test subject is seen in tuning.
    """
    return [
        "train" if draw < train_share else "test"
        for draw in draws.uniforms(seed, "popqa.train", uris)
    ]


def create_split_of(db: duckdb.DuckDBPyConnection, seed: int, train_share: float) -> None:
    """Make `split_of` an SQL function of one URI; the split of NULL is NULL."""

    def split(uris: pa.ChunkedArray) -> pa.Array:
        return pa.array(split_of(seed, uris.to_pylist(), train_share), pa.string())

    db.create_function("split_of", split, ["VARCHAR"], "VARCHAR", type="arrow")


def number_of(question_id: str) -> int:
    """The published column `id` for a question of ours: a hash of 53 bits, larger than any published id."""
    return (
        2**52
        + int.from_bytes(hashlib.blake2b(question_id.encode(), digest_size=8).digest(), "big")
        % 2**52
    )


def quotas(popqa: params.PopQA, relations: Mapping[str, Relation] = RELATIONS) -> dict[str, int]:
    """Relation -> questions from triples, at most: popqa.per_relation, or in the published set's proportions.

    Fractions go to the largest remainders, so that the quotas add up to popqa.total, or to the published set's size.
    """
    if popqa.mix == "drawn":
        return dict.fromkeys(relations, popqa.per_relation)
    shares = {pid: published.MIX.get(relation.name, 0) for pid, relation in relations.items()}
    whole = sum(shares.values())
    total = popqa.total or whole
    most = {pid: total * share // max(whole, 1) for pid, share in shares.items()}
    remainders = sorted(shares, key=lambda pid: (-(total * shares[pid] % max(whole, 1)), pid))
    for pid in remainders[: total - sum(most.values()) if whole else 0]:
        most[pid] += 1
    return {pid: min(count, popqa.per_relation) for pid, count in most.items()}


def sample_triples(
    db: duckdb.DuckDBPyConnection,
    popqa: params.PopQA,
    relations: Mapping[str, Relation] = RELATIONS,
) -> dict[str, int]:
    """Create table sampled(s_qid, p_pid, o_qid) from triples; count triples seen, kept, and cut off by a bound.

    Whether a triple is kept, and its place among the triples of its relation, are hashes of the triple. So its fate
    depends on the triple alone as long as no bound is reached: its relation's of `quotas`, or popqa.total.
    """
    condition = (
        f"keep(term_frequency, {QUESTION_ID})" if popqa.sampling == "term_frequency" else "true"
    )
    most = quotas(popqa, relations)
    db.register(
        "quotas", pa.table({"p_pid": list(most), "most": pa.array(most.values(), pa.int64())})
    )
    db.execute(
        f"""CREATE TEMP TABLE kept AS SELECT s_qid, p_pid, o_qid, draw_place({QUESTION_ID}) AS place
        FROM triples WHERE {condition}"""
    )
    of_all = f"ORDER BY place, s_qid, p_pid, o_qid LIMIT {popqa.total}" if popqa.total else ""
    db.execute(
        f"""CREATE TEMP TABLE sampled AS SELECT s_qid, p_pid, o_qid FROM (
            SELECT *, row_number() OVER (PARTITION BY p_pid ORDER BY place, s_qid, o_qid) AS number FROM kept
        ) JOIN quotas USING (p_pid) WHERE number <= most {of_all}"""
    )
    seen, kept, sampled = (
        database.row(db, f"SELECT count(*) FROM {name}")[0]
        for name in ("triples", "kept", "sampled")
    )
    db.execute("DROP TABLE kept")
    counts = {"wikidata.triples": seen, "wikidata.kept": kept, "wikidata.over_cap": kept - sampled}
    return counts | (
        {"wikidata.short_of_mix": sum(most.values()) - sampled} if popqa.mix == "published" else {}
    )


def _create_functions(db: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Make `keep`, `number_of`, and the draw of a triple's place SQL functions."""

    def keep(term_frequency: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.Array:
        return pa.array(keep_triples(term_frequency.to_numpy(), ids.to_pylist(), seed))

    def draw_place(ids: pa.ChunkedArray) -> pa.Array:
        return pa.array(draws.uniforms(seed, "popqa.place", ids.to_pylist()))

    db.create_function("keep", keep, ["BIGINT", "VARCHAR"], "BOOLEAN", type="arrow")
    db.create_function("draw_place", draw_place, ["VARCHAR"], "DOUBLE", type="arrow")
    db.create_function("number_of", number_of, ["VARCHAR"], "BIGINT")


def _load_published(db: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Create table published: the published rows with the columns that we add, and their `position`."""
    db.register(
        "published_rows", rows.append_column("position", pa.array(range(len(rows)), pa.int64()))
    )
    db.execute(
        f"""CREATE TEMP TABLE published AS SELECT published_rows.*, id::VARCHAR AS question_id, pid AS relation,
            split_of(s_uri) AS split, '{MONTH}' AS month, 'published' AS origin
        FROM published_rows JOIN relations ON name = prop"""
    )


def _refresh_published(db: duckdb.DuckDBPyConnection, month: str) -> int:
    """Give the rows of table published the objects' names, titles, views and answers that the triples have.

    A row whose triple is gone is dropped; returns how many are left. A row keeps its question and its subject's name.
    """
    (rows,) = db.execute(
        f"""CREATE OR REPLACE TEMP TABLE published AS WITH asked AS (
            SELECT replace(s_uri, '{ENTITY}', '') AS s_qid, relation AS p_pid FROM published
        ), {_answers("FROM asked")}
        SELECT published.* REPLACE (
            o_label AS obj, triples.o_aliases AS o_aliases, triples.s_wiki_title AS s_wiki_title,
            triples.o_wiki_title AS o_wiki_title, triples.s_pop AS s_pop, triples.o_pop AS o_pop,
            answers.possible_answers AS possible_answers, $month AS month
        )
        FROM published JOIN triples
            ON s_uri = '{ENTITY}' || s_qid AND relation = p_pid AND o_uri = '{ENTITY}' || o_qid
            JOIN answers USING (s_qid, p_pid)""",
        {"month": month},
    ).fetchone()
    return rows


def _answers(asked: str) -> str:
    """A query's WITH terms for answers(s_qid, p_pid, possible_answers) of the pairs (s_qid, p_pid) of `asked`.

    The acceptable answers are the label and the aliases of every object that the subject has in this relation, sampled
    or not. They are sorted by object, without repeats.
    """
    return f"""places AS (
            SELECT s_qid, p_pid, unnest(list_prepend(o_label, o_aliases)) AS name,
                substr(o_qid, 2)::HUGEINT * 1000000 + generate_subscripts(list_prepend(o_label, o_aliases), 1) AS place
            FROM triples SEMI JOIN ({asked}) USING (s_qid, p_pid)
        ), answers AS (
            SELECT s_qid, p_pid, list(name ORDER BY place) AS possible_answers
            FROM (SELECT s_qid, p_pid, name, min(place) AS place FROM places GROUP BY ALL) GROUP BY ALL
        )"""


def _questions_of_triples() -> str:
    """The query for the questions of table sampled; $month is the month of the triples' page views."""
    return f"""(
        WITH {_answers("FROM sampled")}
        SELECT t.*, s_label AS subj, o_label AS obj, name AS prop, '{ENTITY}' || s_qid AS s_uri,
            '{ENTITY}' || o_qid AS o_uri, substr(s_qid, 2)::BIGINT AS subj_id, substr(p_pid, 2)::BIGINT AS prop_id,
            substr(o_qid, 2)::BIGINT AS obj_id, replace(template, '{{}}', s_label) AS question, possible_answers,
            {QUESTION_ID} AS question_id, number_of({QUESTION_ID}) AS id, p_pid AS relation,
            split_of('{ENTITY}' || s_qid) AS split, $month AS month, 'wikidata' AS origin, 0 AS position
        FROM triples AS t JOIN sampled USING (s_qid, p_pid, o_qid) JOIN relations ON pid = p_pid
            JOIN answers USING (s_qid, p_pid)
    )"""


def _count_questions(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Counts of `questions`, by origin, split and relation too; of subjects; and of questions that repeat a text."""
    figures = """SELECT count(*) AS questions, count(DISTINCT s_uri) AS subjects, count(*) - count(s_pop) AS
        unknown_popularity, count(*) - count(DISTINCT question) AS repeated_questions FROM questions"""
    counts = database.read_rows(db, figures).to_pylist()[0]
    for column in ("origin", "split", "relation"):
        for value, n in db.sql(
            f"SELECT {column}, count(*) FROM questions GROUP BY 1 ORDER BY 1"
        ).fetchall():
            counts[f"{column}.{value}"] = n
    return counts
