"""What landed runs made, month by month, as one figure and one table (`longtail report --history`), and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.intervals import NOTHING, Interval, difference
from pipelines.report import csv_files, figures, rendering
from pipelines.report.page import RULES, Figure, Link, Percent, Section, Table, by_rule, label
from pipelines.storage import shards
from pipelines.work.landings import PART, WHOLE, Landing

CSV = "history.csv"
FOOTER = "Made by longtail report --history from what MLflow recorded of landed runs."
KINDS = {f"accuracy/{rule}": f"accuracy, {rule}" for rule in RULES} | {  # start of a figure's name (landed.py) -> words
    "adaptive": "accuracy by the rule",
    "retrieves": "share that retrieves",
}
SIZES = ("questions", "triples", "passages", "bytes")
HOW = (
    "The last month's change from the month before has an interval, made of both months' intervals. It is right for "
    "other questions each month, and too wide for the same questions. longtail report --compare compares two runs "
    "question by question. Thresholds by relation, and the figures of all runs, are in history.csv."
)


def write_history(runs: Sequence[Landing], profile: str, out: Path) -> Iterator[str]:
    """Write index.html of this profile's runs and history.csv of all; yields lines for a terminal.

    Raises LongtailError where no run of the profile landed.
    """
    mine = [run for run in runs if run.profile == profile]
    if not mine:
        others = ", ".join(sorted({run.profile for run in runs}))
        raise LongtailError(f"no run of the profile {profile} has landed, expected one; there are runs of {others}")
    months = by_month(mine)
    first, last = next(iter(months)), next(reversed(months))
    when = f"{len(months)} months, {first} to {last}" if first < last else f"all of one month, {first}"
    counted = f"{len(mine):,} landed run{'s' * (len(mine) > 1)} of the profile {profile}: {when}."
    blocks = [*_drawn(mine[-1], months), HOW, _table(months), Link("All figures of all landed runs, as CSV", CSV)]
    section = Section("history", "Month by month", blocks)
    page = rendering.render("Longtail, month by month", counted, [], [section], FOOTER)
    with shards.atomic(out) as folder:
        folder.mkdir(parents=True)
        (folder / "index.html").write_text(page, encoding="utf-8")
        (folder / CSV).write_text(csv_files.to_csv(csv_files.inert(_every_figure(runs))), encoding="utf-8")
    yield counted


def by_month(runs: Sequence[Landing]) -> dict[str, Mapping[str, Interval]]:
    """Month -> figures, in order. A month has its last run of everything, with the parts that landed after that."""
    months: dict[str, Mapping[str, Interval]] = {}
    for run in runs:
        earlier = {} if run.params[PART] == WHOLE else months.get(run.month, {})
        months[run.month] = earlier | run.figures
    return dict(sorted(months.items()))


def _drawn(last: Landing, months: Mapping[str, Mapping[str, Interval]]) -> list[Figure]:
    """Accuracy by method, of the last run's main question set and language model; nothing where there is none."""
    dataset, lm = (last.params.get(name, "").split(",")[0] for name in ("parts.answered", "lms"))

    def draw(rule: str) -> Figure:
        start = f"accuracy/{rule}/{dataset}/{lm}/"
        names = {name.removeprefix(start) for of in months.values() for name in of if name.startswith(start)}
        lines = {
            method: [(place, of[start + method]) for place, of in enumerate(months.values()) if start + method in of]
            for method in methods.ordered(names)
        }
        return figures.lines(
            "accuracy",
            {m: ([p for p, _ in points], [f.times(100) for _, f in points]) for m, points in lines.items()},
            x="month",
            y="accuracy, %",
            places=[*months],
            caption=f"{label(dataset)}, {lm}: accuracy by method, with Wilson's 95 % intervals.",
        )

    start = f"accuracy/{next(iter(RULES))}/{dataset}/{lm}/"
    return [by_rule(draw)] if any(name.startswith(start) for of in months.values() for name in of) else []


def _table(months: Mapping[str, Mapping[str, Interval]]) -> Table:
    """A row for each figure but thresholds, a column for each month, the last one first."""
    names = sorted({name for of in months.values() for name in of})
    newest = [*reversed(months)]
    rows = []
    for start, words in KINDS.items():
        for name in (name for name in names if name.startswith(f"{start}/")):
            dataset, lm, method = name.removeprefix(f"{start}/").split("/", 2)
            known = [months[month].get(name, NOTHING) for month in newest]
            change = difference(*known[:2]) if len(known) > 1 else NOTHING
            of = f"{label(dataset)}, {lm}, {label(method)}"
            rows.append([words, of, Percent(change, signed=True), *map(Percent, known)])
    for kind in SIZES:
        for name in (name for name in names if name.split("/")[0] == kind):
            sizes = [int(months[month][name].value) if name in months[month] else None for month in newest]
            rows.append([kind, label(name.partition("/")[2]), None, *sizes])
    caption = "Shares in per cent and sizes by month, the last month first, and its change from the month before."
    return Table("history", caption, ["figure", "of", "change", *newest], rows)


def _every_figure(runs: Sequence[Landing]) -> Table:
    """Every figure of every landed run, one in a row; `counts` says whether its month has it."""
    head = ["profile", "month", "landed", "part", "commit", "counts", "figure", "value"]
    counting = {
        profile: by_month([run for run in runs if run.profile == profile]) for profile in {r.profile for r in runs}
    }
    rows = [
        [
            *(run.profile, run.month, run.landed, run.params[PART], run.commit),
            *(counting[run.profile][run.month].get(name) is figure, name, figure),
        ]
        for run in runs
        for name, figure in run.figures.items()
    ]
    return Table("history", "", head, rows)
