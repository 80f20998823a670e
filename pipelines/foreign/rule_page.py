"""The page and the lines of `longtail thresholds`: when to retrieve, by files of predictions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pipelines.foreign.leaderboard_page import popularity_section
from pipelines.foreign.tune_from_files import Result
from pipelines.pages import rendering
from pipelines.pages.section import Axis, Figure, Section, Table
from pipelines.pages.table_rows import cell, spread, table_of
from pipelines.pages.table_texts import to_lines
from pipelines.pages.thresholds import ORACLE, POLICIES, advice, cut_in_words, threshold_figure
from pipelines.pages.values import Percent, in_percent, label, percent, show

FOOTER = (
    "Made by `longtail thresholds`. An answer is right if it contains a gold answer (the published "
    "rule). rule.json beside this page is the rule; thresholds.csv has the thresholds of all files."
)
METRICS_LEAD = "Thresholds are fitted to the published rule; other systems report these, too."
HEADS = {
    "above": "from it on",
    "name": "relation",
    "cut": "threshold",
    "closed_book": "without",
    "augmented": "with",
    "adaptive": "adaptive",
    "gain": "gain",
}
DECISION_HEADS = {
    "said": "what it is",
    "difference": "less adaptive",
    "calls": "retrievals",
    "accuracy_area": "area",
    "less": "area, less adaptive",
}
DECISION_COLUMNS = ["system", "said", "accuracy", "difference", "retrieved", "calls"]
DECISION_COLUMNS += ["accuracy_area", "less"]
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
    figures = result.held_out
    shown = {}
    for name, figure in figures.items():
        shown[name] = show(Percent(figure, signed=name == "gain"))

    better = "always" if figures["always"].value >= figures["never"].value else "never"
    saved = percent(1 - figures["retrieved"].value, 1)
    said = {label(policy): shown[policy] for policy in POLICIES}
    said[label("adaptive")] += ", held out"
    said["gain"] = f"{shown['gain']} points over {label(better)}"
    said["retrieves"] = f"{shown['retrieved']} % of the questions; saves {saved} of retrievals"
    said["budget"] = _budget(result)
    said["verdict"] = result.file.verdict
    yield ""
    yield f"{result.file.below} below the threshold, {result.file.above} from it on"
    width = max(map(len, said))
    for name, text in said.items():
        if text:
            yield f"  {name:{width}}  {text}"

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


def _budget(result: Result) -> str:
    """What the thresholds' budget is, and how often they break it; "" without one."""
    budget = result.file.budget
    if budget is None:
        return ""
    broken = percent(result.figures["over_budget"])
    most = percent(result.figures["retrieved_most"], 1)
    return (
        f"{percent(budget)} of the questions may retrieve, so the verdict is against not "
        f"retrieving. More retrieve in {broken} of the splits, held out, and at most {most}"
    )


def decisions_tables(
    results: Sequence[Result], without_intervals: Sequence[str] = ()
) -> list[Table]:
    """Each policy, and each file that decides when to retrieve."""
    tables = []
    for result in results:
        if not result.deciders:
            continue
        rows = []
        for decider in result.deciders:
            row = decider | {"less": cell(decider.get("less"), "difference")}
            if row["system"] in POLICIES:
                row["system"] = label(row["system"])
            for name in without_intervals:
                if name in row:
                    row[name] = row[name].value
            rows.append(row)

        caption = (
            "Who decides when to retrieve, held out. Where a file has no answers, those of "
            f"{result.file.above} and {result.file.below} count. Area: the mean accuracy over all "
            "shares that may retrieve."
        )
        tables.append(table_of("decisions", caption, rows, DECISION_COLUMNS, DECISION_HEADS))
    return tables


def rule_table(results: Sequence[Result]) -> Table:
    """A row for each pair of files and relation."""
    caption = (
        f"Thresholds in {results[0].file.signal} (retrieve below), and the range that is not "
        "clearly worse; accuracies and the share that retrieves in per cent."
    )
    columns = ["below", "above", "name", "id", "questions", "own_threshold", "cut", "from", "to"]
    csv_only = ["above", "id"] if len(results) > 1 else ["below", "above", "id"]
    return table_of("thresholds", caption, _rows(results), [*columns, *ACCURACIES], HEADS, csv_only)


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
            threshold = relation["threshold"]
            row["cut"] = cut_in_words(threshold.value)
            row["from"] = cut_in_words(threshold.low)
            row["to"] = cut_in_words(threshold.high)
            for name in ACCURACIES:
                row[name] = relation[name]
            rows.append(row)

    return rows


def rule_html(
    results: Sequence[Result],
    set_name: str,
    notes: Sequence[str],
    by_popularity: list[dict],
    metrics: Table,
) -> str:
    """The page: verdict, policies, thresholds, and accuracy by popularity and by several metrics.

    `by_popularity` are the rows of `compare_systems.by_popularity`, `metrics` the table of
    `metrics_page.table_of_metrics`.
    """
    file = results[0].file
    *files_read, last_note = notes
    sections = [
        _verdict_section(results),
        _thresholds_section(results),
        _decisions_section(results),
        popularity_section(file.signal, by_popularity),
        Section("metrics", "By other metrics", [metrics], METRICS_LEAD),
        Section("files", "What was read", [*files_read], f"{last_note}."),
    ]
    filled = [section.shown for section in sections]
    sections = [section for section in filled if section.blocks]

    views = f", page views of {file.month}" if file.month else ""
    intro = (
        f"{file.questions:,} questions of {set_name}{views}. Below its relation's threshold of "
        f"{file.signal}, a question takes the answer of {file.below}, else that of {file.above}, "
        f"without retrieval. Verdict: {file.verdict}."
    )
    title = f"Thresholds: {file.below} and {file.above}"
    return rendering.render(title, intro, sections, FOOTER)


def _verdict_section(results: Sequence[Result]) -> Section:
    """The policies of each pair of files."""
    rows: list[dict[str, Any]] = []
    for result in results:
        key = {"below": result.file.below, "above": result.file.above}
        rows.append(key | {"verdict": result.file.verdict} | result.held_out)

    figure = Figure(
        name="policies",
        kind="dumbbell",
        rows=spread(rows, {policy: policy for policy in POLICIES}),
        x="below",
        y="accuracy",
        y_axis=Axis("held-out accuracy, %"),
        caption=f"The policies by whose text is read. {ORACLE}",
    )
    how = (
        f"The thresholds were searched for by `{results[0].file.search}`. Held-out figures are "
        "over 100 splits, each with a subject's questions on one side."
    )
    caption = (
        "Held-out accuracy in per cent, the gain over the better policy without thresholds in "
        "points, and the share of questions that retrieve in per cent."
    )
    columns = ["below", "above", *POLICIES, "gain", "retrieved", "verdict"]
    table = table_of("policies", caption, rows, columns, HEADS, csv_only=["above", "verdict"])
    verdicts = [f"{row['below']}: {row['verdict']}." for row in rows]
    for result in results:
        if result.file.budget:
            verdicts.append(f"Budget with {result.file.below}: {_budget(result)}.")
    leads = f"With {label(results[0].file.below)}, the advice is {advice(rows[0])}."
    title = "Is a threshold worth it?"
    return Section("verdict", title, [figure, how, *verdicts, table], leads)


def _thresholds_section(results: Sequence[Result]) -> Section:
    """The thresholds of all pairs, and between which bounds those of the first pair lie."""
    file = results[0].file
    cuts = [row["threshold"].value for row in results[0].relations]
    inner = [cut for cut in cuts if 0 < cut < math.inf]
    leads = f"No relation has a threshold of {file.signal} that splits its questions."
    if inner:
        least = show(min(inner))
        most = show(max(inner))
        leads = f"The relations' thresholds lie between {least} and {most} {file.signal}."

    drawn = []
    for result in results:
        for row in result.relations:
            cut = {
                "method": result.file.below,
                "name": result.file.names[row["relation"]],
                "cut": row["threshold"],
            }
            drawn.append(row | cut)
    figure = threshold_figure(drawn, file.signal)
    figure = replace(figure, caption=f"The {figure.caption}")
    return Section("thresholds", "Thresholds", [figure, rule_table(results)], leads)


def _decisions_section(results: Sequence[Result]) -> Section:
    """What decides when to retrieve, and which of these is right most often."""
    title = "Who decides when to retrieve?"
    tables = decisions_tables(results)
    if not tables:
        return Section("decisions", title)
    (rows,) = [result.deciders for result in results if result.deciders]
    rows = [row for row in rows if "accuracy" in row and row["system"] != "oracle"]
    best = max(rows, key=lambda row: row["accuracy"].value)
    leads = (
        f"Of all but the oracle, {label(best['system'])} is right most often "
        f"({in_percent(best['accuracy'])} %)."
    )
    return Section("decisions", title, [*tables], leads)
