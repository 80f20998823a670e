"""What a section of the report is: an entry with a claim, and with figures and tables of rows.

Rows are dicts, as `evaluation/tables.py` reads them; `tables.COLUMNS` says how a column is shown. A study is an entry
too: it says `after` which section it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pipelines.evaluation.tables import column
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.report import figures
from pipelines.report.drawing import PALETTE
from pipelines.report.explored import Explored
from pipelines.report.inputs import Inputs
from pipelines.report.page import RULES, Block, Figure, Percent, Section, Share, Table, by_rule, label, named

Row = Mapping[str, Any]
Rows = Callable[[Inputs], Sequence[Row]]
Words = str | Callable[[Inputs, Sequence[Row]], str]
RULED = {"substring": ("substring", "word"), "gain": ("gain", "gain_word")}  # a column by each of RULES
NOTHING_MORE = MappingProxyType({})


@dataclass(frozen=True)
class Shown:
    """A table: the `columns` of rows. `heads` are what columns are called here, where COLUMNS has another word."""

    name: str
    rows: Rows
    columns: Sequence[str]
    caption: Words
    heads: Mapping[str, str] = field(default_factory=dict)

    def blocks(self, inputs: Inputs) -> list[Block]:
        rows = self.rows(inputs)
        return [table_of(self.name, said(self.caption, inputs, rows), rows, self.columns, self.heads)] if rows else []


@dataclass(frozen=True)
class Drawn:
    """Figures of rows, one for each value of the column `each`: `y` by `x`, a line or bars for each value of `series`.

    `kind` is one of `lines`, `bars` and `ranges`, `words` are those of its axes. With `parts`, the reader can choose a
    relation's figure, of rows by relation. A figure needs `least` values of x in a series.
    """

    kind: Callable[..., Figure]
    name: str
    rows: Rows
    x: str | Callable[[Row], Any]
    y: str
    caption: Words
    words: Mapping[str, Any] = field(default_factory=dict)
    series: str = "series"
    each: str = ""
    parts: Rows | None = None
    least: int = 1

    def blocks(self, inputs: Inputs) -> list[Block]:
        return [figure for rows in self.groups(self.rows(inputs)) if (figure := self._of(rows, inputs))]

    def groups(self, rows: Sequence[Row]) -> list[list[Row]]:
        values = dict.fromkeys(row[self.each] if self.each else "" for row in rows)
        return [[row for row in rows if not self.each or row[self.each] == value] for value in values]

    def _of(self, rows: list[Row], inputs: Inputs) -> Figure | None:
        of = rows[0][self.each] if self.each else ""
        own = "-".join(filter(None, (self.name, re.sub(r"[^\w.-]+", "-", of))))  # an anchor and the name of a file
        whole = self._draw(rows, own, label(of), inputs)
        if whole is None or self.parts is None:
            return whole
        of_parts, choices = [row for row in self.parts(inputs) if not of or row[self.each] == of], {}
        for relation in dict.fromkeys(row["relation"] for row in of_parts):
            bins, name = [row for row in of_parts if row["relation"] == relation], named(relation)
            if max(sum(row[self.series] == one for row in bins) for one in {row[self.series] for row in bins}) > 1:
                choice = self._draw(bins, f"{own}-{relation}", f"{label(of)}, {name}", inputs)
                choices |= {name: choice} if choice else {}
        return replace(whole, by="relation", choices=choices)

    def _draw(self, rows: list[Row], name: str, title: str, inputs: Inputs) -> Figure | None:
        series = [*dict.fromkeys(row[self.series] for row in rows if math.isfinite(_value(row[self.y]).value))]
        if not series or max(sum(row[self.series] == one for row in rows) for one in series) < self.least:
            return None
        caption = f"{f'{title}: ' * bool(title)}{said(self.caption, inputs, rows)}"
        return chart(self.kind, name, caption, rows, series, self.x, self.y, self.series, **self.words)


Part = str | Shown | Drawn | Callable[[Inputs], Sequence[Block]]


@dataclass(frozen=True)
class Entry:
    """A section: `says` is its claim by a rule of being right, `parts` are what it shows, the first figure as its lead.

    `missing` says what else there is no data for, `explored` which questions of the claim one can look at.
    """

    id: str
    title: str
    parts: Sequence[Part]
    says: Callable[[Inputs, str], str] = lambda inputs, rule: ""
    missing: Callable[[Inputs], str] = lambda inputs: ""
    explored: Callable[[Inputs], Explored] | None = None
    after: str = ""

    def section(self, inputs: Inputs) -> Section | None:
        """The section of a run; None where the run has no figure and no table for it."""
        blocks: list[Block] = []
        for part in self.parts:
            made = [part] if isinstance(part, str) else (part if callable(part) else part.blocks)(inputs)
            blocks += [block for block in made if not isinstance(block, Table) or block.rows]
        if not any(isinstance(block, Table | Figure) for block in blocks):
            return None
        sentences = {rule: self.says(inputs, rule) for rule in RULES}
        says = sentences if len({*sentences.values()}) > 1 else next(iter(sentences.values()))
        explored = self.explored(inputs) if self.explored and says else None
        return Section(self.id, self.title, blocks, self.missing(inputs), says, explored)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The entries as they stand on the page: each one that has an `after` behind that one, or else at the end."""
    entries = list(entries)
    ordered = [entry for entry in entries if not entry.after]
    for entry in (entry for entry in entries if entry.after):
        followed = [i for i, other in enumerate(ordered) if entry.after in (other.id, other.after)]
        ordered.insert(followed[-1] + 1 if followed else len(ordered), entry)
    return ordered


def said(words: Words, inputs: Inputs, rows: Sequence[Row]) -> str:
    return words if isinstance(words, str) else words(inputs, rows)


def table_of(
    name: str, caption: str, rows: Sequence[Row], columns: Sequence[str], heads: Mapping[str, str] = NOTHING_MORE
) -> Table:
    """The columns of rows. One with no value is left out, and that of the language model where all rows are of one."""
    kept = [one for one in columns if any(known(row.get(one)) for row in rows)]
    kept = [one for one in kept if one != "lm" or len({row["lm"] for row in rows}) > 1]
    names = {one: heads.get(one, column(one).label) for one in kept}
    rules = {names[one]: column(one).rule for one in kept if column(one).rule}
    both = rules if len({*rules.values()}) == len(RULES) else {}
    return Table(name, caption, [*names.values()], [[cell(row.get(one), one) for one in kept] for row in rows], both)


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


def chart(
    kind: Callable[..., Figure],
    name: str,
    caption: str,
    rows: Sequence[Row],
    series: Sequence[str],
    place: str | Callable[[Row], Any],
    value: str,
    by: str = "series",
    **words: Any,
) -> Figure:
    """One figure of these series, by both rules where the rows have a column for each; `words` are the axes'."""
    at = place if callable(place) else lambda row: row[place]
    columns = RULED.get(value, ())
    drawn = [*series][: len(PALETTE)]  # as many as have a colour of their own; the table has all

    def draw(of: str) -> Figure:
        by_series = {one: [(at(row), _scaled(row[of], of)) for row in rows if row[by] == one] for one in drawn}
        return kind(name, by_series, caption=caption, **words)

    if columns and all(one in rows[0] for one in columns):
        return by_rule(lambda rule: draw(columns[[*RULES].index(rule)]))
    return draw(value)


Points = dict[str, list[tuple[Any, Interval]]]  # series -> (place, figure)


def lines(name: str, points: Points, **words: Any) -> Figure:
    """A line for each series."""
    return figures.lines(name, {one: ([p for p, _ in of], [f for _, f in of]) for one, of in points.items()}, **words)


def bars(name: str, points: Points, **words: Any) -> Figure:
    """A bar for each series and place; places are names."""
    places = dict.fromkeys(label(str(place)) for of in points.values() for place, _ in of)
    known = {one: {label(str(place)): f for place, f in of} for one, of in points.items()}
    values = {one: [of.get(place, NOTHING) for place in places] for one, of in known.items()}
    return figures.bars(name, [*places], values, **words)


def ranges(name: str, points: Points, *, x: str, caption: str) -> Figure:
    """A point and its range for each place, a name, and series."""
    places = dict.fromkeys(str(place) for of in points.values() for place, _ in of)
    known = {one: {str(place): f for place, f in of} for one, of in points.items()}
    values = {one: [of.get(place, NOTHING) for place in places] for one, of in known.items()}
    ends = "; ".join(
        f"{label(one)}: " + ", ".join(f"{place} {figures.show(float(f.value))}" for place, f in of.items())
        for one, of in known.items()
    )
    rows = {one: [(f.value, f.low, f.high) for f in row] for one, row in values.items()}
    return figures.ranges(name, [*places], rows, None, x=x, caption=caption, alt=f"Dot plot of {x}. {ends}.")


def _value(value: Any) -> Interval:
    return value if isinstance(value, Interval) else NOTHING if value is None else Interval(*[float(value)] * 3)


def _scaled(value: Any, name: str) -> Interval:
    return _value(value).times(100 if column(name).unit in ("share", "points") else 1)


def measured(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a metrics file as a row: an Interval each, and <name>_splits for the middle 95 % over splits."""
    row: dict[str, Any] = {}
    for name, value in found.items():
        if not isinstance(value, dict):
            row[name] = value
        elif "low" in value:
            row[name] = interval(value)
            ends = [value.get(f"splits_{end}") for end in ("low", "high")]
            if ends[0] is not None:
                row[f"{name}_splits"] = Interval(value.get("mean_over_splits", value["value"]), *ends)
        elif "value" in value:
            row[name] = value["value"]
    return row


# where rows come from


def answered(table: str, **key: Any) -> Rows:
    """The rows of the main language model and the imported ones, `series` among their columns (Inputs.answered)."""
    return lambda inputs: [row for dataset in inputs.asked for row in inputs.answered(table, dataset=dataset, **key)]


def of_main(table: str, **key: Any) -> Rows:
    """The rows of the main language model alone."""
    return lambda inputs: [row for dataset in inputs.asked for row in inputs.rows(table, dataset=dataset, **key)]


def every(table: str) -> Rows:
    """All rows of a table."""
    return lambda inputs: inputs.tables[table]


def spread(rows: Sequence[Row], columns: Mapping[str, str]) -> list[Row]:
    """A row for each of these columns: its value is in `accuracy`, its words are the `series`."""
    return [row | {"series": words, "accuracy": row[name]} for row in rows for name, words in columns.items()]


def where(rows: Rows, holds: Callable[[Row], Any]) -> Rows:
    """Those of the rows for which that holds."""
    return lambda inputs: [row for row in rows(inputs) if holds(row)]
