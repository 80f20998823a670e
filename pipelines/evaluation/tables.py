"""The tables that the stage `analyse` writes: the columns of each, how these are shown, and how rows are kept.

A column of `Interval`s takes three in the Parquet file: <name>, <name>_low and <name>_high, null if there was nothing
to measure. Studies bring tables of their own.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import yaml

from pipelines import all_studies, catalogue
from pipelines.intervals import NOTHING, Interval
from pipelines.storage import parquet

ENDS = ("", "_low", "_high")  # of an Interval's columns
NUMBERED = {
    "k",
    "decile",
    "bin",
    "least",
    "most",
}  # columns of numbers that name a row, as texts do
_KINDS = {"": str, "int": int, "float": float, "bool": bool, "interval": Interval}
_TYPES = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
_SHARES = ("accuracy", "retrieved")


@dataclass(frozen=True)
class Column:
    """How a column is shown, as tables.yaml says."""

    label: str
    unit: str = ""
    rule: str = ""


_SAID = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
COLUMNS = {name: Column(*said) for name, said in _SAID["columns"].items()}
TABLES: dict[str, dict[str, type]] = {
    name: {
        column: _KINDS[kind]
        for column, _, kind in (said.partition(":") for said in columns.split())
    }
    for name, columns in _SAID["tables"].items()
}
COMPARED = _SAID["compared"]
TABLES |= {f"common_{name}": TABLES[name] for name in COMPARED}
for _name in (
    f"{of}_{what}" for of in catalogue.names("answered") for what in ("recall_at_1", "word")
):
    TABLES["retrievers"][_name] = Interval
TABLES["retrievers"] |= dict.fromkeys(("real_recall_at_1", "real_recall_at_10"), Interval)
for _study in all_studies.studies_offering("TABLES"):
    for _name, _columns in _study.TABLES.items():
        TABLES[_name] = {
            column: Interval if kind == "Interval" else kind for column, kind in _columns.items()
        }


def column(name: str) -> Column:
    """How a column is shown; <name>_splits is over splits, and recalls and accuracies are shares."""
    if name in COLUMNS:
        return COLUMNS[name]
    if (base := name.removesuffix("_splits")) != name:
        return replace(column(base), label=f"{column(base).label}, over splits")
    if "recall_at_" in name or name.endswith("_word"):
        return Column(name.replace("_at_", "@"), "share")
    kind, _, what = name.partition("_")
    return (
        Column(f"{COLUMNS[kind].label}, {what}", "share")
        if kind in _SHARES
        else Column(name.replace("_", " "))
    )


def write_analyses(folder: Path, name: str, rows: Iterable[dict]) -> None:
    """Write rows, dicts with the columns of TABLES[name], to <folder>/<name>.parquet."""
    kinds, flat = TABLES[name], []
    fields = [
        (f"{column}{end}", _TYPES.get(kind, pa.float64()))
        for column, kind in kinds.items()
        for end in (ENDS if kind is Interval else ENDS[:1])
    ]
    for row in rows:
        assert set(row) == set(kinds), f"{name}: {set(row) ^ set(kinds)}"
        cells: dict = {}
        for column, value in row.items():
            nothing = isinstance(value, float) and math.isnan(value)
            cells |= (
                value.columns(column)
                if isinstance(value, Interval)
                else {column: None if nothing else value}
            )
        flat.append(cells)
    parquet.write_parquet(pa.Table.from_pylist(flat, pa.schema(fields)), folder / f"{name}.parquet")


def read_analyses(folder: Path, name: str) -> list[dict]:
    """The rows that `write` wrote."""
    intervals = [column for column, kind in TABLES[name].items() if kind is Interval]
    rows = parquet.read_parquet(folder / f"{name}.parquet").to_pylist()
    for row in rows:
        for column in intervals:
            parts = [row.pop(f"{column}{end}") for end in ENDS]
            row[column] = NOTHING if parts[0] is None else Interval(*parts)
    return rows


def popularity_of(data: Path, name: str) -> tuple[Path, str]:
    """The file and the column with the popularity of what a question set asks about."""
    folder = data / "questions" / name
    if catalogue.DATASETS[name].answered:
        return folder / f"{name}.parquet", "s_pop"
    return folder / "popularity.parquet", "popularity"
