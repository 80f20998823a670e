"""Tables of rows, which are dicts as evaluation/tables.py reads them."""

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pipelines.evaluation.tables import column
from pipelines.intervals import Interval
from pipelines.pages.section import Row, Table
from pipelines.pages.values import Percent, Share, label, named


def table_of(
    name: str,
    caption: str,
    rows: Sequence[Row],
    columns: Sequence[str],
    heads: Mapping[str, str] = MappingProxyType({}),
    csv_only: Collection[str] = (),
) -> Table:
    """The columns of rows as a table; a column without a head in `heads` has its label of
    tables.yaml.

    A column without a value is left out, and so is that of the language model where all rows are of
    one. The page also leaves out the columns `csv_only`, and a column with one name in all rows,
    such as that of the only question set.
    """
    shown: list[str] = []
    off_page: list[int] = []
    for name_of_column in columns:
        values = [row.get(name_of_column) for row in rows]
        is_same = len(set(values)) == 1
        if not any(map(is_known, values)) or (is_same and name_of_column == "lm"):
            continue
        says_nothing = is_same and column(name_of_column).unit == "name" and len(values) > 1
        if says_nothing or name_of_column in csv_only:
            off_page.append(len(shown))
        shown.append(name_of_column)

    head = [heads.get(name_of_column, column(name_of_column).label) for name_of_column in shown]
    cells = []
    for row in rows:
        cells.append([cell(row.get(name_of_column), name_of_column) for name_of_column in shown])
    return Table(name, caption, head, cells, off_page)


def cell(value: Any, name_of_column: str) -> Any:
    """A value of a column as a cell of a table: per cent of shares, labels of names."""
    unit = column(name_of_column).unit
    if value is None or not unit:
        return value
    if unit in ("share", "points"):
        if isinstance(value, Interval):
            return Percent(value, signed=unit == "points")
        return Share(value)
    return named(value) if unit == "relation" else label(value)


def is_known(value: Any) -> bool:
    """Whether a value is there: not None, and not a figure without a value."""
    if isinstance(value, Interval):
        return not math.isnan(value.value)
    return value is not None


def spread(rows: Sequence[Row], series: Mapping[str, str]) -> list[dict]:
    """A row for each of these columns: its value is `accuracy`, its words are `series`."""
    long = []
    for row in rows:
        for name_of_column, words in series.items():
            long.append({**row, "series": words, "accuracy": row[name_of_column]})
    return long
