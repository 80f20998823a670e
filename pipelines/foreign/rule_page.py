"""The page and the lines of `longtail thresholds`: when to retrieve, by files of predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.adaptive.rule import Rule
from pipelines.evaluation.tables import ENDS
from pipelines.foreign.deciders import Decided
from pipelines.foreign.leaderboard_page import popularity_section
from pipelines.foreign.tune_from_files import Result
from pipelines.intervals import NOTHING, Interval, interval
from pipelines.pages import rendering
from pipelines.pages.section import Axis, Block, Figure, Section, Table
from pipelines.pages.table_rows import cell, spread, table_of
from pipelines.pages.table_texts import to_lines
from pipelines.pages.thresholds import ORACLE, POLICIES, cut_in_words, threshold_figure
from pipelines.pages.values import Percent, label, show

FOOTER = (
    "Made by `longtail thresholds`. An answer is right if it contains a gold answer (the published "
    "rule). rule.json beside this page is the rule; thresholds.csv has the thresholds of all files."
)
HEADS = {
    "below": "below",
    "above": "from it on",
    "name": "relation",
    "cut": "threshold",
    "closed_book": "without",
    "augmented": "with",
    "gain": "gain",
}
DECISION_HEADS = {
    "said": "what it is",
    "difference": "less adaptive",
    "calls": "retrievals",
    "accuracy_area": "area",
    "less": "area, less adaptive",
}
DECISION_COLUMNS = (
    *("system", "said", "accuracy", "difference", "retrieved", "calls", "accuracy_area", "less"),
)
ACCURACIES = ("closed_book", "augmented", "adaptive", "retrieved")


def rule_lines(results: Sequence[Result]) -> Iterator[str]:
    """What each pair of files is worth, and its thresholds; the best pair comes first."""
    for result in results:
        yield from _result_lines(result)
    for table in decisions_tables(results, without_intervals=("retrieved", "calls")):
        yield ""
        yield f"{table.caption.partition('.')[0]}:"
        for line in to_lines(table):
            yield f"  {line}"


def _result_lines(result: Result) -> Iterator[str]:
    figures = _held_out(result)
    shown = {}
    for name, figure in figures.items():
        shown[name] = show(Percent(figure, signed=name == "gain"))

    better = "always" if figures["always"].value >= figures["never"].value else "never"
    policies = {policy: f"{label(policy):18}  {shown[policy]}" for policy in POLICIES}
    saved = 100 * (1 - figures["retrieved"].value)
    yield ""
    yield f"{result.file.below} below the threshold, {result.file.above} from it on"
    yield f"  {policies['never']}"
    yield f"  {policies['always']}"
    yield f"  {policies['adaptive']}, held out"
    yield f"  {policies['oracle']}"
    yield f"  {'gain':18}  {shown['gain']} points over {label(better)}"
    yield (
        f"  {'retrieves':18}  {shown['retrieved']} % of the questions; saves {saved:.1f} % of "
        "retrievals"
    )
    yield f"  {'verdict':18}  {result.file.verdict}"

    rows = _rows([result])
    for row in rows:
        row["cut"] = show(row["cut"])
        if row["pooled"]:
            row["cut"] += "*"
        for name in ACCURACIES:
            row[name] = row[name].value

    columns = ["name", "questions", "cut", "from", "to", *ACCURACIES]
    for line in to_lines(table_of("", "", rows, columns, HEADS)):
        yield f"  {line}"

    if any(row["pooled"] for row in rows):
        yield "  * too few questions: the threshold of all relations together"


def decisions_tables(
    results: Sequence[Result], without_intervals: Sequence[str] = ()
) -> list[Table]:
    """Each policy, and each file that decides when to retrieve."""
    tables = []
    for result in results:
        if result.decided:
            tables.append(_decisions_table(result.file, result.decided, without_intervals))
    return tables


def _decisions_table(rule: Rule, decided: Decided, without_intervals: Sequence[str]) -> Table:
    rows = []
    for decider in decided.rows:
        row = decider | {"less": cell(decider.get("less"), "difference")}
        for name in without_intervals:
            if name in row:
                row[name] = row[name].value
        rows.append(row)

    caption = (
        "Who decides when to retrieve, held out; where it has no answers, those of "
        f"{rule.above} and {rule.below} count. Shares in per cent, differences in points, "
        "retrievals a question; 95 % intervals over subjects. The area is the mean accuracy "
        "over all shares that may retrieve, if a signal retrieves where it is strongest, or "
        "thresholds are shifted together."
    )
    return table_of("decisions", caption, rows, DECISION_COLUMNS, DECISION_HEADS)


def rule_table(results: Sequence[Result]) -> Table:
    """A row for each pair of files and relation."""
    caption = (
        f"Thresholds in {results[0].file.signal} (retrieve below), from and to the last that is "
        "not clearly worse; accuracies and the share that retrieves in per cent, those of adaptive "
        "held out. Relations with few questions share the threshold of all relations together."
    )
    columns = ["below", "above", "name", "id", "questions", "own_threshold", "cut", "from", "to"]
    return table_of("thresholds", caption, _rows(results), [*columns, *ACCURACIES], HEADS)


def _held_out(result: Result) -> dict[str, Interval]:
    """The figures of the policies on held-out questions."""
    return {name: interval(result.figures[name]) for name in (*POLICIES, "gain", "retrieved")}


def _rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A row for each pair of files and relation."""
    rows = []
    for result in results:
        rule = result.file
        for relation in result.relations:
            key = relation["relation"]
            row = {
                "below": rule.below,
                "above": rule.above,
                "name": rule.names[key],
                "id": key,
                "questions": relation["questions"],
                "pooled": relation["pooled"],
                "own_threshold": not relation["pooled"],
            }
            for name, end in (("cut", ""), ("from", "_low"), ("to", "_high")):
                row[name] = cut_in_words(relation[f"threshold{end}"])
            for name in ACCURACIES:
                row[name] = _interval_of_columns(relation, name)
            rows.append(row)

    return rows


def _interval_of_columns(row: dict[str, Any], name: str) -> Interval:
    """The interval that a table has in three columns; NOTHING where the value is null."""
    if row[name] is None:
        return NOTHING
    return Interval(*(row[f"{name}{end}"] for end in ENDS))


def rule_html(
    results: Sequence[Result],
    set_name: str,
    notes: Sequence[str],
    by_popularity: list[dict],
) -> str:
    """The page: verdict, policies, thresholds, and accuracy by popularity.

    `by_popularity` are the rows of `compare_systems.by_popularity`.
    """
    file = results[0].file
    thresholds: list[Block] = [threshold_figure(_cuts(results), file.signal), rule_table(results)]
    decisions: list[Block] = [*decisions_tables(results), _budgets(results)]
    sections = [
        _verdict_section(results),
        Section("thresholds", "Thresholds", thresholds),
        Section("decisions", "Who decides when to retrieve?", decisions),
        popularity_section(file.signal, by_popularity),
        Section("files", "What was read", list(notes)),
    ]
    sections = [section.without_empty_blocks for section in sections]
    sections = [section for section in sections if section.blocks]

    views = f", page views of {file.month}" if file.month else ""
    retrieved = show(Percent(_held_out(results[0])["retrieved"]))
    intro = (
        f"{file.questions:,} questions of {set_name}{views}. A question takes the answer of "
        f"{file.below} where its {file.signal} are below its relation's threshold. Adaptive "
        f"retrieves for {retrieved} % of the questions. The thresholds were searched for by "
        f"`{file.search}`; held-out figures are over 100 splits, each with a subject's questions "
        "on one side."
    )
    title = f"Thresholds: {file.below} and {file.above}"
    return rendering.render(title, intro, sections, FOOTER)


def _verdict_section(results: Sequence[Result]) -> Section:
    """The policies of each pair of files."""
    best = results[0].file
    rows = []
    for result in results:
        row = {
            "below": result.file.below,
            "above": result.file.above,
            "verdict": result.file.verdict,
        }
        rows.append(row | _held_out(result))

    figure = Figure(
        name="policies",
        kind="dumbbell",
        rows=spread(rows, {policy: policy for policy in POLICIES}),
        x="below",
        y="accuracy",
        y_axis=Axis("held-out accuracy, %"),
        caption=f"Adaptive against always and never retrieving. {ORACLE}",
    )
    caption = (
        "Held-out accuracy in per cent, the gain over the better of always and never in points, "
        "and the share of questions that retrieve in per cent."
    )
    columns = ["below", "above", *POLICIES, "gain", "retrieved", "verdict"]
    table = table_of("policies", caption, rows, columns, HEADS)
    sentence = f"{best.below} below the threshold, {best.above} from it on: {best.verdict}."
    return Section("verdict", "Is a threshold worth it?", [sentence, table, figure])


def _cuts(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The thresholds of all pairs, as `threshold_figure` draws them."""
    cuts = []
    for result in results:
        for row in result.relations:
            cut = {
                "method": result.file.below,
                "name": result.file.names[row["relation"]],
                "cut": _interval_of_columns(row, "threshold"),
            }
            cuts.append(row | cut)
    return cuts


def _budgets(results: Sequence[Result]) -> Figure:
    """Accuracy by the share of the questions that retrieve."""
    points = []
    for result in results:
        if result.decided:
            for point in result.decided.curves:
                points.append(point | {"percent": 100 * point["budget"]})

    return Figure(
        name="budgets",
        kind="lines",
        rows=points,
        series="system",
        x="percent",
        y="accuracy",
        x_axis=Axis("share of the questions that retrieve, %"),
        y_axis=Axis("held-out accuracy, %"),
        caption=(
            "Accuracy by the share of the questions that retrieve. Lines are signals that retrieve "
            "where they are strongest, and thresholds that are shifted together. Marks are systems "
            "as they decided."
        ),
    )
