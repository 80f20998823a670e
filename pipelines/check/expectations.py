"""What a month's tables have to be like before they are released, as conf/expectations.yaml and the
catalogue say.

The file explains the kinds of expectations. Each kind has one field of `Expect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import duckdb
from pydantic import Field, TypeAdapter, model_validator

from pipelines import catalogue
from pipelines.check.entries import parse_entries, read_entries
from pipelines.params.param_types import Section, Share
from pipelines.storage import database

FILE = Path("conf/expectations.yaml")
SET = "<set>"  # in a name and a table: each question set
Name = Annotated[str, Field(pattern=r"^(<set>|[a-z0-9]+)(-[a-z0-9]+)*$")]


class Bounds(Section):
    """What a value may be, and by what share it may change from one landed run to the next."""

    least: float | None = None
    most: float | None = None
    fall: Share | None = None
    rise: Annotated[float, Field(ge=0)] | None = None


class Value(NamedTuple):
    """What was measured of the view `rows`; exact if it has no interval."""

    measure: str
    value: float | None
    low: float | None = None
    high: float | None = None


class Rows(Bounds):
    """The number of rows."""

    def measure(self, db: duckdb.DuckDBPyConnection) -> list[Value]:
        (rows,) = database.row(db, "SELECT count(*) FROM rows")
        return [Value("rows", rows)]


class Known(Bounds):
    """The share of rows that have a value in a column."""

    column: str

    def measure(self, db: duckdb.DuckDBPyConnection) -> list[Value]:
        share = f'count("{self.column}") / nullif(count(*), 0)'
        (value,) = database.row(db, f"SELECT {share} FROM rows")
        return [Value(f"share of rows with {self.column}", value)]


class Titled(Bounds):
    """The share of labels that are the titles of their articles, case and (brackets) aside.

    Paris is the title Paris (Texas) too.
    """

    label: str
    title: str

    def measure(self, db: duckdb.DuckDBPyConnection) -> list[Value]:
        title = f"""regexp_replace("{self.title}", ' [(].*[)]$', '')"""
        share = f"""avg((lower("{self.label}") = lower({title}))::INTEGER)"""
        (value,) = database.row(db, f"SELECT {share} FROM rows")
        return [Value(f"share of {self.label} that is {self.title}", value)]


class Figure(Bounds):
    """Figures with intervals: a column, with <column>_low and <column>_high beside it."""

    column: str
    by: list[str]  # the columns that say whose figure it is
    only: dict[str, str] = Field({})  # column -> its value in the rows that count

    def measure(self, db: duckdb.DuckDBPyConnection) -> list[Value]:
        whose = ", ".join(f'"{column}"' for column in self.by)
        conditions = [f'"{self.column}_low" IS NOT NULL']
        conditions += [f'"{column}" = ?' for column in self.only]
        rows = db.sql(
            f"""SELECT concat_ws(' ', {whose}), "{self.column}", "{self.column}_low",
                "{self.column}_high"
            FROM rows WHERE {" AND ".join(conditions)}""",
            params=list(self.only.values()),
        )
        figures = []
        for name, value, low, high in rows.fetchall():
            figures.append(Value(f"{self.column} for {name}", value, low, high))
        return figures


class Expect(Section):
    """One kind of expectation."""

    rows: Rows | None = None
    known: Known | None = None
    titled: Titled | None = None
    figure: Figure | None = None
    no_nulls: list[str] | None = None
    unique: list[str] | None = None

    @model_validator(mode="after")
    def _has_one_kind(self) -> Expect:
        if len(self.model_fields_set) != 1 or not any(vars(self).values()):
            kinds = ", ".join(type(self).model_fields)
            raise ValueError(f"should have one of {kinds}, and what it expects")
        return self

    @property
    def measured(self) -> Rows | Known | Titled | Figure | None:
        """What is measured and bounded; None if faults are counted, of which there may be none."""
        return self.rows or self.known or self.titled or self.figure

    @property
    def bounds(self) -> Bounds:
        return self.measured or Bounds(most=0)


class Expectation(Section):
    """An entry of conf/expectations.yaml."""

    table: str  # a file below data/; * stands for any name of a file or folder
    expect: Expect
    because: str


EXPECTATIONS = TypeAdapter(dict[Name, Expectation])


def read_expectations(path: Path = FILE) -> dict[str, Expectation]:
    """The expectations by name: those of the file, if there is one, and the catalogue's own.

    Raises LongtailError with one line that says what is wrong in the file.
    """
    expectations = _of_each_set(read_entries(path, EXPECTATIONS) or {})
    own = {}
    for dataset in catalogue.names("questions"):
        table = f"questions/{dataset}/{dataset}.parquet"
        for name, entry in catalogue.DATASETS[dataset].expectations.items():
            own[f"{dataset}-{name}"] = {"table": table, **entry}
    return expectations | parse_entries(own, EXPECTATIONS, catalogue.FILE)


def _of_each_set(expectations: Mapping[str, Expectation]) -> dict[str, Expectation]:
    """The expectations, with those of SET once for each question set."""
    expanded = {}
    for name, entry in expectations.items():
        datasets = catalogue.names("questions") if SET in name else [SET]
        for dataset in datasets:
            table = entry.table.replace(SET, dataset)
            expanded[name.replace(SET, dataset)] = entry.model_copy(update={"table": table})
    return expanded
