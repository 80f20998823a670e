"""The history's sections: accuracy, the rule, thresholds and sizes, each month by month."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from pipelines import methods
from pipelines.intervals import Interval
from pipelines.report.by_month import RULE, History, since
from pipelines.report.page import MATCH, RULES, Figure, Percent, Section, Table, by_rule, label, named, show
from pipelines.report.timeline import Panel, Points, timeline

MOST = 8  # lines of a panel; the tables have all
DRAWN = ("bm25", "dense", "lsr")  # kinds of methods in the figures of the rule; the tables have all
SET, LM = "questions of", "language model"  # heads of tables
SIZES = ("questions", "triples", "passages", "bytes")


def accuracy(one: History) -> Section:
    """Accuracy by method, of every question set and language model."""
    title, answered = "Accuracy", one.answered(f"accuracy/{next(iter(RULES))}")
    if not answered:
        return Section("accuracy", title)

    def figure(dataset: str, lm: str) -> Callable[[str], Figure]:
        def draw(rule: str) -> Figure:
            lines = _first(one.lines(f"accuracy/{rule}/{dataset}/{lm}"))
            caption = f"{label(dataset)}, {lm}: accuracy by method, with Wilson's 95 % intervals."
            return timeline(f"accuracy-{dataset}-{lm}{one.suffix}", [Panel("accuracy, %", _percent(lines))], caption)

        return draw

    def says(rule: str) -> str:
        dataset, lm = answered[0]
        lines = _now(one, one.lines(f"accuracy/{rule}/{dataset}/{lm}"))
        if not lines:
            return _none(one, "accuracy", dataset, lm)
        best = max(lines, key=lambda method: lines[method][one.last].value)
        said = [
            f"{label(method)} on {_last(one, lines[method])}"
            for method in dict.fromkeys(("closed_book", best))
            if method in lines
        ]
        return f"In {one.last}, {lm} is right on questions of {label(dataset)}: {', and at best '.join(said)}."

    rows = [
        [rule, label(dataset), lm, label(method), *one.cells(line)]
        for rule in RULES
        for dataset, lm in answered
        for method, line in one.lines(f"accuracy/{rule}/{dataset}/{lm}").items()
    ]
    head = [MATCH, SET, LM, "answered", *one.newest]
    table = Table(f"accuracy{one.suffix}", "Accuracy in per cent, the last month first.", head, rows)
    drawn = [by_rule(figure(*both)) for both in answered]
    return Section("accuracy", title, [*drawn, table], says={rule: says(rule) for rule in RULES})


def rule(one: History) -> Section:
    """What choosing by popularity is worth, and how much it retrieves."""
    title, answered = "Adaptive retrieval", one.answered("adaptive")
    if not answered:
        return Section("rule", title)

    def figure(dataset: str, lm: str) -> Figure:
        lines = {y: _drawn(one.lines(f"{kind}/{dataset}/{lm}")) for kind, y in RULE.items()}
        caption = (
            f"{label(dataset)}, {lm}: held-out accuracy where popularity decides, and which share then retrieves, "
            "by where the text comes from. Intervals fit the thresholds again to resampled subjects."
        )
        panels = [Panel(f"{y}, %", _percent(of_kind)) for y, of_kind in lines.items()]
        return timeline(f"rule-{dataset}-{lm}{one.suffix}", panels, caption)

    dataset, lm = answered[0]
    right, retrieve = (_now(one, _drawn(one.lines(f"{kind}/{dataset}/{lm}"))) for kind in RULE)
    says = _none(one, "thresholds", dataset, lm)
    if both := right.keys() & retrieve.keys():
        best = max(sorted(both), key=lambda method: right[method][one.last].value)
        says = (
            f"In {one.last}, where popularity decides between {label(best)} and the closed-book answer, {lm} is right "
            f"on {_last(one, right[best])} of {label(dataset)}, and retrieves for {_last(one, retrieve[best])}."
        )
    rows = [
        [label(dataset), lm, label(method), what, *one.cells(line)]
        for dataset, lm in answered
        for kind, what in RULE.items()
        for method, line in one.lines(f"{kind}/{dataset}/{lm}").items()
    ]
    caption = "Held-out accuracy of the rule, and the share that retrieves, in per cent, the last month first."
    table = Table(f"rule{one.suffix}", caption, [SET, LM, "text of", "share", *one.newest], rows)
    return Section("rule", title, [*(figure(*both) for both in answered), table], says=says)


def thresholds(one: History) -> Section:
    """The thresholds of the main question set and language model: median and quartiles, and each relation's."""
    title, answered = "Thresholds", one.answered("threshold")
    if not answered:
        return Section("thresholds", title)
    dataset, lm = answered[0]
    start, what = f"threshold/{dataset}/{lm}", f"{label(dataset)}, {lm}: the popularity from which not to retrieve"
    relations = dict.fromkeys(name.split("/")[0] for name in one.under(f"{start}/"))
    by_relation = {relation: _drawn(one.lines(f"{start}/{relation}")) for relation in relations}

    def figure(name: str, lines: Mapping[str, Points], caption: str) -> Figure:
        panel = Panel("views a month", lines, log=True)
        return timeline(f"thresholds-{dataset}-{lm}{name}{one.suffix}", [panel], f"{what}{caption}", rings=False)

    middles = _middles(by_relation.values())
    every = figure("", middles, ", by where the text comes from: the relations' median, and the middle half of them.")
    choices = {
        named(relation): figure(f"-{relation}", lines, f", {named(relation)}, and the middle 95 % over resamples.")
        for relation, lines in by_relation.items()
    }
    now = [f"{show(line[one.last].value)} ({label(method)})" for method, line in _now(one, middles).items()]
    says = (
        f"In {one.last}, the median threshold of {len(relations)} relations of {label(dataset)} is, in views a month: "
        f"{', '.join(now)}."
    )
    rows = [
        [named(relation), label(method), *one.cells(line, lambda threshold: threshold.value)]
        for relation, lines in by_relation.items()
        for method, line in lines.items()
    ]
    caption = (
        "Thresholds in monthly page views, the last month first (0: never retrieve, ∞: always). They jump from one "
        "question to another, so their changes have no ring. history.csv has those of all methods and question sets."
    )
    table = Table(f"thresholds{one.suffix}", caption, ["relation", "text of", *one.newest], rows)
    lead = replace(every, by="relation", choices=choices)
    return Section("thresholds", title, [lead, table], says=says if now else _none(one, "thresholds", dataset, lm))


def sizes(one: History) -> Section:
    """How many questions, triples, passages and bytes there are."""
    found = {kind: one.under(f"{kind}/") or one.under(kind) for kind in SIZES}
    found = {kind: {name or "all": line for name, line in lines.items()} for kind, lines in found.items() if lines}
    if not found:
        return Section("sizes", "Sizes")
    totals = {kind: _total(one, lines.values()) for kind, lines in found.items()}
    drawn = {kind: {kind: totals[kind]} if kind == "bytes" else _first(lines) for kind, lines in found.items()}
    panels = [Panel(kind, lines) for kind, lines in drawn.items()]
    now = [f"{show(int(line[one.last].value))} {kind}{since(line)}" for kind, line in _now(one, totals).items()]
    rows = [
        [kind, label(name), *one.cells(line, lambda size: int(size.value))]
        for kind, lines in found.items()
        for name, line in (lines if len(lines) == 1 else lines | {"all": totals[kind]}).items()
    ]
    caption = "How much there is, by month. Bytes are those of all that stages wrote, below data/."
    table = Table(
        f"sizes{one.suffix}", "Sizes, the last month first; of bytes by folder of data/.", ["", "of", *one.newest], rows
    )
    says = f"In {one.last} there are {', '.join(now[:-1])}{' and ' * (len(now) > 1)}{now[-1] if now else 'no sizes'}."
    return Section("sizes", "Sizes", [timeline(f"sizes{one.suffix}", panels, caption), table], says=says)


def _middles(by_relation: Iterable[Mapping[str, Points]]) -> dict[str, Points]:
    """Method -> month -> median of the relations' thresholds, with their quartiles."""
    found: dict[str, dict[str, list[float]]] = {}
    for by_method in by_relation:
        for method, line in by_method.items():
            for month, threshold in line.items():
                found.setdefault(method, {}).setdefault(month, []).append(threshold.value)
    return {
        method: {
            month: Interval(*np.quantile(values, (0.5, 0.25, 0.75), method="nearest").tolist())  # some are infinite
            for month, values in by_month.items()
        }
        for method, by_month in found.items()
    }


def _total(one: History, lines: Iterable[Points]) -> dict[str, Interval]:
    lines = [*lines]
    sums = {month: [line[month].value for line in lines if month in line] for month in one.months}
    return {month: Interval(sum(values), math.nan, math.nan) for month, values in sums.items() if values}


def _drawn(lines: Mapping[str, Points]) -> dict[str, Points]:
    return _first({name: line for name, line in lines.items() if methods.split(name)[0] in DRAWN} or lines)


def _first(lines: Mapping[str, Points]) -> dict[str, Points]:
    return dict([*lines.items()][:MOST])


def _percent(lines: Mapping[str, Points]) -> dict[str, Points]:
    return {name: {month: share.times(100) for month, share in line.items()} for name, line in lines.items()}


def _now(one: History, lines: Mapping[str, Points]) -> dict[str, Points]:
    """The lines that have the last month."""
    return {name: line for name, line in lines.items() if one.last in line}


def _last(one: History, line: Points) -> str:
    return f"{show(Percent(line[one.last]))} %{since(line)}"


def _none(one: History, what: str, dataset: str, lm: str) -> str:
    return f"The runs of {one.last} have no {what} of {lm} on {label(dataset)}."
