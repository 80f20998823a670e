"""What landed runs made, month by month, as one figure and one table (`longtail report --history`), and as CSV."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.intervals import NOTHING, Interval, difference
from pipelines.report import rendering
from pipelines.report.entries import Drawn
from pipelines.report.figures import lines
from pipelines.report.page import RULES, Block, Percent, Section, Table, label, named
from pipelines.storage import shards
from pipelines.work.tracking import PART, WHOLE, Landing

FOOTER = "Made by longtail report --history from what MLflow recorded of landed runs."
SHARES = {f"accuracy/{rule}": f"accuracy, {rule}" for rule in RULES} | {  # kind of a figure (landed.py) -> words
    "adaptive": "accuracy by the rule",
    "retrieves": "share that retrieves",
}
KINDS = SHARES | {kind: kind for kind in ("questions", "triples", "passages", "bytes", "threshold")}
HOW = (
    "The last month's change from the month before has an interval, made of both months' intervals. It is right for "
    "other questions each month, and too wide for the same questions. longtail report --compare compares two runs "
    "question by question. MLflow has the figures of all runs."
)


def write_history(runs: Sequence[Landing], profile: str, out: Path) -> Iterator[str]:
    """Write index.html of this profile's runs, and its table as history.csv; yields lines for a terminal.

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
    section = Section("history", "Month by month", [*_drawn(mine[-1], months), HOW, _table(months)])
    files = rendering.page_files("Longtail, month by month", counted, [section], FOOTER)
    with shards.atomic(out) as folder:
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    yield counted


def by_month(runs: Sequence[Landing]) -> dict[str, Mapping[str, Interval]]:
    """Month -> figures, in order. A month has its last run of everything, with the parts that landed after that."""
    months: dict[str, Mapping[str, Interval]] = {}
    for run in runs:
        earlier = {} if run.params[PART] == WHOLE else months.get(run.month, {})
        months[run.month] = earlier | run.figures
    return dict(sorted(months.items()))


def _drawn(last: Landing, months: Mapping[str, Mapping[str, Interval]]) -> list[Block]:
    """Accuracy by method, of the last run's main question set and language model; nothing where there is none."""
    dataset, lm = (last.params.get(name, "").split(",")[0] for name in ("parts.answered", "lms"))
    start = f"accuracy/{next(iter(RULES))}/{dataset}/{lm}/"
    rows = [
        {"month": month, "series": name.removeprefix(start)}
        | {rule: of.get(f"accuracy/{rule}/{dataset}/{lm}/{name.removeprefix(start)}", NOTHING) for rule in RULES}
        for month, of in months.items()
        for name in of
        if name.startswith(start)
    ]
    order = methods.ordered(dict.fromkeys(row["series"] for row in rows))
    rows.sort(key=lambda row: order.index(row["series"]))
    caption = f"{label(dataset)}, {lm}: accuracy by method, with Wilson's 95 % intervals."
    axes = {"x": "month", "y": "accuracy, %"}
    return Drawn(lines, "accuracy", rows, "month", next(iter(RULES)), caption, axes).blocks()


def _table(months: Mapping[str, Mapping[str, Interval]]) -> Table:
    """A row for each figure, a column for each month, the last one first."""
    names = sorted({name for of in months.values() for name in of})
    newest, rows = [*reversed(months)], []
    for kind, words in KINDS.items():
        parts = 2 if kind in SHARES else 3
        for name in (name for name in names if f"{name}/".startswith(f"{kind}/")):
            of = ", ".join(named(label(part)) for part in name.removeprefix(kind).removeprefix("/").split("/", parts))
            known = [months[month].get(name, NOTHING) for month in newest]
            change = difference(*known[:2]) if len(known) > 1 else NOTHING
            if kind in SHARES:
                rows.append([words, of, Percent(change, signed=True), *map(Percent, known)])
            else:
                rows.append([words, of, None, *(one.value if one.value % 1 else int(one.value) for one in known)])
    caption = "Shares in per cent and sizes by month, the last month first, and its change from the month before."
    return Table("history", caption, ["figure", "of", "change", *newest], rows)
