"""The tables that the stage `analyse` writes: the columns of each, how these are
shown, and how rows are kept.

A column of `Interval`s takes three in the Parquet file: <name>, <name>_low and <name>_high,
null if there was nothing to measure.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import yaml

from pipelines import catalogue
from pipelines.intervals import NOTHING, Interval
from pipelines.storage import parquet

ENDS = ("", "_low", "_high")  # of an Interval's columns
_KINDS = {"": str, "int": int, "float": float, "bool": bool, "interval": Interval}
_TYPES = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
_SHARES = ("accuracy", "retrieved")


@dataclass(frozen=True)
class Column:
    """How a column is shown, as tables.yaml says."""

    label: str
    unit: str = ""


def read_columns(text: str) -> dict[str, type]:
    """The columns of a table and their types, as tables.yaml writes them: `<name>` or
    `<name>:<type>`."""
    columns = {}
    for word in text.split():
        name, _, kind = word.partition(":")
        columns[name] = _KINDS[kind]
    return columns


_DECLARED = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
COLUMNS = {name: Column(*words) for name, words in _DECLARED["columns"].items()}
COMPARED = _DECLARED["compared"]
TABLES = {name: read_columns(text) for name, text in _DECLARED["tables"].items()}
TABLES |= {f"common_{name}": TABLES[name] for name in COMPARED}
for _dataset in catalogue.names("questions"):
    TABLES["retrievers"][f"{_dataset}_recall_at_1"] = Interval
    TABLES["retrievers"][f"{_dataset}_word"] = Interval
TABLES["retrievers"] |= dict.fromkeys(("real_recall_at_1", "real_recall_at_10"), Interval)


def column(name: str) -> Column:
    """How a column is shown; <name>_splits is over splits, and recalls and accuracies are
    shares."""
    if name in COLUMNS:
        return COLUMNS[name]
    base = name.removesuffix("_splits")
    if base != name:
        over_all = column(base)
        return replace(over_all, label=f"{over_all.label}, over splits")

    if "recall_at_" in name or name.endswith("_word"):
        return Column(name.replace("_at_", "@"), "share")
    first, _, rest = name.partition("_")
    if first in _SHARES:
        return Column(f"{COLUMNS[first].label}, {rest}", "share")
    return Column(name.replace("_", " "))


def write_analyses(folder: Path, name: str, rows: Iterable[dict]) -> None:
    """Write rows, dicts with the columns of TABLES[name], to <folder>/<name>.parquet."""
    kinds = TABLES[name]
    fields = []
    for column, kind in kinds.items():
        arrow_type = _TYPES.get(kind, pa.float64())
        ends = ENDS if kind is Interval else ENDS[:1]
        fields += [(f"{column}{end}", arrow_type) for end in ends]

    flat = []
    for row in rows:
        assert set(row) == set(kinds), f"{name}: {set(row) ^ set(kinds)}"
        cells: dict = {}
        for column, value in row.items():
            if isinstance(value, Interval):
                cells |= value.columns(column)
            elif isinstance(value, float) and math.isnan(value):
                cells[column] = None
            else:
                cells[column] = value
        flat.append(cells)

    table = pa.Table.from_pylist(flat, pa.schema(fields))
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
