"""What landed runs made, month by month, as one page (`longtail report --history`), and all their figures as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipelines import shards
from pipelines.landings import PART, Landing
from pipelines.report import by_month, colours, csv_files, history_sections, rendering
from pipelines.report.by_month import History
from pipelines.report.page import MATCH, RULES, Link, Percent, Section, Table, label
from pipelines.report.timeline import changes

MINUTE = len("2026-10-31 03:00")  # of when a run landed
MOST = 5  # changes that a sentence names
TITLE = "Longtail, month by month"
CSV = "history.csv"
FOOTER = "Made by longtail report --history from what MLflow recorded of landed runs."
HOW = (
    "A share changed beyond its interval if the 95 % interval of its change from the month before does not touch zero. "
    "That interval is made of both months' intervals. It is right for other questions each month, and too wide for the "
    "same questions, so that some real changes are not named. longtail report --compare compares two runs question by "
    "question."
)
MAIN = next(iter(RULES))


def write(runs: Sequence[Landing], profile: str, out: Path) -> Iterator[str]:
    """Write index.html and history.csv to `out`, this profile's runs first; yields lines for a terminal."""
    names = sorted({run.profile for run in runs}, key=lambda name: (name != profile, name))
    every = [by_month.of(name, runs, f"-{number}" * bool(number)) for number, name in enumerate(names)]
    counted = [_counted(one) for one in every]
    shown = colours.same_everywhere(section for one in every for section in _sections(one, len(names) > 1))
    page = rendering.render(TITLE, " ".join(counted), [], shown, FOOTER)
    with shards.atomic(out) as folder:
        folder.mkdir(parents=True)
        (folder / "index.html").write_text(page, encoding="utf-8")
        (folder / CSV).write_text(csv_files.to_csv(csv_files.inert(_figures(every))), encoding="utf-8")
    for one, line in zip(every, counted, strict=True):
        yield line
        if len(one.months) > 1:
            yield _says(one, MAIN)


def _counted(one: History) -> str:
    first = next(iter(one.months))
    if len(one.runs) == 1:
        return f"One landed run so far of the profile {one.profile}: {first}. Later months will stand beside it."
    months = f"{len(one.months)} months, {first} to {one.last}" if first < one.last else f"all of one month, {first}"
    return f"{len(one.runs):,} landed runs of the profile {one.profile}: {months}."


def _sections(one: History, several: bool) -> list[Section]:
    """The sections that a profile has something for; their titles name it if there are `several`."""
    made = [getattr(history_sections, name)(one) for name in ("accuracy", "rule", "thresholds", "sizes")]
    shown = [part for part in (_changed(one), *made, _runs(one)) if part.blocks]
    of = f" ({one.profile})" if several else ""
    return [replace(part, id=part.id + one.suffix, title=part.title + of) for part in shown]


def _says(one: History, rule: str) -> str:
    """What changed beyond its interval in the last month."""
    moved = [
        f"{what} {by_month.points(change)}"
        for month, what, *_, change in by_month.moved(one, rule)
        if month == one.last
    ]
    compared = sum(one.last in changes(line) for _, line in by_month.shares(one, rule))
    named = "; ".join([*moved[:MOST], *([f"and {len(moved) - MOST:,} more"] if moved[MOST:] else [])])
    return (
        f"From {one.newest[1]} to {one.last}, {len(moved):,} of {compared:,} shares changed beyond their interval"
        f"{f': {named}' if moved else ''}. If nothing had changed but the draw of questions, at most about "
        f"{math.ceil(0.05 * compared):,} would."
    )


def _changed(one: History) -> Section:
    """What changed beyond its interval, in the last month and in those before."""
    title = "What changed"
    if len(one.months) == 1:
        return Section("changed", title)
    rows = [
        [rule, month, what, Percent(before), Percent(now), Percent(change, signed=True)]
        for rule in RULES
        for month, what, before, now, change in by_month.moved(one, rule)
    ]
    caption = "What changed beyond its interval from the month before: shares in per cent, changes in points."
    head = [MATCH, "month", "share", "month before", "this month", "change"]
    blocks = [HOW, *([Table(f"changed{one.suffix}", caption, head, rows)] if rows else [])]
    return Section("changed", title, blocks, says={rule: _says(one, rule) for rule in RULES})


def _runs(one: History) -> Section:
    """Every landed run, also those of a month that has a later one."""
    start = f"accuracy/{MAIN}"
    main = one.answered(start)[:1]
    shown = {
        f"{start}/{dataset}/{lm}/{method}": method
        for dataset, lm in main
        for method in one.lines(f"{start}/{dataset}/{lm}")
    }
    rows = [
        [
            run.landed,
            run.month,
            run.params[PART],
            run.commit or None,
            any(_counts(one, run, name) for name in run.figures),
        ]
        + [Percent(run.figures[name]) if name in run.figures else None for name in shown]
        for run in reversed(one.runs)
    ]
    caption = (
        "Every run that landed, the last one first; times are in UTC. Of a month, the last run of everything counts, "
        "with the parts that landed after it."
    )
    for dataset, lm in main:
        caption += f" Accuracies are in per cent (substring), of {lm} on {label(dataset)}."
    head = ["landed", "month", "part", "commit", "counts", *map(label, shown.values())]
    every = [] if one.suffix else [Link("All figures of all landed runs, as CSV", CSV)]
    return Section("runs", "Runs", [*every, Table(f"runs{one.suffix}", caption, head, rows)])


def _counts(one: History, run: Landing, name: str) -> bool:
    """Whether a figure of a run is that of its month."""
    return one.months[run.month].get(name) is run.figures[name]


def _figures(every: Sequence[History]) -> Table:
    """Every figure of every landed run, one in a row; `counts` says whether its month has it."""
    head = ["profile", "month", "landed", "part", "commit", "counts", "figure", "value"]
    rows = [
        [one.profile, run.month, run.landed, run.params[PART], run.commit, _counts(one, run, name), name, figure]
        for one in every
        for run in one.runs
        for name, figure in run.figures.items()
    ]
    return Table("history", "", head, rows)
