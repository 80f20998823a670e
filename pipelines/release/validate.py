"""Check a release's tables: schema, duplicates, templates, answers, popularity (PopQA, 3.3, appendix A)."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.adaptive import rule
from pipelines.errors import LongtailError
from pipelines.questions import published
from pipelines.questions.entityquestions import LINKS
from pipelines.release import contents, schema
from pipelines.sources.rejects import Rejects
from pipelines.storage import database, parquet

NAMED = 5  # faults that an error names; it counts the others
URI = r"http://www\.wikidata\.org/entity/Q[1-9]\d*"
LINKED = "link IN ('label', 'alias')"

# table -> checks: (condition of a bad row, why it is bad), both SQL over the table's columns
ROWS = {
    "popqa": [
        (
            "template IS NULL OR prop != name",
            "'its relation ' || relation || ' is called ' || prop || ', expected one of relations.yaml'",
        ),
        (
            "question != replace(template, '{}', subj)",
            "'its question is ' || question || ', expected ' || replace(template, '{}', subj)",
        ),
        (
            f"NOT regexp_full_match(s_uri, '{URI}') OR NOT regexp_full_match(o_uri, '{URI}')",
            "'its addresses are ' || s_uri || ' and ' || o_uri || ', expected two of Wikidata''s'",
        ),
        ("len(possible_answers) = 0", "'it has no answer'"),
        (
            "len(list_filter(possible_answers, lambda name: trim(coalesce(name, '')) = '')) > 0",
            "'one of its answers is blank'",
        ),
        (
            "len(possible_answers) > 0 AND NOT list_contains(possible_answers, obj)",
            "'its object ' || obj || ' is not among its answers'",
        ),
        (  # some published rows name an answer twice
            "origin = 'wikidata' AND len(list_distinct(possible_answers)) < len(possible_answers)",
            "'it names an answer twice'",
        ),
        ("s_pop < 0", "'its subject has ' || s_pop || ' page views'"),
        (  # -2 is the published set's mark for unknown page views
            "o_pop < 0 AND NOT (origin = 'published' AND o_pop = -2)",
            "'its object has ' || o_pop || ' page views'",
        ),
        ("split NOT IN ('train', 'test')", "'its split is ' || split || ', expected train or test'"),
        ("NOT regexp_full_match(month, '\\d{4}-(0[1-9]|1[0-2])')", "'its month is ' || month || ', expected YYYY-MM'"),
        (
            "origin NOT IN ('wikidata', 'published')",
            "'its origin is ' || origin || ', expected wikidata or published'",
        ),
    ],
    "entityquestions_links": [
        (f"link NOT IN {LINKS}", "'its link is ' || link"),
        (
            f"({LINKED}) != (s_uri IS NOT NULL) OR NOT regexp_full_match(s_uri, '{URI}')",
            "'it is linked (' || link || ') to ' || coalesce(s_uri, 'nothing')",
        ),
        ("s_pop < 0 OR (s_uri IS NULL AND s_pop IS NOT NULL)", "'its subject has ' || s_pop || ' page views'"),
        ("split NOT IN ('train', 'test')", "'its split is ' || split || ', expected train or test'"),
    ],
    "thresholds": [
        ("threshold < 0 OR isnan(threshold)", "'its threshold is ' || threshold || ', expected page views'"),
        (
            "threshold_low > threshold_high",
            "'its threshold lies from ' || threshold_low || ' to ' || threshold_high",
        ),
        (
            "NOT (least(closed_book, augmented, adaptive, retrieved) >= 0 "
            "AND greatest(closed_book, augmented, adaptive, retrieved) <= 1)",
            "'its accuracies are not all from 0 to 1'",
        ),
        ("questions < 1", "'it is about ' || questions || ' questions'"),
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


def check_tables(db: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Check the tables of a release's folder; they stay in `db` under their names, with a column `row`.

    Columns and relations are those of the release's own schema. A check counts only where that schema has its columns.
    Raises LongtailError that names the first bad rows, each with its place in the file and its key, and counts all.
    """
    held_to = schema.read_schema(folder)
    relations = [(pid, relation.name, relation.template) for pid, relation in held_to.relations.items()]
    columns = pa.schema([(name, pa.string()) for name in ("pid", "name", "template")])
    db.register("relations", pa.table(list(zip(*relations, strict=True)) or [[]] * 3, schema=columns))
    db.execute("CREATE TEMP TABLE faults (file VARCHAR, row BIGINT, key VARCHAR, why VARCHAR)")
    for name, table in held_to.tables.items():
        file = folder / f"{name}.parquet"
        if file.is_file():
            _check_schema(file, table)
            database.view(db, "rows", file, numbered=True)
            db.execute(
                f"""CREATE TEMP TABLE {name} AS
                SELECT * EXCLUDE file_row_number, file_row_number + 1 AS row FROM rows"""
            )
            _check_rows(db, name, table)
    (count,) = database.row(db, "SELECT count(*) FROM faults")
    if count:
        named = "; ".join(
            f"{file} row {row} ({key}): {why}"
            for file, row, key, why in db.sql(f"FROM faults ORDER BY ALL LIMIT {NAMED}").fetchall()
        )
        raise LongtailError(
            f"not fit for a release, {count:,} faults: {named}" + f"; and {count - NAMED:,} more" * (count > NAMED)
        )
    _check_tsv(folder)
    _check_rules(db, folder)


def _check_schema(file: Path, table: schema.Table) -> None:
    """Raise LongtailError where a file's columns have other names or types than the schema's."""
    columns = [f"{name} {kind}" for name, kind in contents.column_types(file).items()]
    expected = [f"{name} {kind}" for name, kind in table.types.items()]
    for column, wanted in zip_longest(columns, expected, fillvalue="nothing"):
        if column != wanted:
            raise LongtailError(f"{file.name}: its columns have {column} where {wanted} is expected")


def _check_rows(db: duckdb.DuckDBPyConnection, name: str, table: schema.Table) -> None:
    """Insert the bad rows of a table of `db` into the table `faults`."""
    file = f"{name}.parquet"
    key = "question_id" if "question_id" in table.types else f"concat_ws(' ', {', '.join(table.key)})"
    rows = f"{name} LEFT JOIN relations ON pid = relation" if "relation" in table.types else name
    required = [column.name for column in table.columns if not column.nullable]
    checks = [(f"{name} IS NULL", f"'it has no {name}'") for name in required]
    checks += [check for check in ROWS.get(name, []) if _applies(name, table, *check)]
    for bad, why in checks:
        db.execute(  # a reason with a null in it is null: the null itself is another fault
            f"""INSERT INTO faults SELECT $file, row, {key}, {why}
            FROM {rows} WHERE ({bad}) AND ({why}) IS NOT NULL""",
            {"file": file},
        )
    for columns in UNIQUE.get(name, [", ".join(table.key)]):
        if _applies(name, table, columns):
            db.execute(
                f"""INSERT INTO faults SELECT $file, row, {key}, 'its {columns} is that of row ' || first
                FROM (SELECT *, min(row) OVER (PARTITION BY {columns}) AS first FROM {name}) WHERE row > first""",
                {"file": file},
            )
    for columns, same, what in AGREEING.get(name, []):
        if _applies(name, table, columns, same, "s_uri"):
            db.execute(
                f"""INSERT INTO faults SELECT $file, row, {key}, 'its {what} is not that of row ' || first
                FROM (SELECT *, {same} AS value, first_value({same}) OVER other AS expected,
                    min(row) OVER other AS first
                    FROM {name} WHERE s_uri IS NOT NULL WINDOW other AS (PARTITION BY {columns} ORDER BY row))
                WHERE value IS DISTINCT FROM expected""",
                {"file": file},
            )


def _applies(name: str, table: schema.Table, *sql: str) -> bool:
    """Whether a release's table has the columns that a check names, with the types of today's columns."""
    ours = next((today.columns for today in contents.TABLES if today.name == name), {})
    words = set(re.findall(r"\w+", " ".join(sql)))
    return all(table.types.get(column) == kind for column, (kind, _) in ours.items() if column in words)


def _check_tsv(folder: Path) -> None:
    """Raise LongtailError where PopQA's file in the published format, read again, differs from the table."""
    file = folder / contents.POPQA.tsv
    table = parquet.read_parquet(folder / contents.POPQA.parquet, columns=published.COLUMNS)
    again = published.read_published(file, Rejects(0.0))
    for name in published.COLUMNS:
        values, read_again = table[name], again[name]
        if name.endswith("wiki_title"):  # the published format has an empty text for a missing title
            values, read_again = pc.fill_null(values, ""), pc.fill_null(read_again, "")
        if values.to_pylist() != read_again.to_pylist():
            raise LongtailError(f"{file.name}: its column {name} is not that of {contents.POPQA.parquet}")


def _check_rules(db: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Raise LongtailError where the rules are not those of the table of thresholds; the first releases have none."""
    files = contents.rules(folder)
    read = {
        name: rule.parse(json.loads(file.read_text(encoding="utf-8")), f"{contents.RULES}/{name}.json")
        for name, file in files.items()
    }
    deployed: dict[str, dict[str, float]] = {name: {} for name in read}
    if read:
        columns = "dataset || '/' || lm || '/' || method, search, relation, deployed"
        for name, search, relation, cut in db.sql(f"SELECT {columns} FROM thresholds").fetchall():
            if name not in read or search == read[name].search:
                deployed.setdefault(name, {})[relation] = cut
    for name, cuts in deployed.items():
        if name not in read:
            raise LongtailError(f"{contents.RULES}/{name}.json: no such file, expected the rule of these thresholds")
        if cuts != read[name].rule.thresholds:
            raise LongtailError(
                f"{contents.RULES}/{name}.json: its thresholds are not `deployed` in {contents.THRESHOLDS.parquet}"
            )
