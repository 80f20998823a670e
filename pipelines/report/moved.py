"""Two reports compared: what moved beyond its interval, and the figures of both over each other.

Accuracies are compared question by question, on the questions that both runs asked. Any other figure is compared by its
two intervals, which is valid, though too careful, for figures of the same questions (`intervals.difference`).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pipelines import shards
from pipelines.answering import answer_files
from pipelines.evaluation import accuracy, paired
from pipelines.intervals import NOTHING, Interval, difference
from pipelines.report import colours, csv_files, figures, inputs, marks, rendering, write_report
from pipelines.report.page import RULES, Figure, Percent, Section, Table, label, named, show

LEFT_OUT = "split"  # in the head of columns whose bounds are no confidence interval: the middle 95 % over splits
MOST = 12  # changes in the figure, the first of what moved
COSTS = ("cost-of-answers", "savings", "prices")  # tables that come last
ORDER = "accuracy over all questions first, costs last, and of each kind the clearest first"
SAME = "Both runs are identical: every figure, answer and setting that both have is the same."
TITLE = "What moved between two reports"
FOOTER = "Made by `longtail report --compare`. moved.csv, beside this page, has every figure that both reports have."
HOW = (
    "A figure moved beyond its interval if the 95 % interval of its change lies on one side of zero. Accuracies are "
    "compared question by question, on the questions that both runs asked; the interval of their change is a bootstrap "
    "over subjects. The change of any other figure has an interval from the two intervals that the reports show. That "
    "interval is right if the runs are independent, and too wide if they asked the same questions, so that some real "
    "changes are not named."
)


@dataclass(frozen=True)
class Change:
    table: str
    what: str  # the row's texts and the column
    before: Interval
    now: Interval
    change: Interval
    share: bool  # shown in per cent, the change in points
    questions: int = 0  # on which both were compared one by one; 0: by their intervals

    @property
    def moved(self) -> bool:
        return self.change.sign != 0

    @property
    def clear(self) -> float:
        """How far the change is from nothing, in half widths of its interval; 0 if the interval has no width.

        Such an interval is no certainty, but comes of too few questions or of figures without chance.
        """
        width = (self.change.high - self.change.low) / 2
        return abs(self.change.value) / width if width > 0 else 0.0

    @property
    def place(self) -> tuple[int, float]:
        """Where it stands among what moved (ORDER)."""
        return 0 if self.table == "accuracy" else 2 if self.table.startswith(COSTS) else 1, -self.clear

    def shown(self, name: str) -> Percent | Interval:
        figure = getattr(self, name)
        return Percent(figure, signed=name == "change") if self.share else figure

    def __str__(self) -> str:
        before, now, change = (show(self.shown(name)) for name in ("before", "now", "change"))
        return f"{self.what}: {before} before, {now} now; {change} ({self.table})"


def compare(old: Path, name: str, data: Path, out: Path, params: SimpleNamespace) -> Iterator[str]:
    """Write index.html and moved.csv to `out`; yields lines for a terminal.

    `old` is a folder as `data`, as far as the earlier run's files could be had, with its report; `name` says which run
    it is.
    """
    now = inputs.read(data, params.lms, params.parts)
    sections = write_report.sections(now, params)
    of_answers = _paired(old, data, params)
    known = {(change.table, change.what) for change in of_answers}
    tables = [block for section in sections for block in section.blocks if isinstance(block, Table)]
    others = [change for table in tables for change in _of_table(table, old / "report/tables", now.main)]
    changes = of_answers + [change for change in others if (change.table, change.what) not in known]
    moved = sorted((change for change in changes if change.moved), key=lambda change: change.place)
    over, same = _over(sections, old / "report/figures", name)
    settings = _settings(tables, old)
    counted = _counted(changes, moved) if settings or over or _differ(changes) else SAME
    parts = [*settings, _moved(changes, moved, name, counted), *over]
    intro = f"The report of data/ against that of {name}. {HOW}"
    page = rendering.render(TITLE, intro, [], colours.same_everywhere(parts), FOOTER)
    with shards.atomic(out) as folder:
        folder.mkdir(parents=True)
        (folder / "index.html").write_text(page, encoding="utf-8")
        rows = csv_files.to_csv(csv_files.inert(_table("moved", "", changes)))
        (folder / "moved.csv").write_text(rows, encoding="utf-8")
    yield counted
    yield from map(str, moved[:MOST])
    if moved[MOST:]:
        yield f"and {len(moved) - MOST:,} more, see the page"
    drawn = sum(len(part.blocks) for part in over)
    yield f"{same:,} figures are as they were; {drawn:,} are drawn over each other"


def _differ(changes: Sequence[Change]) -> bool:
    return any(change.before != change.now for change in changes)


def _counted(changes: Sequence[Change], moved: Sequence[Change]) -> str:
    chance = math.ceil(0.05 * len(changes))
    return (
        f"{len(moved):,} of {len(changes):,} figures moved beyond their interval. If nothing had changed but the draw "
        f"of questions, at most about {chance:,} would."
    )


def _table(name: str, caption: str, changes: Sequence[Change]) -> Table:
    head = ["figure", "table", "before", "now", "change", "compared on questions", "moved"]
    return Table(
        name,
        caption,
        head,
        [
            [
                change.what,
                change.table,
                *(change.shown(one) for one in head[2:5]),
                change.questions or None,
                change.moved,
            ]
            for change in changes
        ],
    )


def _moved(changes: Sequence[Change], moved: Sequence[Change], name: str, says: str) -> Section:
    """What moved, in ORDER, with the accuracies compared question by question."""
    drawn = [change for change in moved if change.share][:MOST]
    caption = f"Now less {name}, of shares that moved beyond their interval: {ORDER}."
    groups = [f"{change.what} ({change.table})" for change in drawn]
    series = {"change": [change.change.times(100) for change in drawn]}
    by_question = [change for change in changes if change.questions]
    blocks = [
        *([figures.bars("moved", groups, series, y="now less before, points", caption=caption)] if drawn else []),
        *([_table("moved", f"What moved beyond its interval: {ORDER}.", moved)] if moved else []),
        *([_table("by-question", "Accuracies, question by question.", by_question)] if by_question else []),
    ]
    return Section("moved", "What moved", blocks or ["No figure moved."], says=says)


def _paired(old: Path, data: Path, params: SimpleNamespace) -> list[Change]:
    """Accuracy of every method of this run's models that both runs answered by, over all questions and by relation."""
    changes = []
    for dataset in params.parts.answered:
        asked = [folder / "questions" / dataset / f"{dataset}.parquet" for folder in (data, old)]
        by_lm = [answer_files.sets(dataset, params.lms, params.retrievers, folder) for folder in (data, old)]
        for lm in params.lms if asked[1].is_file() else []:
            mine, theirs = (of_run.get(lm, {}) for of_run in by_lm)
            shared = [method for method in mine if method in theirs]
            if not shared:
                continue
            read = (
                accuracy.read(questions, {method: files[method] for method in shared})
                for questions, files in zip(asked, (mine, theirs), strict=True)
            )
            changes += _by_question(dataset, lm, *paired.in_common([*read]), params, lm == params.lms[0])
    return changes


def _by_question(
    dataset: str, lm: str, now: accuracy.Answers, before: accuracy.Answers, params: SimpleNamespace, main: bool
) -> Iterator[Change]:
    groups = {"": np.ones(len(now.ids), bool)} | accuracy.of_relations(now)
    pairs = [(method, method) for method in now.by_method]
    for relation, rows in groups.items() if len(now.ids) else ():
        mine, theirs = now.take(rows), before.take(rows)
        for row in paired.compared(mine, theirs, pairs, params.seed, params.report.bootstrap):
            answers = [of_run.by_method[row["method"]] for of_run in (mine, theirs)]
            everyone = np.ones(row["questions"], bool)
            for rule, column, gain in zip(RULES, ("correct", "word"), ("gain", "gain_word"), strict=True):
                of_both = [accuracy.share(getattr(of_run, column), everyone) for of_run in answers]
                of_lm, method = [] if main else [lm], label(row["method"])
                table, texts, head = "accuracy", [label(dataset), *of_lm, method], rule
                if relation:
                    table, texts, head = f"accuracy-by-relation-{dataset}", [named(relation), *of_lm, rule], method
                what = _what(texts, head)
                yield Change(table, what, of_both[1], of_both[0], row[gain], True, row["questions"])


def _of_table(table: Table, folder: Path, main: str) -> Iterator[Change]:
    """The figures with an interval that the earlier report has in the table of that name, row by row."""
    file = folder / f"{table.name}.csv"
    if not file.is_file():
        return
    now, before = (list(csv.DictReader(io.StringIO(text))) for text in (csv_files.to_csv(table), _text(file)))
    shares = {head for i, head in enumerate(table.head) if any(isinstance(row[i], Percent) for row in table.rows)}
    columns = [head for head in table.head if f"{head}_low" in (now or [{}])[0] and LEFT_OUT not in head]
    keys = _keys(table, now, before)
    earlier = {tuple(row[key] for key in keys): row for row in before} if keys else {}
    for row in now:
        other = earlier.get(tuple(row[key] for key in keys), {})
        for head in columns:
            one, two = _interval(row, head), _interval(other, head)
            if math.isfinite(one.value) and math.isfinite(two.value):
                texts = [row[key] for key in keys if not (key == "language model" and row[key] == main)]
                yield Change(table.name, _what(texts, head), two, one, difference(one, two), head in shares)


def _keys(table: Table, now: list[dict], before: list[dict]) -> list[str]:
    """As few columns as tell rows apart in both reports: those with texts first, then those with numbers."""
    heads = [head for head in table.head if now and before and head in now[0] and head in before[0]]
    heads = [head for head in heads if f"{head}_low" not in now[0]]
    numbers = {head for head, numeric in zip(table.head, table.numeric, strict=True) if numeric}
    ordered = sorted(heads, key=lambda head: head in numbers)
    for n in range(1, len(ordered) + 1):
        keys = ordered[:n]
        if all(len({tuple(row[key] for key in keys) for row in rows}) == len(rows) for rows in (now, before)):
            return keys
    return []


def _what(texts: Sequence[str], head: str) -> str:
    return ", ".join([*filter(None, texts), head])


def _interval(row: dict[str, str], head: str) -> Interval:
    cells = [row.get(f"{head}{end}") for end in ("", "_low", "_high")]
    return Interval(*map(float, cells)) if all(cells) else NOTHING


def _settings(tables: Sequence[Table], old: Path) -> list[Section]:
    """The settings that the two runs do not have in common."""
    file = old / "report/tables/settings.csv"
    table = next((table for table in tables if table.name == "settings"), None)
    if table is None or not file.is_file():
        return []
    now, before = (
        {row["setting"]: row["value"] for row in csv.DictReader(io.StringIO(text))}
        for text in (csv_files.to_csv(table), _text(file))
    )
    rows = [[key, before.get(key), now.get(key)] for key in now | before if now.get(key) != before.get(key)]
    if not rows:
        return []
    return [Section("settings", "Other settings", [Table("settings", "Settings.", ["setting", "before", "now"], rows)])]


def _over(sections: Sequence[Section], folder: Path, name: str) -> tuple[list[Section], int]:
    """The sections' figures that are not as they were, over those of the earlier report, and how many are as they were.

    Figures that can't be drawn over each other, such as histograms, are left out.
    """
    found, same = [], 0
    for section in sections:
        drawn = []
        for figure in (block for block in section.blocks if isinstance(block, Figure) and block.over):
            files = {one.name: folder / f"{one.name}.svg" for one in figure.every}
            texts = {one: _text(file) for one, file in files.items() if file.is_file()}
            if figure.name not in texts:
                continue
            both = ((marks.read(texts[one.name]), marks.read(one.svg)) for one in figure.every if one.name in texts)
            if all(before == now for before, now in both):
                same += 1
            else:
                drawn.append(figure.of_all(partial(_with, texts, name)))
        if drawn:
            found.append(Section(f"over-{section.id}", section.title, drawn))
    return sorted(found, key=lambda section: section.id == "over-costs"), same


def _with(texts: dict[str, str], name: str, figure: Figure) -> Figure:
    """The figure over the one of its name among the earlier report's."""
    if figure.name not in texts:
        return figure
    draw = partial(figure.drawn, before=marks.read(texts[figure.name]))
    svg, narrow = draw(colours.slots([figure.series]))
    caption = f"{figure.caption} Thin pale lines and black marks: {name}."
    return replace(figure, svg=svg, narrow=narrow, drawn=draw, caption=caption)


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
