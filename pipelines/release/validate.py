"""Check a release's tables: schema, duplicates, templates, answers, popularity (PopQA, 3.3, appendix A)."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.language.relations import read_relations
from pipelines.questions.entityquestions import LINKS
from pipelines.release import contents
from pipelines.storage import database

NAMED = 5  # faults that an error names; it counts the others
URI = r"http://www\.wikidata\.org/entity/Q[1-9]\d*"
TRIMMED = "lambda name: trim(coalesce(name, ''))"
SHARES = ("closed_book", "augmented", "adaptive", "retrieved")

# table -> checks: (column, condition of a bad row in SQL over the table's columns, what the column should be)
ROWS = {
    "popqa": [
        ("prop", "template IS NULL OR prop != name", "the relation's name in relations.yaml"),
        ("question", "question != replace(template, '{}', subj)", "the relation's template about the subject"),
        ("s_uri", f"NOT regexp_full_match(s_uri, '{URI}')", "an address of Wikidata's"),
        ("o_uri", f"NOT regexp_full_match(o_uri, '{URI}')", "an address of Wikidata's"),
        ("possible_answers", "len(possible_answers) = 0", "an answer"),
        ("possible_answers", f"list_contains(list_transform(possible_answers, {TRIMMED}), '')", "no blank one"),
        ("obj", "len(possible_answers) > 0 AND NOT list_contains(possible_answers, obj)", "one of the answers"),
        # some published rows name an answer twice
        (
            "possible_answers",
            "origin = 'wikidata' AND list_unique(possible_answers) < len(possible_answers)",
            "each once",
        ),
        ("s_pop", "s_pop < 0", "page views"),
        # -2 is the published set's mark for unknown page views
        ("o_pop", "o_pop < 0 AND NOT (origin = 'published' AND o_pop = -2)", "page views"),
        ("split", "split NOT IN ('train', 'test')", "train or test"),
        ("month", "NOT regexp_full_match(month, '\\d{4}-(0[1-9]|1[0-2])')", "YYYY-MM"),
        ("origin", "origin NOT IN ('wikidata', 'published')", "wikidata or published"),
    ],
    "entityquestions_links": [
        ("link", f"link NOT IN {LINKS}", f"one of {', '.join(LINKS)}"),
        ("link", "(link IN ('label', 'alias')) != (s_uri IS NOT NULL)", "label or alias with an address"),
        ("s_uri", f"NOT regexp_full_match(s_uri, '{URI}')", "an address of Wikidata's"),
        ("s_pop", "s_pop < 0 OR (s_uri IS NULL AND s_pop IS NOT NULL)", "page views of what is linked"),
        ("split", "split NOT IN ('train', 'test')", "train or test"),
    ],
    "thresholds": [
        ("threshold", "threshold < 0 OR isnan(threshold)", "page views"),
        ("threshold_low", "threshold_low > threshold_high", "a lower one"),
        *((name, f"NOT {name} BETWEEN 0 AND 1", "from 0 to 1") for name in SHARES),
        ("questions", "questions < 1", "one or more"),
    ],
}
# table -> (columns, an expression, its name): rows that agree in the columns must agree in the expression
AGREEING = {
    "popqa": [
        ("s_uri, month, origin", "s_pop", "popularity of the subject"),
        ("s_uri", "split", "split"),
        ("s_uri, relation, origin", "list_sort(possible_answers)", "answers"),
    ],
    "entityquestions_links": [("s_uri", "s_pop", "popularity of the subject"), ("s_uri", "split", "split")],
}
UNIQUE = {"popqa": ["id", "question_id", "relation, s_uri, o_uri"]}  # for other tables, their key


def check_tables(db: duckdb.DuckDBPyConnection, folder: Path, spoken: Language = ENGLISH) -> None:
    """Check the tables of a release's folder; they stay in `db` under their names, with a column `row`.

    Questions are in the language `spoken`. Raises LongtailError that names the first bad rows, each with its place in
    the file and its key, and counts all.
    """
    contents.check_schema(folder)
    relations = [(pid, relation.name, relation.template) for pid, relation in read_relations(language=spoken).items()]
    columns = pa.schema([(name, pa.string()) for name in ("pid", "name", "template")])
    db.register("relations", pa.table(list(zip(*relations, strict=True)), schema=columns))
    db.execute("CREATE TEMP TABLE faults (file VARCHAR, row BIGINT, key VARCHAR, why VARCHAR)")
    for table in contents.present(folder):
        database.view(db, "rows", folder / table.parquet, numbered=True)
        renumbered = "SELECT * EXCLUDE file_row_number, file_row_number + 1 AS row FROM rows"
        db.execute(f"CREATE TEMP TABLE {table.name} AS {renumbered}")
        _check_rows(db, table)
    (count,) = database.row(db, "SELECT count(*) FROM faults")
    if count:
        first = db.sql(f"FROM faults ORDER BY ALL LIMIT {NAMED}").fetchall()
        named = "; ".join(f"{file} row {row} ({key}): {why}" for file, row, key, why in first)
        more = f"; and {count - NAMED:,} more" * (count > NAMED)
        raise LongtailError(f"not fit for a release, {count:,} faults: {named}{more}")


def _check_rows(db: duckdb.DuckDBPyConnection, table: contents.Table) -> None:
    """Insert the bad rows of a table of `db` into the table `faults`."""
    name = table.name
    key = "question_id" if "question_id" in table.columns else f"concat_ws(' ', {', '.join(table.key)})"

    def insert(why: str, rows: str) -> None:
        db.execute(f"INSERT INTO faults SELECT $file, row, {key}, {why} FROM {rows}", {"file": table.parquet})

    for column in table.columns.keys() - table.nullable:
        insert(f"'it has no {column}'", f"{name} WHERE {column} IS NULL")
    for column, bad, expected in ROWS[name]:
        value = f"array_to_string({column}, '|')" if table.columns[column][0] == contents.TEXTS else column
        quoted = expected.replace("'", "''")
        rows = f"{name} LEFT JOIN relations ON pid = relation WHERE ({bad}) AND {column} IS NOT NULL"
        insert(f"'its {column} is ' || {value} || ', expected {quoted}'", rows)
    for columns in UNIQUE.get(name, [", ".join(table.key)]):
        numbered = f"(SELECT *, min(row) OVER (PARTITION BY {columns}) AS first FROM {name})"
        insert(f"'its {columns} is that of row ' || first", f"{numbered} WHERE row > first")
    for columns, same, what in AGREEING.get(name, []):
        compared = f"""(SELECT *, {same} AS value, first_value({same}) OVER other AS expected,
                min(row) OVER other AS first
            FROM {name} WHERE s_uri IS NOT NULL WINDOW other AS (PARTITION BY {columns} ORDER BY row))"""
        insert(f"'its {what} is not that of row ' || first", f"{compared} WHERE value IS DISTINCT FROM expected")
