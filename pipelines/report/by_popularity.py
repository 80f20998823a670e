"""Accuracy by popularity, as figures and tables of the section on accuracy (PopQA, section 4).

By decile of popularity, by popularity relative to the relation, and by relation and fifth of popularity; all of the
main language model.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pipelines.intervals import NOTHING
from pipelines.methods import split
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Percent, Table, label, named

DRAWN = ("closed_book", "bm25", "dense", "lsr", "genread")  # kinds of methods in charts by popularity: those of one
# passage at most; the tables have all
RULES = ("substring", "word")
CELL = 5  # questions in a fifth of popularity, to draw a relation by it (as in the paper)
SHOWN_RELATIONS = 2  # drawn are those with the strongest and as many with the weakest correlation


def popularity(dataset: str, inputs: Inputs) -> list[Figure | Table]:
    """By decile of popularity; the reader can choose a relation, drawn by fifths (Figures 1, 7 and 20)."""
    rows, methods = inputs.rows("accuracy_by_popularity", dataset=dataset), inputs.methods(dataset)
    cells = {(row["method"], row["decile"]): row for row in rows}
    deciles = {row["decile"]: row for row in rows if row["method"] == methods[0]}
    places = {decile: max(row["popularity"], 1) for decile, row in deciles.items()}
    drawn = [method for method in methods if split(method)[0] in DRAWN]
    x = "median monthly page views, by decile"
    whole = _charts(f"popularity-{dataset}", label(dataset), cells, places, drawn, x)
    by_relation = inputs.rows("accuracy_by_relation_and_popularity", dataset=dataset)
    choices = _of_relations(dataset, by_relation, drawn)
    return [
        *(
            replace(chart, by="relation", choices={name: charts[i] for name, charts in choices.items()})
            for i, chart in enumerate(whole)
        ),
        Table(
            f"accuracy-by-popularity-{dataset}",
            f"{label(dataset)}: accuracy in per cent by decile of popularity, by both rules.",
            ["decile", "questions", "median page views", "match", *map(label, methods)],
            [
                [decile, row["questions"], row["popularity"], rule, *(Percent(cells[m, decile][rule]) for m in methods)]
                for decile, row in deciles.items()
                for rule in RULES
            ],
        ),
    ]


def _of_relations(dataset: str, rows: list[dict], methods: list[str]) -> dict[str, list[Figure]]:
    """The charts by popularity of each relation with CELL questions in at least two fifths; only those are drawn."""
    choices = {}
    for relation in dict.fromkeys(row["relation"] for row in rows):
        fifths = [row for row in rows if row["relation"] == relation and row["questions"] >= CELL]
        cells = {(row["method"], row["fifth"]): row for row in fifths}
        places = {row["fifth"]: _middle(row) for row in fifths if row["method"] == methods[0]}
        if len(places) > 1:
            title = f"{label(dataset)}, {named(relation)}"
            x = "monthly page views (middle of each fifth)"
            choices[named(relation)] = _charts(f"popularity-{dataset}-{relation}", title, cells, places, methods, x)
    return choices


def _middle(row: dict) -> float:
    """The popularity at which a fifth is drawn."""
    return math.sqrt(max(row["least"], 1) * max(row["most"], 1))


def _charts(
    name: str, title: str, cells: dict[tuple[str, int], dict], places: dict[int, float], methods: list[str], x: str
) -> list[Figure]:
    """Accuracy by popularity, and what reading a passage changes; `cells` are by (method, bin), `places` by bin."""
    at = list(places.values())
    charts = [
        figures.lines(
            f"accuracy-by-{name}",
            {m: (at, [cells[m, bin_]["substring"].times(100) for bin_ in places]) for m in methods},
            x=f"{x} (log scale)",
            y="accuracy, %",
            log_x=True,
            caption=f"{title}: accuracy by the subject's popularity. Bands are Wilson's 95 % intervals.",
        )
    ]
    augmented = [m for m in methods if m != "closed_book"]
    if not augmented or "closed_book" not in methods:
        return charts
    return [
        *charts,
        figures.lines(
            f"gain-by-{name}",
            {m: (at, [cells[m, bin_]["gain"].times(100) for bin_ in places]) for m in augmented},
            x=f"{x} (log scale)",
            y="augmented minus closed-book, points",
            log_x=True,
            zero=True,
            caption=f"{title}: what reading a passage changes, by popularity. Above zero it helps. Bands are 95 % "
            "bootstrap intervals over subjects.",
        ),
    ]


def relative_popularity(inputs: Inputs) -> list[Figure | Table]:
    """The main question set's accuracy by popularity relative to the relation (Figure 8)."""
    dataset = inputs.main_questions
    rows, methods = inputs.rows("accuracy_by_relative_popularity", dataset=dataset), inputs.methods(dataset)
    cells = {(row["method"], row["bin"]): row for row in rows}
    bins = [row for row in rows if row["method"] == methods[0]]
    if not bins:
        return []
    at = [row["relative_popularity"] for row in bins]
    return [
        figures.lines(
            "accuracy-by-relative-popularity",
            {
                method: (at, [cells[method, row["bin"]]["substring"].times(100) for row in bins])
                for method in methods
                if split(method)[0] in DRAWN
            },
            x="log popularity against the relation's mean, in its standard deviations",
            y="accuracy, %",
            caption=f"{label(dataset)}: accuracy by popularity relative to other questions of the same relation. Bands "
            "are Wilson's 95 % intervals.",
        ),
        Table(
            "accuracy-by-relative-popularity",
            f"{label(dataset)}: accuracy in per cent by relative popularity (the mean of a bin, in standard deviations "
            "of the relation), by both rules.",
            ["relative popularity", "questions", "match", *map(label, methods)],
            [
                [round(row["relative_popularity"], 2), row["questions"], rule]
                + [Percent(cells[method, row["bin"]][rule]) for method in methods]
                for row in bins
                for rule in RULES
            ],
        ),
    ]


def relation_and_popularity(relations: list[dict], inputs: Inputs) -> list[Figure | Table]:
    """The first method's accuracy (closed-book, if there is one) by relation and fifth of popularity (Figure 6)."""
    dataset = inputs.main_questions
    method = inputs.methods(dataset)[0]
    rows = inputs.rows("accuracy_by_relation_and_popularity", dataset=dataset, method=method)
    cells = {(row["relation"], row["fifth"]): row for row in rows}
    fifths = {row["fifth"]: row for row in sorted(rows, key=lambda row: row["fifth"])}
    table = Table(
        "accuracy-by-relation-and-popularity",
        f"{label(dataset)}, {label(method)}: accuracy in per cent by relation and fifth of popularity, by both rules. "
        "The fifths are those of all relations together; the heads are their bounds in monthly page views.",
        ["relation", "match", *(f"{row['least']:,.0f} to {row['most']:,.0f}" for row in fifths.values())],
        [
            [named(relation), rule]
            + [Percent(cells[relation, fifth][rule] if (relation, fifth) in cells else NOTHING) for fifth in fifths]
            for relation in (row["relation"] for row in relations)
            for rule in RULES
        ],
    )
    ranked = sorted(
        (
            row
            for row in relations
            if all(cells.get((row["relation"], fifth), {}).get("questions", 0) >= CELL for fifth in fifths)
            and math.isfinite(row["correlation"].value)
        ),
        key=lambda row: -row["correlation"].value,
    )
    if len(ranked) < 2 * SHOWN_RELATIONS:
        return [table]
    drawn = ranked[:SHOWN_RELATIONS] + ranked[-SHOWN_RELATIONS:]
    at = [_middle(row) for row in fifths.values()]
    figure = figures.lines(
        "accuracy-by-relation-and-popularity",
        {
            named(row["relation"]): (at, [cells[row["relation"], fifth]["substring"].times(100) for fifth in fifths])
            for row in drawn
        },
        x="monthly page views of the subject (middle of each fifth)",
        y="accuracy, %",
        log_x=True,
        caption=f"{label(dataset)}, {label(method)}: accuracy by popularity for the {SHOWN_RELATIONS} relations with "
        f"the strongest and the {SHOWN_RELATIONS} with the weakest correlation, of those with at least {CELL} "
        "questions in every fifth. Bands are Wilson's 95 % intervals.",
    )
    return [figure, table]
