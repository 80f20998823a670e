"""Stage `triples`: knowledge triples with names, popularity and term frequency (PopQA, 3.2, 3.3 and
appendix A).

Writes data/knowledge/triples/{triples,entities}.parquet. The subject and the object of a triple
need a label in the language; claims without one are counted by reason. Popularity is null, which
means unknown, for a subject without an article or without views of it. Term frequency is null for
entities that are not subjects.
"""

from collections.abc import Iterable
from pathlib import Path

import duckdb

from pipelines.language.relations import RELATIONS
from pipelines.params.param_types import Section
from pipelines.params.params import Compute, Ingest
from pipelines.storage import database
from pipelines.storage.atomic import atomic
from pipelines.tables.knowledge import LABELLED, TRIPLES
from pipelines.work import stage

KNOWLEDGE = Path("data/knowledge")
METRICS = Path("data/metrics/triples.json")
INPUTS = {  # table -> its file in the folder of knowledge
    "entities": "wikidata/entities.parquet",
    "claims": "wikidata/claims.parquet",
    "views": "popularity/views.parquet",
    "term_frequency": "term_frequency/term_frequency.parquet",
}

DESCRIBED = """
    SELECT qid, label, aliases, wiki_title, views.views AS popularity,
        term_frequency.term_frequency
    FROM entities LEFT JOIN views ON wiki_title = title LEFT JOIN term_frequency USING (qid)
"""
JUDGED = """
    SELECT s, p, o, CASE
        WHEN subject.label IS NULL THEN 'subject_without_label'
        WHEN object.qid IS NULL THEN 'object_not_in_source'
        WHEN object.label IS NULL THEN 'object_without_label' END AS reason
    FROM claims LEFT JOIN described AS subject ON subject.qid = s
        LEFT JOIN described AS object ON object.qid = o
    WHERE p IN ({properties})
"""
SELECT_TRIPLES = """
    SELECT 'Q' || s AS s_qid, 'P' || p AS p_pid, 'Q' || o AS o_qid,
        subject.label AS s_label, object.label AS o_label,
        subject.aliases AS s_aliases, object.aliases AS o_aliases,
        subject.wiki_title AS s_wiki_title, object.wiki_title AS o_wiki_title,
        subject.popularity AS s_pop, object.popularity AS o_pop, subject.term_frequency
    FROM judged JOIN described AS subject ON subject.qid = s
        JOIN described AS object ON object.qid = o
    WHERE reason IS NULL ORDER BY s, p, o
"""
SELECT_LABELLED = """
    SELECT * REPLACE ('Q' || qid AS qid)
    FROM described WHERE label IS NOT NULL ORDER BY described.qid
"""
DROPPED = "SELECT reason, count(*) FROM judged WHERE reason IS NOT NULL GROUP BY ALL"
COUNTS = """
    SELECT * FROM
    (SELECT (SELECT count(*) FROM judged) AS claims, count(*) AS triples,
        count(DISTINCT s) AS subjects,
        count(*) FILTER (popularity IS NULL) AS triples_of_unknown_popularity
    FROM judged JOIN described ON qid = s WHERE reason IS NULL),
    (SELECT count(*) AS labelled_entities, count(popularity) AS entities_with_views,
        count(wiki_title) FILTER (popularity IS NULL) AS articles_without_views,
        count(*) FILTER (term_frequency > 0) AS subjects_in_c4
    FROM described WHERE label IS NOT NULL)
"""


class Settings(Section):
    """The sections of params.yaml that this stage reads."""

    compute: Compute
    ingest: Ingest


def build_triples(
    settings: Settings, knowledge: Path = KNOWLEDGE, relations: Iterable[str] = RELATIONS
) -> dict[str, int]:
    """Write `knowledge`/triples for the claims of `relations` in the other stages' tables; return
    counts.
    """
    properties = ", ".join(relation[1:] for relation in relations)
    memory_gb = settings.ingest.memory_gb
    threads = settings.compute.threads
    with atomic(knowledge / "triples") as folder, database.connect(memory_gb, threads) as db:
        folder.mkdir()
        for table, file in INPUTS.items():
            database.view(db, table, knowledge / file)
        db.execute(f"CREATE TEMP TABLE described AS {DESCRIBED}")
        db.execute(f"CREATE TEMP TABLE judged AS {JUDGED.format(properties=properties)}")

        database.write_query(db, SELECT_TRIPLES, folder / TRIPLES.name, declared=TRIPLES)
        database.write_query(db, SELECT_LABELLED, folder / LABELLED.name, declared=LABELLED)
        return _counts(db)


def _counts(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Count claims that were dropped, by reason, and what the tables have."""
    counts = {}
    for reason, count in db.sql(DROPPED).fetchall():
        counts[f"dropped.{reason}"] = count
    (table_counts,) = db.sql(COUNTS).to_arrow_table().to_pylist()
    return counts | table_counts


if __name__ == "__main__":
    stage.run("triples", Settings, build_triples, out=str(KNOWLEDGE / "triples"), metrics=METRICS)
