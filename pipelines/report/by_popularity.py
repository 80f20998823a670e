"""Accuracy by popularity, drawn and tabled: by decile, relative to the relation, of each relation (PopQA, section 4).

Blocks of the report's section on accuracy, of the main language model.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pipelines.answering.answer_files import METHODS
from pipelines.intervals import NOTHING
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Percent, Table, label, named, percent

DRAWN = METHODS[:5]  # methods in charts by popularity: those of one passage at most; the tables have all
RULES = ("substring", "word")
CELL = 5  # questions in a fifth of popularity, to draw a relation by it (as in the paper)
SHOWN_RELATIONS = 2  # those with the strongest and as many with the weakest correlation are drawn


def popularity(dataset: str, inputs: Inputs) -> list[Figure | Table]:
    """By decile of popularity, and for the reader's choice by fifth of it of each relation (Figures 1, 7 and 20)."""
    rows, methods = inputs.rows("accuracy_by_popularity", dataset=dataset), inputs.methods(dataset)
    of = {(row["method"], row["decile"]): row for row in rows}
    deciles = {row["decile"]: row for row in rows if row["method"] == methods[0]}
    at = {decile: max(row["popularity"], 1) for decile, row in deciles.items()}
    drawn = [m for m in DRAWN if m in methods]
    by_relation = inputs.rows("accuracy_by_relation_and_popularity", dataset=dataset)
    whole = _charts(f"popularity-{dataset}", label(dataset), of, at, drawn, "median monthly page views, by decile")
    choices = _of_relations(dataset, by_relation, drawn)
    return [
        *(
            replace(figure, by="relation", choices={name: own[i] for name, own in choices.items()})
            for i, figure in enumerate(whole)
        ),
        Table(
            f"accuracy-by-popularity-{dataset}",
            f"{label(dataset)}: accuracy in per cent by decile of popularity, by both rules.",
            ["decile", "questions", "median page views", "match", *map(label, methods)],
            [
                [decile, row["questions"], row["popularity"], rule, *(Percent(of[m, decile][rule]) for m in methods)]
                for decile, row in deciles.items()
                for rule in RULES
            ],
        ),
    ]


def _of_relations(dataset: str, rows: list[dict], methods: list[str]) -> dict[str, list[Figure]]:
    """The charts by popularity of each relation with two fifths or more of CELL questions, which are drawn."""
    choices = {}
    for relation in dict.fromkeys(row["relation"] for row in rows):
        own = [row for row in rows if row["relation"] == relation and row["questions"] >= CELL]
        of = {(row["method"], row["fifth"]): row for row in own}
        at = {row["fifth"]: _middle(row) for row in own if row["method"] == methods[0]}
        if len(at) > 1:
            said = f"{label(dataset)}, {named(relation)}"
            x = "monthly page views (middle of each fifth)"
            choices[named(relation)] = _charts(f"popularity-{dataset}-{relation}", said, of, at, methods, x)
    return choices


def _middle(row: dict) -> float:
    """Where a fifth of popularity is drawn."""
    return math.sqrt(max(row["least"], 1) * max(row["most"], 1))


def _charts(
    name: str, said: str, of: dict[tuple[str, int], dict], at: dict[int, float], methods: list[str], x: str
) -> list[Figure]:
    """Accuracy by popularity, and what reading a passage changes: `of` has (method, bin), `at` the bins' places."""
    places, first, last = list(at.values()), min(at), max(at)
    levels = "; ".join(
        f"{label(m)} {percent(of[m, first]['substring'].value)} to {percent(of[m, last]['substring'].value)}"
        for m in methods
    )
    augmented = [m for m in methods if m != "closed_book"]
    changes = "; ".join(
        f"{label(m)} {100 * of[m, first]['gain'].value:+.0f} to {100 * of[m, last]['gain'].value:+.0f}"
        for m in augmented
    )
    return [
        figures.lines(
            f"accuracy-by-{name}",
            {m: (places, [of[m, bin_]["substring"].times(100) for bin_ in at]) for m in methods},
            x=f"{x} (log scale)",
            y="accuracy, %",
            log_x=True,
            caption=f"{said}: accuracy by the subject's popularity; bands are Wilson's 95 % intervals.",
            alt=f"Line chart of accuracy by popularity ({said}), least popular subjects to most popular: {levels}.",
        ),
        figures.lines(
            f"gain-by-{name}",
            {m: (places, [of[m, bin_]["gain"].times(100) for bin_ in at]) for m in augmented},
            x=f"{x} (log scale)",
            y="augmented minus closed-book, points",
            log_x=True,
            zero=True,
            caption=f"{said}: what reading a passage changes, by popularity; above zero it helps. Bands are 95 % "
            "bootstrap intervals over subjects.",
            alt=f"Line chart of augmented minus closed-book accuracy in points ({said}), least popular subjects to "
            f"most popular: {changes}.",
        ),
    ]


def relative_popularity(inputs: Inputs) -> list[Figure | Table]:
    """PopQA's accuracy by popularity relative to the relation (Figure 8)."""
    rows, methods = inputs.rows("accuracy_by_relative_popularity", dataset="popqa"), inputs.methods("popqa")
    of = {(row["method"], row["bin"]): row for row in rows}
    bins = [row for row in rows if row["method"] == methods[0]]
    if not bins:
        return []
    ends = of[methods[0], bins[0]["bin"]], of[methods[0], bins[-1]["bin"]]
    return [
        figures.lines(
            "accuracy-by-relative-popularity",
            {
                m: (
                    [row["relative_popularity"] for row in bins],
                    [of[m, row["bin"]]["substring"].times(100) for row in bins],
                )
                for m in DRAWN
                if m in methods
            },
            x="log popularity against the relation's mean, in its standard deviations",
            y="accuracy, %",
            caption="PopQA: accuracy by popularity relative to other questions of the same relation; bands "
            "are Wilson's 95 % intervals.",
            alt=f"Line chart of PopQA accuracy by relative popularity: {label(methods[0])} goes from "
            f"{percent(ends[0]['substring'].value)} in the lowest bin to {percent(ends[1]['substring'].value)} in the "
            "highest.",
        ),
        Table(
            "accuracy-by-relative-popularity",
            "PopQA: accuracy in per cent by relative popularity (a bin's mean, in standard deviations of "
            "the relation), by both rules.",
            ["relative popularity", "questions", "match", *map(label, methods)],
            [
                [round(row["relative_popularity"], 2), row["questions"], rule]
                + [Percent(of[m, row["bin"]][rule]) for m in methods]
                for row in bins
                for rule in RULES
            ],
        ),
    ]


def relation_and_popularity(relations: list[dict], inputs: Inputs) -> list[Figure | Table]:
    """The first method's accuracy (closed-book, where there is one) by relation and fifth of popularity (Figure 6)."""
    method = inputs.methods("popqa")[0]
    rows = inputs.rows("accuracy_by_relation_and_popularity", dataset="popqa", method=method)
    of = {(row["relation"], row["fifth"]): row for row in rows}
    fifths = {row["fifth"]: row for row in sorted(rows, key=lambda row: row["fifth"])}
    table = Table(
        "accuracy-by-relation-and-popularity",
        f"PopQA, {label(method)}: accuracy in per cent by relation and fifth of popularity, by both rules. The fifths, "
        "with their bounds in monthly page views, are those of all relations together.",
        ["relation", "match", *(f"{row['least']:,.0f} to {row['most']:,.0f}" for row in fifths.values())],
        [
            [named(row["relation"]), rule]
            + [Percent(of[cell][rule] if (cell := (row["relation"], fifth)) in of else NOTHING) for fifth in fifths]
            for row in relations
            for rule in RULES
        ],
    )
    ranked = sorted(
        (
            row
            for row in relations
            if all(of.get((row["relation"], fifth), {}).get("questions", 0) >= CELL for fifth in fifths)
            and math.isfinite(row["correlation"].value)
        ),
        key=lambda row: -row["correlation"].value,
    )
    if len(ranked) < 2 * SHOWN_RELATIONS:
        return [table]
    drawn = ranked[:SHOWN_RELATIONS] + ranked[-SHOWN_RELATIONS:]
    at = [_middle(row) for row in fifths.values()]
    said = ", ".join(f"{named(row['relation'])} {row['correlation'].value:+.2f}" for row in drawn)
    figure = figures.lines(
        "accuracy-by-relation-and-popularity",
        {
            named(row["relation"]): (at, [of[row["relation"], fifth]["substring"].times(100) for fifth in fifths])
            for row in drawn
        },
        x="monthly page views of the subject (middle of each fifth)",
        y="accuracy, %",
        log_x=True,
        caption=f"PopQA, {label(method)}: accuracy by popularity for the {SHOWN_RELATIONS} relations with the "
        f"strongest and the {SHOWN_RELATIONS} with the weakest correlation, of those with {CELL} questions or more in "
        "every fifth; bands are Wilson's 95 % intervals.",
        alt=f"Line chart of {label(method)} accuracy by fifth of popularity for single relations, whose correlations "
        f"with log popularity are: {said}.",
    )
    return [figure, table]
