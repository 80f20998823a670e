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
    """The rows of a table that break its rules."""

    total: int
    first: list[str]  # in words


class Rule(NamedTuple):
    """One rule."""

    fault: str  # what is said of a row that breaks it; {} is its value
    query: str  # the rows that break it: their numbers, and the `value`


def find_faults(db: duckdb.DuckDBPyConnection, rules: TableRules) -> Faults:
    """The faults of the view `rows`, which is numbered (`database.view`)."""
    named_rules = list(_rules(rules))
    queries = []
    for number, rule in enumerate(named_rules):
        queries.append(
            f"SELECT {ROW}, {number} AS rule, value::VARCHAR AS value FROM ({rule.query})"
        )
    db.execute(f"CREATE OR REPLACE TEMP TABLE faults AS {' UNION ALL '.join(queries)}")

    (count,) = database.row(db, "SELECT count(*) FROM faults")
    rows = db.sql(
        f"""SELECT {ROW} + 1, concat_ws(' ', {_listed(rules.named_by) or "NULL"}), rule, value
        FROM (FROM faults ORDER BY {ROW}, rule LIMIT {FAULTS_NAMED}) JOIN rows USING ({ROW})
        ORDER BY {ROW}, rule"""
    )
    first = []
    for row, name, number, value in rows.fetchall():
        place = f"row {row} ({name})" if name else f"row {row}"
        first.append(f"{place}: {named_rules[number].fault.format(value)}")
    return Faults(count, first)


def _rules(rules: TableRules) -> Iterator[Rule]:
    for column in rules.required:
        query = f'SELECT {ROW}, NULL AS value FROM rows WHERE "{column}" IS NULL'
        yield Rule(f"it has no {column}", query)

    for column, conditions in rules.bad.items():
        for condition, expected in conditions.items():
            is_bad = condition.replace("{column}", column)
            query = f"""SELECT {ROW}, {column} AS value FROM rows
                WHERE ({is_bad}) AND {column} IS NOT NULL"""
            yield Rule(f"its {column} is {{}}, expected {expected}", query)

    for columns in rules.unique:
        query = f"""SELECT {ROW}, first + 1 AS value
            FROM (SELECT {ROW}, min({ROW}) OVER (PARTITION BY {_listed(columns)}) AS first
                FROM rows)
            WHERE {ROW} > first"""
        yield Rule(f"its {', '.join(columns)} is that of row {{}}", query)

    for columns, expression, description in rules.agreeing:
        known = " AND ".join(f'"{column}" IS NOT NULL' for column in columns)
        query = f"""SELECT {ROW}, first + 1 AS value
            FROM (SELECT {ROW}, {expression} AS agreed,
                    first_value({expression}) OVER same AS expected, min({ROW}) OVER same AS first
                FROM rows WHERE {known}
                WINDOW same AS (PARTITION BY {_listed(columns)} ORDER BY {ROW}))
            WHERE agreed IS DISTINCT FROM expected"""
        yield Rule(f"its {description} is not that of row {{}}", query)


def _listed(columns: list[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
