"""What questions are about: the Wikidata item and the Wikipedia article of each question's
subject.
"""

from pathlib import Path

import duckdb

from pipelines.storage import database, parquet

ENTITIES = Path("data/knowledge/wikidata/entities.parquet")


def view_subjects(
    db: duckdb.DuckDBPyConnection, name: str, questions: Path, entities: Path = ENTITIES
) -> None:
    """Create view `name`(question_id, qid, title) of a question set; null where the item or the
    article is not known.

    The title is the question set's own, or else the item's title in `entities`, if there is such a
    file.
    """
    columns = parquet.schema_of(questions).names
    qid = "NULL::BIGINT"
    if "s_uri" in columns:
        qid = "TRY_CAST(regexp_extract(s_uri, 'Q(\\d+)$', 1) AS BIGINT)"
    title = "NULL"
    if "s_wiki_title" in columns:
        title = "nullif(s_wiki_title, '')"

    database.view(db, f"{name}_set", questions)
    if entities.is_file():
        database.view(db, f"{name}_items", entities)
    else:
        nothing = "SELECT NULL::BIGINT AS qid, NULL AS wiki_title WHERE false"
        db.execute(f"CREATE VIEW {name}_items AS {nothing}")
    db.execute(
        f"""CREATE VIEW {name} AS
        SELECT question_id, asked.qid, coalesce(title, wiki_title) AS title
        FROM (SELECT question_id, {qid} AS qid, {title} AS title FROM {name}_set) AS asked
            LEFT JOIN {name}_items AS items ON items.qid = asked.qid"""
    )
