"""PopQA from knowledge triples, from the published file, or from both (PopQA, 3.3, appendix A).

Writes data/questions/popqa/{popqa.tsv,popqa.parquet,rejects.parquet}. popqa.tsv has the 17
published columns; popqa.parquet also has question_id, relation, split, month and origin. Published
questions come first, in the published order. Questions from triples follow, sorted by relation,
subject and object; their numbers are those of Wikidata's ids.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import LongtailError
from pipelines.language import language
from pipelines.language.relations import Relation, read_relations
from pipelines.params.params import PopQA
from pipelines.questions import published, triple_sample
from pipelines.questions.published import ENTITY, LARGEST_ID, MONTH
from pipelines.questions.settings import Settings
from pipelines.questions.subject_splits import create_split_of
from pipelines.questions.triple_sample import QUESTION_ID
from pipelines.sources.rejects import Rejects
from pipelines.storage import database, parquet
from pipelines.storage.atomic import atomic
from pipelines.subsets import read_subsets
from pipelines.tables.questions import POPQA

TRIPLES = Path("data/knowledge/triples/triples.parquet")
# holds one table, called popQA.tsv by the authors and test.tsv on the Hub
PUBLISHED = Path("data/raw/popqa")


def build_popqa(
    settings: Settings,
    out: Path,
    triples: Path = TRIPLES,
    published_file: Path = PUBLISHED,
    relations: Mapping[str, Relation] | None = None,
) -> dict[str, int]:
    """Write the stage's folder `out`; return counts.

    By default, all relations with a template in the language ask.

    LongtailError if the source that `popqa.source` names is missing, or if no question comes out of
    it.
    """
    popqa = settings.popqa
    month = settings.popularity.month
    if relations is None:
        relations = read_relations(language=language.read_language(settings.language))
    rejects = Rejects(settings.ingest.max_reject_share)
    counts: dict[str, int] = {}
    rows = published.SCHEMA.empty_table()
    if popqa.source != "wikidata":
        rows = _read_published(published_file, popqa.subset, rejects)
        counts["published.empty_subject"] = pc.sum(pc.equal(rows["subj"], "")).as_py()

    memory_gb = settings.ingest.memory_gb
    threads = settings.compute.threads
    with atomic(out) as folder, database.connect(memory_gb, threads) as db:
        folder.mkdir()
        triple_sample.create_functions(db, settings.seed)
        create_split_of(db, settings.seed, popqa.train_share)
        db.create_function("number_of", number_of, ["VARCHAR"], "BIGINT")
        names = pa.Table.from_pylist([vars(relation) for relation in relations.values()])
        db.register("relations", names)
        if popqa.source != "published" or popqa.refresh:
            database.view(db, "triples", triples)

        _load_published(db, rows)
        if popqa.source != "wikidata" and popqa.refresh:
            counts["published.no_longer_stated"] = len(rows) - _refresh_published(db, month)
        elif len(rows) and month != MONTH:
            counts["published.of_another_month"] = len(rows)
            print(
                f"popqa: the {len(rows):,} published questions have the page views and answers of "
                f"{MONTH}, popularity.month is {month}; "
                f"popqa.refresh: true gives them those of {month}"
            )

        questions = "FROM published"
        values = {}
        if popqa.source != "published":
            counts |= triple_sample.sample_triples(db, popqa, relations)
            counts["wikidata.also_published"] = _drop_published(db)
            questions += f" UNION ALL BY NAME {_questions_of_triples()}"
            values = {"month": month}
        query = f"""SELECT {", ".join(POPQA.schema.names)} FROM ({questions})
            ORDER BY origin, position, prop_id, subj_id, obj_id"""
        database.write_query(db, query, folder / POPQA.name, values, POPQA)

        database.view(db, "questions", folder / POPQA.name)
        counts |= _count_questions(db)
        _refuse_nothing(counts, popqa, triples)
        published.write_tsv(parquet.batches(folder / POPQA.name), folder / "popqa.tsv")
        rejects.write(folder / "rejects.parquet")
    return counts | rejects.metrics()


def number_of(question_id: str) -> int:
    """The published column `id` for a question from a triple: a hash of 53 bits, larger than any
    published id.
    """
    digest = hashlib.blake2b(question_id.encode(), digest_size=8).digest()
    return LARGEST_ID + int.from_bytes(digest, "big") % LARGEST_ID


def _read_published(path: Path, subset: str | None, rejects: Rejects) -> pa.Table:
    """The published questions, or those of a named subset."""
    rows = published.read_published(path, rejects)
    if not subset:
        return rows
    ids = pa.array(map(int, read_subsets()[subset].ids), pa.int64())
    return rows.filter(pc.is_in(rows["id"], ids))


def _load_published(db: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Create table published: the published rows with the columns that this stage adds, and their
    `position`.

    A question that Longtail built, as in the table of a release, has the id that it had there: the
    same questions are asked then, after the same demonstrations.
    """
    positions = pa.array(range(len(rows)), pa.int64())
    db.register("published_rows", rows.append_column("position", positions))
    db.execute(
        f"""CREATE TEMP TABLE published AS SELECT triples.* EXCLUDE (s_qid, p_pid, o_qid),
            CASE WHEN id < {LARGEST_ID} THEN id::VARCHAR ELSE {QUESTION_ID} END AS question_id,
            p_pid AS relation, split_of(s_uri) AS split, '{MONTH}' AS month, 'published' AS origin
        FROM (
            SELECT published_rows.*, pid AS p_pid, replace(s_uri, '{ENTITY}', '') AS s_qid,
                replace(o_uri, '{ENTITY}', '') AS o_qid
            FROM published_rows JOIN relations ON name = prop
        ) AS triples"""
    )


def _refresh_published(db: duckdb.DuckDBPyConnection, month: str) -> int:
    """Give the rows of table published the objects' names, titles, views and answers that the
    triples have.

    A row whose triple is gone is dropped; returns how many are left. A row keeps its question and
    its subject's name.
    """
    query = f"""CREATE OR REPLACE TEMP TABLE published AS WITH asked AS (
            SELECT replace(s_uri, '{ENTITY}', '') AS s_qid, relation AS p_pid FROM published
        ), {_answers("FROM asked")}
        SELECT published.* REPLACE (
            o_label AS obj, triples.o_aliases AS o_aliases, triples.s_wiki_title AS s_wiki_title,
            triples.o_wiki_title AS o_wiki_title, triples.s_pop AS s_pop, triples.o_pop AS o_pop,
            answers.possible_answers AS possible_answers, $month AS month
        )
        FROM published JOIN triples
            ON s_uri = '{ENTITY}' || s_qid AND relation = p_pid AND o_uri = '{ENTITY}' || o_qid
            JOIN answers USING (s_qid, p_pid)"""
    (counts,) = db.execute(query, {"month": month}).fetchall()
    return counts[0]


def _drop_published(db: duckdb.DuckDBPyConnection) -> int:
    """Delete from table sampled what is asked by a published question; returns the number of
    rows.
    """
    same = f"SELECT 1 FROM published WHERE s_uri = '{ENTITY}' || s_qid AND relation = p_pid"
    (counts,) = db.execute(f"DELETE FROM sampled WHERE EXISTS ({same})").fetchall()
    return counts[0]


def _answers(pairs: str) -> str:
    """A query's WITH terms for answers(s_qid, p_pid, possible_answers) of the pairs (s_qid, p_pid)
    of a query.

    The acceptable answers are the label and the aliases of every object that the subject has in
    this relation, sampled or not. They are sorted by object, without repeats.
    """
    return f"""places AS (
            SELECT s_qid, p_pid, unnest(list_prepend(o_label, o_aliases)) AS name,
                substr(o_qid, 2)::HUGEINT * 1000000
                    + generate_subscripts(list_prepend(o_label, o_aliases), 1) AS place
            FROM triples SEMI JOIN ({pairs}) USING (s_qid, p_pid)
        ), answers AS (
            SELECT s_qid, p_pid, list(name ORDER BY place) AS possible_answers
            FROM (SELECT s_qid, p_pid, name, min(place) AS place FROM places GROUP BY ALL)
            GROUP BY ALL
        )"""


def _questions_of_triples() -> str:
    """The query for the questions of table sampled; $month is the month of the triples' page
    views.
    """
    return f"""(
        WITH {_answers("FROM sampled")}
        SELECT t.*, s_label AS subj, o_label AS obj, name AS prop, '{ENTITY}' || s_qid AS s_uri,
            '{ENTITY}' || o_qid AS o_uri, substr(s_qid, 2)::BIGINT AS subj_id,
            substr(p_pid, 2)::BIGINT AS prop_id, substr(o_qid, 2)::BIGINT AS obj_id,
            replace(template, '{{}}', s_label) AS question, possible_answers,
            {QUESTION_ID} AS question_id, number_of({QUESTION_ID}) AS id, p_pid AS relation,
            split_of('{ENTITY}' || s_qid) AS split, $month AS month, 'wikidata' AS origin,
            0 AS position
        FROM triples AS t JOIN sampled USING (s_qid, p_pid, o_qid) JOIN relations ON pid = p_pid
            JOIN answers USING (s_qid, p_pid)
    )"""


def _count_questions(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Counts of `questions`, by origin, split and relation too; of subjects; and of questions that
    repeat a text.
    """
    totals = """SELECT count(*) AS questions, count(DISTINCT s_uri) AS subjects,
        count(*) - count(s_pop) AS unknown_popularity,
        count(*) - count(DISTINCT question) AS repeated_questions FROM questions"""
    counts = database.read_rows(db, totals).to_pylist()[0]
    for column in ("origin", "split", "relation"):
        query = f"SELECT {column}, count(*) FROM questions GROUP BY 1 ORDER BY 1"
        for value, n in db.sql(query).fetchall():
            counts[f"{column}.{value}"] = n
    return counts


def _refuse_nothing(counts: Mapping[str, int], popqa: PopQA, triples: Path) -> None:
    """Raise LongtailError if there is no question, or no triple to make questions of."""
    if counts["questions"] and counts.get("wikidata.triples") != 0:
        return
    raise LongtailError(
        f"{triples}: no question comes out of its {counts.get('wikidata.triples', 0):,} triples "
        f"(popqa.source: {popqa.source}, popqa.sampling: {popqa.sampling}), expected some; "
        "data/metrics/triples.json says where claims fell out, term_frequency.json how many "
        "subjects the C4 sample mentions"
    )
