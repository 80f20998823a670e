"""What the last landed run measured, as conf/baseline.yaml of its commit has it.

The file has an entry for each value: as it was in that run, and as it is in the reference. The
reference is the run in which the value was first measured, so that a small loss each month adds
up. An acceptance makes the accepted value the reference.

A value is compared only while the params that its table depends on stay the same: other params
make other tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml
from pydantic import BaseModel, TypeAdapter

from pipelines import yaml_files
from pipelines.check.entries import parse_entries
from pipelines.intervals import Interval
from pipelines.storage.atomic import write_text

if TYPE_CHECKING:
    import pyarrow as pa

FILE = Path("conf/baseline.yaml")
HEAD = "# What the last landed run measured, for the gate of the next one (docs/schedules.md).\n"
LINE_CHARS = 200


class Key(NamedTuple):
    """What a value is of."""

    expectation: str
    file: str  # below data/
    measure: str


class Earlier(BaseModel, frozen=True):
    """An entry of conf/baseline.yaml: a value in the last landed run and in the reference."""

    key: Key
    last: Interval
    reference: Interval
    params: str  # a hash of the params that its table depends on


ENTRIES = TypeAdapter(list[Earlier])
Baseline = Mapping[Key, Earlier]


def read_baseline(text: str, params: Mapping[str, str]) -> dict[Key, Earlier]:
    """The entries of a baseline's text that a run with these `params` (file -> hash) is compared
    with.
    """
    entries = parse_entries(yaml_files.parse(text) or [], ENTRIES, FILE)
    return {entry.key: entry for entry in entries if params.get(entry.key.file) == entry.params}


def write_baseline(baseline: Baseline) -> None:
    """Write the entries in the order of their keys."""
    entries = ENTRIES.dump_python([baseline[key] for key in sorted(baseline)], mode="json")
    text = yaml.safe_dump(
        entries, sort_keys=False, allow_unicode=True, default_flow_style=None, width=LINE_CHARS
    )
    write_text(FILE, HEAD + text)


def next_baseline(
    earlier: Baseline, measures: pa.Table, params: Mapping[str, str], accepted: Collection[Key]
) -> dict[Key, Earlier]:
    """The baseline of a run that lands, in which the values `accepted` become the reference.

    `earlier` are the entries that it was compared with, and `params` are as for `read_baseline`.
    """
    baseline = {}
    for key, value in values(measures):
        reference = value
        if key in earlier and key not in accepted:
            reference = earlier[key].reference
        baseline[key] = Earlier(key=key, last=value, reference=reference, params=params[key.file])
    return baseline


def values(measures: pa.Table) -> Iterator[tuple[Key, Interval]]:
    """The values that were measured (MEASURES). One without an interval is exact.

    A share of no rows has no value.
    """
    for row in measures.to_pylist():
        value = row["value"]
        if value is None:
            continue
        figure = Interval(value, value, value)
        if row["low"] is not None:
            figure = Interval(value, row["low"], row["high"])
        yield Key(row["expectation"], row["file"], row["measure"]), figure
