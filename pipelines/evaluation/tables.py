"""The tables that the stage `analyse` writes: how their columns are shown, and how rows are kept.

What columns a table has, and what they mean, is declared in pipelines/tables/analyses.py. A column
of `Interval`s takes three in the Parquet file: <name>, <name>_low and <name>_high, null if there
was nothing to measure.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines import yaml_files
from pipelines.intervals import NOTHING, Interval
from pipelines.storage import parquet
from pipelines.tables.analyses import BY_NAME

_SHARES = ("accuracy", "retrieved")


@dataclass(frozen=True)
class Shown:
    """How a column is shown, as tables.yaml says."""

    label: str
    unit: str = ""


_DECLARED = yaml_files.read(Path(__file__).with_name("tables.yaml"))
COLUMNS = {name: Shown(*words) for name, words in _DECLARED.items()}


def column(name: str) -> Shown:
    """How a column is shown; recalls and accuracies are shares."""
    if name in COLUMNS:
        return COLUMNS[name]
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


def with_intervals(rows: list[dict]) -> list[dict]:
    """Rows of a table with <name>, <name>_low and <name>_high as one Interval, where all three are
    there."""
    names = list(rows[0]) if rows else []
    figures = [name for name in names if {f"{name}_low", f"{name}_high"} <= set(names)]
    joined = []
    for row in rows:
        cells = dict(row)
        for name in figures:
            low = cells.pop(f"{name}_low")
            high = cells.pop(f"{name}_high")
            is_known = None not in (cells[name], low, high)
            cells[name] = Interval(cells[name], low, high) if is_known else NOTHING
        joined.append(cells)
    return joined
