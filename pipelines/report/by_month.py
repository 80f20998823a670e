"""Figures of landed runs by month, and what of them changed beyond its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelines import methods
from pipelines.intervals import Interval, fixed
from pipelines.landings import PART, WHOLE, Landing
from pipelines.report.page import Percent, label, show
from pipelines.report.timeline import Points, changes

RULE = {"adaptive": "accuracy by the rule", "retrieves": "share that retrieves"}  # kinds of figures (landed.py)


@dataclass(frozen=True)
class History:
    """The landed runs of one profile, the last one last, and their figures by month (names: see landed.py)."""

    profile: str
    runs: Sequence[Landing]
    months: Mapping[str, Mapping[str, Interval]]  # in order
    suffix: str  # of names on the page

    @property
    def last(self) -> str:
        return self.newest[0]

    @property
    def newest(self) -> list[str]:
        """The months as columns of a table, the last one first."""
        return [*reversed(self.months)]

    def under(self, start: str) -> dict[str, Points]:
        """How each figure goes whose name has this start, by the rest of its name."""
        names = {name for figures in self.months.values() for name in figures if name.startswith(start)}
        return {
            name.removeprefix(start): {month: of[name] for month, of in self.months.items() if name in of}
            for name in sorted(names)
        }

    def lines(self, start: str) -> dict[str, Points]:
        """Those of `under` by method, in the order of tables."""
        found = self.under(f"{start}/")
        return {method: found[method] for method in methods.ordered(found)}

    def answered(self, start: str) -> list[tuple[str, str]]:
        """The (question set, language model) of these figures, the last run's main ones first."""
        found = sorted({tuple(name.split("/")[:2]) for name in self.under(f"{start}/")})
        first = [self.runs[-1].params.get(name, "").split(",") for name in ("parts.answered", "lms")]

        def place(both: tuple[str, str]) -> list[int]:
            return [known.index(name) if name in known else len(known) for name, known in zip(both, first, strict=True)]

        return sorted(found, key=place)

    def cells(self, line: Points, shown: type = Percent) -> list:
        """The line as cells of a table, one for each month of `newest`."""
        return [shown(line[month]) if month in line else None for month in self.newest]


def of(profile: str, runs: Sequence[Landing], suffix: str) -> History:
    """A profile's history. A month has its last run of everything, with the parts that landed after that."""
    mine, months = [run for run in runs if run.profile == profile], {}
    for run in mine:
        earlier = {} if run.params[PART] == WHOLE else months.get(run.month, {})
        months[run.month] = earlier | run.figures
    return History(profile, mine, dict(sorted(months.items())), suffix)


def shares(one: History, rule: str) -> Iterator[tuple[str, Points]]:
    """(what it is, how it goes) for each share with intervals, by a rule of being right."""
    for start, kind in {f"accuracy/{rule}": "accuracy", **RULE}.items():
        for name, line in one.under(f"{start}/").items():
            dataset, lm, method = name.split("/", 2)
            yield f"{label(dataset)}, {lm}, {label(method)}: {kind}", line


def moved(one: History, rule: str) -> list[tuple[str, str, Interval, Interval, Interval]]:
    """(month, what, before, now, change) of each change of a share beyond its interval, the last month's first."""
    found = [
        (month, what, line[before], line[month], change)
        for what, line in shares(one, rule)
        for month, (before, change) in changes(line).items()
        if change.sign
    ]
    return sorted(found, key=lambda row: row[0], reverse=True)


def points(change: Interval) -> str:
    return f"{show(Percent(change, signed=True))} points"


def since(line: Points) -> str:
    """How a figure's last value changed, in a sentence; nothing where there is none before."""
    *earlier, last = sorted(line)
    if not earlier:
        return ""
    if last in (steps := changes(line)):
        before, change = steps[last]
        return f" ({points(change)} since {before})"
    number = fixed(line[last].value - line[earlier[-1]].value, 0, signed=True).replace("-", "\N{MINUS SIGN}")
    return f" (as in {earlier[-1]})" if number == "0" else f" ({number} since {earlier[-1]})"
