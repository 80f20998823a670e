"""What a section of the report is: an entry with a claim, and with figures and tables of rows.

Rows are dicts, as `evaluation/tables.py` reads them; `tables.COLUMNS` says how a column is shown. A study is an entry
too: it says `after` which section it stands.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import jinja2

from pipelines.evaluation.tables import column
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.pages.drawing import STYLES
from pipelines.pages.section import AGREE, RULES, Block, Figure, Section, Table, by_rule
from pipelines.pages.values import Percent, Share, label, named
from pipelines.report.inputs import Inputs

Row = Mapping[str, Any]
Rows = Callable[[Inputs], Sequence[Row]]
Words = str | Callable[[Inputs, Sequence[Row]], str]
RULED = {
    "substring": ("substring", "word"),
    "gain": ("gain", "gain_word"),
}  # a column by each of RULES
NOTHING_MORE = MappingProxyType({})
JINJA = jinja2.Environment(
    undefined=jinja2.StrictUndefined
)  # of words and conditions in the YAML files


@dataclass(frozen=True)
class Shown:
    """A table: the `columns` of rows. `heads` are what columns are called here, where COLUMNS has another word."""

    name: str
    rows: Rows
    columns: Sequence[str]
    caption: Words
    heads: Mapping[str, str] = field(default_factory=dict)

    def blocks(self, inputs: Inputs) -> list[Block]:
        if not (rows := self.rows(inputs)):
            return []
        caption = self.caption if isinstance(self.caption, str) else self.caption(inputs, rows)
        return [table_of(self.name, caption, rows, self.columns, self.heads)]


@dataclass(frozen=True)
class Drawn:
    """Figures of rows, one for each value of the column `each`: `y` by `x`, a line or bars for each value of `series`.

    `kind` is a function of figures.py, `words` are those of its axes. A figure needs `least` values of x in a series.
    """

    kind: Callable[..., Figure]
    name: str
    rows: Rows | Sequence[Row]
    x: str | Callable[[Row], Any]
    y: str
    caption: Words
    words: Mapping[str, Any] = field(default_factory=dict)
    series: str = "series"
    each: str = ""
    least: int = 1

    def blocks(self, inputs: Inputs | None = None) -> list[Block]:
        rows = self.rows(inputs) if callable(self.rows) else self.rows
        values = dict.fromkeys(row[self.each] if self.each else "" for row in rows)
        groups = {
            of: [row for row in rows if not self.each or row[self.each] == of] for of in values
        }
        return [figure for of, group in groups.items() if (figure := self._of(of, group, inputs))]

    def _of(self, of: str, rows: list[Row], inputs: Inputs | None) -> Figure | None:
        series = [
            *dict.fromkeys(
                row[self.series] for row in rows if not math.isnan(_value(row[self.y]).value)
            )
        ]
        if (
            not series
            or max(sum(row[self.series] == one for row in rows) for one in series) < self.least
        ):
            return None
        name = "-".join(
            filter(None, (self.name, re.sub(r"[^\w.-]+", "-", of)))
        )  # an anchor and the name of a file
        caption = self.caption if isinstance(self.caption, str) else self.caption(inputs, rows)
        caption = f"{label(of)}: {caption}" if of else caption
        places = [self.x(row) if callable(self.x) else row[self.x] for row in rows]
        places = [label(place) if isinstance(place, str) else place for place in places]

        def draw(of: str) -> Figure:
            points: dict[str, list] = {
                one: [] for one in series[: len(STYLES)]
            }  # the table has all
            factor = 100 if column(of).unit in ("share", "points") else 1
            for row, place in zip(rows, places, strict=True):
                points.get(row[self.series], []).append((place, _value(row[of]).times(factor)))
            return self.kind(name, points, caption=caption, **self.words)

        columns = RULED.get(self.y, ())
        if not columns or any(column not in rows[0] for column in columns):
            return draw(self.y)
        if all(len({repr(_value(row[column])) for column in columns}) == 1 for row in rows):
            figure = draw(self.y)
            return replace(figure, caption=f"{figure.caption} {AGREE}")
        return by_rule(lambda rule: draw(columns[[*RULES].index(rule)]))


Part = str | Shown | Drawn | Callable[[Inputs], Sequence[Block]]


@dataclass(frozen=True)
class Entry:
    """A section: its claim by a rule of being right, what it shows, led by the first figure, and what is missing."""

    id: str
    title: str
    parts: Sequence[Part]
    says: Callable[[Inputs, str], str] = lambda inputs, rule: ""
    missing: Callable[[Inputs], str] = lambda inputs: ""
    after: str = ""

    def section(self, inputs: Inputs) -> Section | None:
        """The section of a run; None where the run has no figure and no table for it."""
        blocks: list[Block] = []
        for part in self.parts:
            made = (
                [part]
                if isinstance(part, str)
                else (part if callable(part) else part.blocks)(inputs)
            )
            blocks += [block for block in made if not isinstance(block, Table) or block.rows]
        if not any(isinstance(block, Table | Figure) for block in blocks):
            return None
        says = {rule: words for rule in RULES if (words := self.says(inputs, rule))}
        if len({*says.values()}) == 1:
            says = {"": next(iter(says.values()))}
        return Section(self.id, self.title, blocks, self.missing(inputs), says)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The entries as they stand on the page: one that has an `after` follows that one, if it is there."""
    entries = list(entries)
    ids = {entry.id for entry in entries}

    def following(id_: str) -> list[Entry]:
        behind = [entry for entry in entries if (entry.after if entry.after in ids else "") == id_]
        return [one for entry in behind for one in (entry, *following(entry.id))]

    return following("")


def table_of(
    name: str,
    caption: str,
    rows: Sequence[Row],
    columns: Sequence[str],
    heads: Mapping[str, str] = NOTHING_MORE,
) -> Table:
    """The columns of rows. One with no value is left out, and that of the language model where all rows are of one."""
    kept = [one for one in columns if any(known(row.get(one)) for row in rows)]
    kept = [one for one in kept if one != "lm" or len({row["lm"] for row in rows}) > 1]
    names = {one: heads.get(one, column(one).label) for one in kept}
    rules = {names[one]: column(one).rule for one in kept if column(one).rule}
    both = rules if len({*rules.values()}) == len(RULES) else {}
    return Table(
        name,
        caption,
        [*names.values()],
        [[cell(row.get(one), one) for one in kept] for row in rows],
        both,
    )


def known(value: Any) -> bool:
    return value is not None and not (isinstance(value, Interval) and math.isnan(value.value))


def cell(value: Any, name: str) -> Any:
    """A value of a column as a cell of a table."""
    unit = column(name).unit
    if value is None or not unit:
        return value
    if unit in ("share", "points"):
        return Percent(value, unit == "points") if isinstance(value, Interval) else Share(value)
    return named(value) if unit == "relation" else label(value)


def _value(value: Any) -> Interval:
    return (
        value
        if isinstance(value, Interval)
        else NOTHING
        if value is None
        else Interval(*[float(value)] * 3)
    )


def measured(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a metrics file as a row: an Interval each, and <name>_splits for the middle 95 % over splits."""
    row: dict[str, Any] = {}
    for name, value in found.items():
        if not isinstance(value, dict):
            row[name] = value
        elif "value" in value:
            row[name] = interval(value) if "low" in value else value["value"]
            if value.get("splits_low") is not None:
                middle = value.get("mean_over_splits", value["value"])
                row[f"{name}_splits"] = Interval(middle, value["splits_low"], value["splits_high"])
    return row


# where rows come from


def answered(table: str, **key: Any) -> Rows:
    """The rows of the main language model and the imported ones, `series` among their columns (Inputs.answered)."""
    return lambda inputs: [
        row for dataset in inputs.asked for row in inputs.answered(table, dataset=dataset, **key)
    ]


def of_main(table: str, **key: Any) -> Rows:
    """The rows of the main language model alone."""
    return lambda inputs: [
        row for dataset in inputs.asked for row in inputs.rows(table, dataset=dataset, **key)
    ]


def every(table: str) -> Rows:
    """All rows of a table."""
    return lambda inputs: inputs.tables[table]


def spread(rows: Sequence[Row], columns: Mapping[str, str]) -> list[Row]:
    """A row for each of these columns: its value is in `accuracy`, its words are the `series`."""
    return [
        row | {"series": words, "accuracy": row[name]}
        for row in rows
        for name, words in columns.items()
    ]


def where(rows: Rows, holds: Callable[[Row], Any]) -> Rows:
    """Those of the rows for which that holds."""
    return lambda inputs: [row for row in rows(inputs) if holds(row)]


def of_one_passage(rows: Rows) -> Rows:
    """The rows of methods that figures by popularity have: those of one passage at most; the tables have all."""
    return where(rows, lambda row: not row["method"].startswith("replug"))
