"""What a table has to be, and what in it is not so."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import duckdb

from pipelines.storage import database

FAULTS_NAMED = 5  # all others are only counted
ROW = "file_row_number"  # from 0; in words from 1


@dataclass(frozen=True)
class TableRules:
    """What the rows of a table have to be."""

    required: list[str] = field(default_factory=list)  # columns without nulls
    unique: list[list[str]] = field(default_factory=list)  # columns that identify a row together
    # column -> a condition of bad rows, in SQL -> what the column should be
    bad: dict[str, dict[str, str]] = field(default_factory=dict)
    # columns, an expression that is the same in rows that agree in them, and its name
    agreeing: list[tuple[list[str], str, str]] = field(default_factory=list)
    named_by: list[str] = field(default_factory=list)  # columns that name a row in a fault


class Faults(NamedTuple):
    """What in a table breaks its rules."""

    count: int
    first: list[str]  # in words, each with its row


def find_faults(db: duckdb.DuckDBPyConnection, rules: TableRules) -> Faults:
    """What in the view `rows`, which is numbered (`database.view`), breaks the rules."""
    queries = list(_queries(rules))
    if not queries:
        return Faults(0, [])

    db.execute(f"CREATE OR REPLACE TEMP TABLE faults AS {' UNION ALL '.join(queries)}")
    (count,) = database.row(db, "SELECT count(*) FROM faults")
    name = "''"
    if rules.named_by:
        name = f"' (' || concat_ws(' ', {_listed(rules.named_by)}) || ')'"
    first = db.sql(
        f"""SELECT 'row ' || {ROW} + 1 || {name} || ': ' || why
        FROM (FROM faults ORDER BY {ROW}, why LIMIT {FAULTS_NAMED}) JOIN rows USING ({ROW})
        ORDER BY {ROW}, why"""
    )
    return Faults(count, [text for (text,) in first.fetchall()])


def _queries(rules: TableRules) -> Iterator[str]:
    """A query for each rule: the rows that break it, and why."""
    for column in rules.required:
        yield f"""SELECT {ROW}, 'it has no {column}' AS why FROM rows WHERE "{column}" IS NULL"""

    for column, conditions in rules.bad.items():
        for condition, expected in conditions.items():
            is_bad = condition.replace("{column}", column)
            quoted = expected.replace("'", "''")
            yield f"""SELECT {ROW}, 'its {column} is ' || {column}::VARCHAR || ', expected {quoted}'
                AS why FROM rows WHERE ({is_bad}) AND {column} IS NOT NULL"""

    for columns in rules.unique:
        yield f"""SELECT {ROW}, 'its {", ".join(columns)} is that of row ' || first + 1 AS why
            FROM (SELECT {ROW}, min({ROW}) OVER (PARTITION BY {_listed(columns)}) AS first
                FROM rows)
            WHERE {ROW} > first"""

    for columns, expression, description in rules.agreeing:
        known = " AND ".join(f'"{column}" IS NOT NULL' for column in columns)
        yield f"""SELECT {ROW}, 'its {description} is not that of row ' || first + 1 AS why
            FROM (SELECT {ROW}, {expression} AS value,
                    first_value({expression}) OVER same AS expected, min({ROW}) OVER same AS first
                FROM rows WHERE {known}
                WINDOW same AS (PARTITION BY {_listed(columns)} ORDER BY {ROW}))
            WHERE value IS DISTINCT FROM expected"""


def _listed(columns: list[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
