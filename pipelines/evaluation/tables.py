"""The tables that the stage `analyse` writes: how their columns are shown, and how rows are kept.

What columns a table has, and what they mean, is declared in pipelines/tables/analyses.py. A column
of `Interval`s takes three in the Parquet file: <name>, <name>_low and <name>_high, null if there
was nothing to measure.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import yaml

from pipelines.intervals import NOTHING, Interval
from pipelines.storage import parquet
from pipelines.tables.analyses import BY_NAME
from pipelines.tables.table import ENDS

_SHARES = ("accuracy", "retrieved")


@dataclass(frozen=True)
class Shown:
    """How a column is shown, as tables.yaml says."""

    label: str
    unit: str = ""


_DECLARED = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
COLUMNS = {name: Shown(*words) for name, words in _DECLARED.items()}


def column(name: str) -> Shown:
    """How a column is shown; <name>_splits is over splits, and recalls and accuracies are
    shares."""
    if name in COLUMNS:
        return COLUMNS[name]
    base = name.removesuffix("_splits")
    if base != name:
        over_all = column(base)
        return replace(over_all, label=f"{over_all.label}, over splits")

    if "recall_at_" in name or name.endswith("_word"):
        return Shown(name.replace("_at_", "@"), "share")
    first, _, rest = name.partition("_")
    if first in _SHARES:
        return Shown(f"{COLUMNS[first].label}, {rest}", "share")
    return Shown(name.replace("_", " "))


def write_analyses(folder: Path, name: str, rows: Iterable[dict]) -> None:
    """Write rows, dicts with the columns of the table, to <folder>/<name>.parquet."""
    declared = BY_NAME[name]
    flat = []
    for row in rows:
        others = set(row) ^ set(declared.column_names)
        assert not others, f"{name}: {others}"
        cells: dict = {}
        for column, value in row.items():
            if isinstance(value, Interval):
                cells |= value.columns(column)
            elif isinstance(value, float) and math.isnan(value):
                cells[column] = None
            else:
                cells[column] = value
        flat.append(cells)

    table = pa.Table.from_pylist(flat, declared.schema)
    parquet.write_parquet(table, folder / f"{name}.parquet")


def read_analyses(folder: Path, name: str) -> list[dict]:
    """The rows that `write_analyses` wrote. A column with a _low and a _high beside it has
    Intervals."""
    table = parquet.read_parquet(folder / f"{name}.parquet")
    intervals = []
    for column in table.column_names:
        if f"{column}_low" in table.column_names:
            intervals.append(column)

    rows = table.to_pylist()
    for row in rows:
        for column in intervals:
            value, low, high = [row.pop(f"{column}{end}") for end in ENDS]
            row[column] = NOTHING if value is None else Interval(value, low, high)

    return rows
