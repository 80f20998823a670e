"""What a month's tables have to be like before they are released, as conf/expectations.yaml and the
catalogue say.

The file explains the kinds of expectations. Each kind has one field of `Expect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from pipelines import catalogue
from pipelines.errors import LongtailError
from pipelines.params.param_types import Section, Share

FILE = Path("conf/expectations.yaml")
SET = "<set>"  # in a name and a table: each question set
Name = Annotated[str, Field(pattern=r"^(<set>|[a-z0-9]+)(-[a-z0-9]+)*$")]


class Bounds(Section):
    """What a value may be, and by what share it may change from one landed run to the next."""

    least: float | None = None
    most: float | None = None
    fall: Share | None = None
    rise: Annotated[float, Field(ge=0)] | None = None

    @property
    def reads(self) -> list[str]:
        """The columns that are read."""
        return []


class Rows(Bounds):
    """The number of rows."""


class Known(Bounds):
    """The share of rows that have a value in a column."""

    column: str

    @property
    def reads(self) -> list[str]:
        return [self.column]


class Titled(Bounds):
    """The share of labels that are the titles of their articles, case and (brackets) aside."""

    label: str
    title: str

    @property
    def reads(self) -> list[str]:
        return [self.label, self.title]


class NotWorse(Section):
    """Figures with intervals, of which none may be clearly worse than before."""

    figure: str  # a column, with <figure>_low and <figure>_high beside it
    by: list[str]  # the columns that say whose figure it is
    better: Literal["more", "less"]
    only: dict[str, str] = Field({})  # column -> its value in the rows that count
    fall: Share = 0.0  # share of the figure that may be lost in any case

    @property
    def interval(self) -> list[str]:
        """The columns of the figure and of its bounds."""
        return [self.figure, f"{self.figure}_low", f"{self.figure}_high"]

    @property
    def reads(self) -> list[str]:
        return [*self.interval, *self.by, *self.only]


class Expect(Section):
    """One kind of expectation."""

    rows: Rows | None = None
    no_nulls: list[str] | None = None
    unique: list[str] | None = None
    known: Known | None = None
    titled: Titled | None = None
    not_worse: NotWorse | None = None

    @model_validator(mode="after")
    def _has_one_kind(self) -> Expect:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"should have one of {', '.join(type(self).model_fields)}")
        return self

    @property
    def kind(self) -> str:
        (name,) = self.model_fields_set
        return name

    @property
    def settings(self) -> Any:
        """What the kind is given: columns, or a section."""
        return getattr(self, self.kind)

    @property
    def reads(self) -> list[str]:
        """The columns that a table needs, to be measured."""
        if isinstance(self.settings, list):
            return self.settings
        return self.settings.reads

    @property
    def bounds(self) -> Bounds:
        """The bounds of what is measured. Faults, which are counted, may be none."""
        if isinstance(self.settings, Bounds):
            return self.settings
        if isinstance(self.settings, NotWorse):
            return Bounds()
        return Bounds(most=0)


class Expectation(Section):
    """An entry of conf/expectations.yaml."""

    table: str  # a file below data/; * stands for any name of a file or folder
    expect: Expect
    because: str


class Expectations(Section):
    """All of conf/expectations.yaml."""

    expectations: dict[Name, Expectation]


def read_expectations(path: Path = FILE) -> dict[str, Expectation]:
    """The expectations by name: those of the file, if there is one, and the catalogue's own.

    Raises LongtailError with one line that says what is wrong in the file.
    """
    expectations = {}
    if path.is_file():
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise LongtailError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
        expectations = _of_each_set(_parse(values, path))

    own = {}
    for dataset in catalogue.names("answered"):
        table = f"questions/{dataset}/{dataset}.parquet"
        for name, entry in catalogue.DATASETS[dataset].expectations.items():
            own[f"{dataset}-{name}"] = {"table": table, **entry}
    return expectations | _parse(own, catalogue.FILE)


def _parse(values: Any, path: Path) -> dict[str, Expectation]:
    try:
        return Expectations.model_validate({"expectations": values}).expectations
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(name) for name in fault["loc"][1:])
        problem = fault["msg"].replace("Value error, ", "")
        raise LongtailError(f"{path}: {key}: {problem}") from None


def _of_each_set(expectations: Mapping[str, Expectation]) -> dict[str, Expectation]:
    """The expectations, with those of SET once for each question set that is answered."""
    expanded = {}
    for name, entry in expectations.items():
        datasets = catalogue.names("answered") if SET in name else [SET]
        for dataset in datasets:
            table = entry.table.replace(SET, dataset)
            expanded[name.replace(SET, dataset)] = entry.model_copy(update={"table": table})
    return expanded
