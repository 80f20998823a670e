"""What moved since an earlier run, as a table: the figures of both, and the interval of each change.

Accuracies are compared question by question, on the questions that both runs asked. Any other figure is compared by its
two intervals, which is valid, though too careful, for figures of the same questions (`intervals.difference`).
"""

import csv
import json
import math
import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pipelines.answering import answer_files
from pipelines.evaluation import accuracy, tables
from pipelines.intervals import Interval, difference, interval
from pipelines.pages.section import RULES, Table
from pipelines.pages.values import Percent, label, named
from pipelines.storage import parquet

COSTS = ("costs", "savings")  # tables that come last
ORDER = (
    "accuracy over all questions first, costs last, and of each kind the clearest first; what several tables have, or "
    "both rules of being right agree on, is listed once"
)
SAME = "Both runs are identical: every figure, answer and setting that both have is the same."
SETTINGS = Path("report/tables/settings.csv")
HELD_OUT = ("adaptive", "always", "never", "gain", "retrieved")


@dataclass(frozen=True)
class Change:
    table: str
    what: str  # the row's texts and the column
    before: Interval
    now: Interval
    change: Interval
    share: bool  # shown in per cent, the change in points
    questions: int | None = None  # on which both were compared one by one; None: by their intervals

    @property
    def moved(self) -> bool:
        return self.change.sign != 0

    @property
    def row(self) -> str:
        """What it is of, by whichever rule."""
        return re.sub(", (substring|word)$", "", self.what)

    @property
    def figures(self) -> tuple[float, ...]:
        """Before and now with their intervals, to nine digits: the same figure has the same in every table."""
        return tuple(round(end, 9) for of in (self.before, self.now) for end in astuple(of))

    @property
    def place(self) -> tuple[bool, int, float]:
        """Where it stands (ORDER); clear is a change of many half widths of its interval, unless it has no width."""
        width = (self.change.high - self.change.low) / 2
        clear = abs(self.change.value) / width if width > 0 else 0.0
        return (
            not self.moved,
            0 if self.table == "accuracy" else 2 if self.table in COSTS else 1,
            -clear,
        )


def compare_runs(old: Path, data: Path, params: SimpleNamespace) -> tuple[list[str], list[Change]]:
    """(lines on settings and on how many figures moved, the changes); `old` is as `data`, as far as it could be had."""
    changes = [
        change
        for dataset in params.parts.answered
        for change in _paired(dataset, old, data, params)
    ]
    known = {(change.table, change.what) for change in changes}
    before, now = (dict(_measured(folder, params.thresholds.search)) for folder in (old, data))
    for key, (figure, share) in now.items():
        if key in before and key not in known:
            changes.append(
                Change(*key, before[key][0], figure, difference(figure, before[key][0]), share)
            )
    changes = [*_once(sorted(changes, key=lambda change: change.place))]
    settings = [*_settings(old, data)]
    if not settings and all(change.before == change.now for change in changes):
        return [SAME], changes
    moved, chance = sum(change.moved for change in changes), math.ceil(0.05 * len(changes))
    counted = (
        f"{moved:,} of {len(changes):,} figures moved beyond their interval. If nothing had changed but the draw of "
        f"questions, at most about {chance:,} would."
    )
    return [*settings, counted], changes


def _once(changes: list[Change]) -> Iterator[Change]:
    """Yield the changes, without the figures that an earlier one of another table, or of the other rule, has."""
    seen: dict[tuple[float, ...], Change] = {}
    for change in changes:
        first = seen.setdefault(change.figures, change)
        if first is change or (first.table == change.table and first.row != change.row):
            yield change


def as_table(changes: list[Change]) -> Table:
    """A row for each change."""
    head = ["figure", "table", "before", "now", "change", "compared on questions", "moved"]
    rows = [
        [one.what, one.table]
        + [Percent(figure) if one.share else figure for figure in (one.before, one.now)]
        + [Percent(one.change, signed=True) if one.share else one.change, one.questions, one.moved]
        for one in changes
    ]
    return Table("moved", f"What moved: {ORDER}.", head, rows)


def _paired(dataset: str, old: Path, data: Path, params: SimpleNamespace) -> Iterator[Change]:
    """Accuracy of every method of this run's models that both runs answered by, over all questions and by relation."""
    asked = [folder / "questions" / dataset / f"{dataset}.parquet" for folder in (data, old)]
    by_lm = [
        answer_files.sets(dataset, params.lms, params.retrievers, folder) for folder in (data, old)
    ]
    for lm in params.lms if asked[1].is_file() else []:
        mine, theirs = (of_run.get(lm, {}) for of_run in by_lm)
        shared = [method for method in mine if method in theirs]
        if not shared:
            continue
        read = (
            accuracy.read_answered(questions, {method: files[method] for method in shared})
            for questions, files in zip(asked, (mine, theirs), strict=True)
        )
        now, before = accuracy.in_common([*read])
        groups = {"": np.ones(len(now.ids), bool)} | accuracy.of_relations(now)
        for relation, rows in groups.items() if len(now.ids) else ():
            of_both, pairs = (
                (now.take(rows), before.take(rows)),
                [(method, method) for method in shared],
            )
            for row in accuracy.compared(*of_both, pairs, params.seed, params.report.bootstrap):
                of_row = {"dataset": dataset, "lm": lm, "method": row["method"]} | {
                    "relation": relation
                }
                table, everyone = (
                    f"accuracy{'_by_relation' * bool(relation)}",
                    np.ones(row["questions"], bool),
                )
                for rule, column, gain in zip(
                    RULES, ("correct", "correct_word"), ("gain", "gain_word"), strict=True
                ):
                    shares = [
                        r.share(getattr(r.by_method[row["method"]], column), everyone)
                        for r in of_both
                    ]
                    yield Change(
                        table,
                        _what(of_row, rule),
                        shares[1],
                        shares[0],
                        row[gain],
                        True,
                        row["questions"],
                    )


def _measured(data: Path, search: str) -> Iterator[tuple[tuple[str, str], tuple[Interval, bool]]]:
    """((table, what), (figure, whether it is a share)) of `analyse`, and of the thresholds in use, held out."""
    rows = []  # (table, the texts that name a row, its figures)
    for name, columns in tables.TABLES.items():
        file = data / f"analyses/{name}.parquet"
        measures = [column for column, kind in columns.items() if kind is Interval]
        keys = [
            column for column, kind in columns.items() if kind is str or column in tables.NUMBERED
        ]
        known = {*keys, *measures} <= (
            {*parquet.schema_of(file).names} if file.is_file() else set()
        )
        if name.startswith("common_") or not known:
            continue  # it repeats another table, or is of another version of Longtail
        for row in tables.read_analyses(file.parent, name):
            rows.append(
                (
                    name,
                    {key: row[key] for key in keys},
                    {column: row[column] for column in measures},
                )
            )
    adaptive = data / "metrics/adaptive.json"
    for dataset, by_lm in (
        json.loads(adaptive.read_text(encoding="utf-8")).items() if adaptive.is_file() else ()
    ):
        for lm, by_method in by_lm.items():
            for method, found in by_method.items():
                if isinstance(found, dict) and search in found:
                    figures = {name: interval(found[search].get(name)) for name in HELD_OUT}
                    rows.append(
                        ("adaptive", {"dataset": dataset, "lm": lm, "method": method}, figures)
                    )
    for table, key, figures in rows:
        for column, figure in figures.items():
            if math.isfinite(figure.value):
                share = table == "adaptive" or tables.column(column).unit in ("share", "points")
                yield (table, _what(key, column)), (figure, share)


def _what(row: dict, column: str) -> str:
    """The texts of a row and a column's name."""
    texts = [
        named(value)
        if key == "relation"
        else f"{key} {value:g}"
        if key in tables.NUMBERED
        else label(str(value))
        for key, value in row.items()
        if value not in ("", None)
    ]
    return ", ".join([*texts, tables.column(column).label])


def _settings(old: Path, data: Path) -> Iterator[str]:
    """The settings that the two runs do not have in common, a line each."""
    files = [folder / SETTINGS for folder in (old, data)]
    if all(file.is_file() for file in files):
        before, now = (
            dict(csv.reader(file.read_text(encoding="utf-8").splitlines())) for file in files
        )
        for key in now | before:
            if now.get(key) != before.get(key):
                yield f"setting {key}: {before.get(key, 'none')} before, {now.get(key, 'none')} now"
