"""Check a release's tables: duplicates, templates, answers, popularity (PopQA, 3.3, appendix A)."""

from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.errors import LongtailError
from pipelines.language.language import ENGLISH, Language
from pipelines.language.relations import read_relations
from pipelines.release import contents
from pipelines.storage import database

NAMED = 5  # faults that an error names; it counts the others


def check_tables(db: duckdb.DuckDBPyConnection, folder: Path, spoken: Language = ENGLISH) -> None:
    """Check the tables of a release's folder by tables.yaml; they stay in `db`, each with a column `row`.

    Questions are in the language `spoken`. Raises LongtailError that names the first bad rows, each with its place in
    the file and its key, and counts all.
    """
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
    for column, conditions in table.bad.items():
        value = f"array_to_string({column}, '|')" if table.columns[column][0] == "VARCHAR[]" else column
        for condition, expected in conditions.items():
            bad, quoted = condition.replace("{column}", column), expected.replace("'", "''")
            rows = f"{name} LEFT JOIN relations ON pid = relation WHERE ({bad}) AND {column} IS NOT NULL"
            insert(f"'its {column} is ' || {value} || ', expected {quoted}'", rows)
    for columns in [*table.unique, ", ".join(table.key)]:
        numbered = f"(SELECT *, min(row) OVER (PARTITION BY {columns}) AS first FROM {name})"
        insert(f"'its {columns} is that of row ' || first", f"{numbered} WHERE row > first")
    for columns, same, what in table.agreeing:
        compared = f"""(SELECT *, {same} AS value, first_value({same}) OVER other AS expected,
                min(row) OVER other AS first
            FROM {name} WHERE s_uri IS NOT NULL WINDOW other AS (PARTITION BY {columns} ORDER BY row))"""
        insert(f"'its {what} is not that of row ' || first", f"{compared} WHERE value IS DISTINCT FROM expected")
