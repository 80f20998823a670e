"""Accuracy by popularity, as figures and tables of the section on accuracy (PopQA, section 4).

By decile and by half power of ten of popularity, by popularity relative to the relation, and by relation; all of the
main language model.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pipelines.evaluation import accuracy, popularity_bins
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Percent, Table, label, named

RULES = ("substring", "word")
BOUNDS = ("page views from", "below")
MEDIAN = "median monthly page views"
SHOWN_RELATIONS = 2  # drawn are those with the strongest and as many with the weakest correlation


def popularity(dataset: str, inputs: Inputs) -> list[Figure | Table]:
    """By decile of popularity; the reader can choose a relation, drawn by bins of its own (Figures 1, 7 and 20)."""
    rows, methods = inputs.rows("accuracy_by_popularity", dataset=dataset), inputs.methods(dataset)
    if not rows:
        return []
    cells = {(row["method"], row["decile"]): row for row in rows}
    deciles = {row["decile"]: row for row in rows if row["method"] == methods[0]}
    places = {decile: max(row["popularity"], 1) for decile, row in deciles.items()}
    drawn = drawn_methods(methods)
    bins, parts, why = "by decile", "by decile of popularity", ""
    if len(deciles) < popularity_bins.DECILES:
        bins = parts = f"in {len(deciles)} groups by popularity"
        least = popularity_bins.least_of(sum(row["questions"] for row in deciles.values()))
        why = f" There are {len(deciles)} groups, because some deciles would have fewer than {least} questions."
    whole = _charts(f"popularity-{dataset}", label(dataset), cells, places, drawn, f"{MEDIAN}, {bins}", why)
    by_relation = inputs.rows("accuracy_by_relation_and_popularity", dataset=dataset)
    choices = _of_relations(dataset, by_relation, drawn)
    return [
        *(
            replace(chart, by="relation", choices={name: charts[i] for name, charts in choices.items()})
            for i, chart in enumerate(whole)
        ),
        Table(
            f"accuracy-by-popularity-{dataset}",
            f"{label(dataset)}: accuracy in per cent {parts}, by both rules.{why}",
            ["from decile", "questions", "median page views", "match", *map(label, methods)],
            [
                [decile, row["questions"], row["popularity"], rule, *(Percent(cells[m, decile][rule]) for m in methods)]
                for decile, row in deciles.items()
                for rule in RULES
            ],
        ),
    ]


def log_popularity(dataset: str, inputs: Inputs) -> list[Figure | Table]:
    """By half power of ten of popularity (Figure 1); nothing where there are too few questions for a bin."""
    rows, methods = inputs.rows("accuracy_by_log_popularity", dataset=dataset), inputs.methods(dataset)
    by_method = {method: [row for row in rows if row["method"] == method] for method in methods}
    cells = {(row["method"], row["bin"]): row for row in rows}
    if not rows:
        return []
    return [
        figures.lines(
            f"accuracy-by-log-popularity-{dataset}",
            {
                method: (places(by_method[method]), [row["substring"].times(100) for row in by_method[method]])
                for method in drawn_methods(methods)
            },
            x=f"{MEDIAN} (log scale)",
            y="accuracy, %",
            log_x=True,
            caption=f"{label(dataset)}: accuracy by half power of ten of popularity. {merged(by_method[methods[0]])} "
            "Bands are Wilson's 95 % intervals.",
        ),
        Table(
            f"accuracy-by-log-popularity-{dataset}",
            f"{label(dataset)}: accuracy in per cent by half power of ten of monthly page views, by both rules. "
            f"{merged(by_method[methods[0]])}",
            [*BOUNDS, "questions", "match", *map(label, methods)],
            [
                [*bounds(row), row["questions"], rule, *(Percent(cells[m, row["bin"]][rule]) for m in methods)]
                for row in by_method[methods[0]]
                for rule in RULES
            ],
        ),
    ]


def least_popular(dataset: str, inputs: Inputs) -> list[Figure]:
    """Each method on the least popular questions, beside all questions (the paper's figure of its 4,000)."""
    rows = inputs.rows("accuracy_by_group", dataset=dataset, group="least popular")
    if not rows or rows[0]["questions"] < popularity_bins.LEAST:
        return []
    everything = {row["method"]: row for row in inputs.rows("accuracy", dataset=dataset)}
    least = f"{rows[0]['questions']:,} least popular"
    return [
        figures.bars(
            f"least-popular-{dataset}",
            [label(row["method"]) for row in rows],
            {
                least: [row["substring"].times(100) for row in rows],
                "all questions": [everything[row["method"]]["substring"].times(100) for row in rows],
            },
            y="accuracy, %",
            caption=f"{label(dataset)}: accuracy on the {rows[0]['questions']:,} least popular questions, and on all "
            f"{everything[rows[0]['method']]['questions']:,}. The paper shows its {accuracy.LEAST_POPULAR:,} least "
            f"popular of {accuracy.OF_PUBLISHED:,} questions; a smaller set shows the same share. Bars are Wilson's "
            "95 % intervals.",
        )
    ]


def _of_relations(dataset: str, rows: list[dict], methods: list[str]) -> dict[str, list[Figure]]:
    """The charts by popularity of each relation that has two bins or more."""
    choices = {}
    for relation in dict.fromkeys(row["relation"] for row in rows):
        bins = [row for row in rows if row["relation"] == relation]
        cells = {(row["method"], row["bin"]): row for row in bins}
        places = {row["bin"]: max(row["popularity"], 1) for row in bins if row["method"] == methods[0]}
        if len(places) > 1:
            title = f"{label(dataset)}, {named(relation)}"
            x, name = f"{MEDIAN}, by half power of ten", f"popularity-{dataset}-{relation}"
            choices[named(relation)] = _charts(name, title, cells, places, methods, x, f" {MERGED}")
    return choices


def _charts(
    name: str,
    title: str,
    cells: dict[tuple[str, int], dict],
    places: dict[int, float],
    methods: list[str],
    x: str,
    bins: str,
) -> list[Figure]:
    """Accuracy by popularity, and what reading a passage changes; `cells` are by (method, bin), `places` by bin.

    `bins` says in the captions how the bins came about.
    """
    at = list(places.values())
    charts = [
        figures.lines(
            f"accuracy-by-{name}",
            {m: (at, [cells[m, bin_]["substring"].times(100) for bin_ in places]) for m in methods},
            x=f"{x} (log scale)",
            y="accuracy, %",
            log_x=True,
            caption=f"{title}: accuracy by the subject's popularity.{bins} Bands are Wilson's 95 % intervals.",
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
            caption=f"{title}: what reading a passage changes, by popularity. Above zero it helps.{bins} Bands are "
            "95 % bootstrap intervals over subjects.",
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
                for method in drawn_methods(methods)
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
    """The first method's accuracy (closed-book, if there is one) by relation and popularity (Figure 6)."""
    dataset = inputs.main_questions
    method = inputs.methods(dataset)[0]
    by_relation: dict[str, list[dict]] = {row["relation"]: [] for row in relations}
    for row in inputs.rows("accuracy_by_relation_and_popularity", dataset=dataset, method=method):
        by_relation[row["relation"]].append(row)
    table = Table(
        "accuracy-by-relation-and-popularity",
        f"{label(dataset)}, {label(method)}: accuracy in per cent by relation and half power of ten of popularity, by "
        f"both rules. {MERGED}",
        ["relation", *BOUNDS, "questions", "match", "accuracy"],
        [
            [named(relation), *bounds(row), row["questions"], rule, Percent(row[rule])]
            for relation, rows in by_relation.items()
            for row in rows
            for rule in RULES
        ],
    )
    ranked = sorted(
        (row for row in relations if len(by_relation[row["relation"]]) > 1 and math.isfinite(row["correlation"].value)),
        key=lambda row: -row["correlation"].value,
    )
    if len(ranked) < 2 * SHOWN_RELATIONS:
        return [table]
    drawn = {
        row["relation"]: by_relation[row["relation"]] for row in (*ranked[:SHOWN_RELATIONS], *ranked[-SHOWN_RELATIONS:])
    }
    figure = figures.lines(
        "accuracy-by-relation-and-popularity",
        {
            named(relation): (places(rows), [row["substring"].times(100) for row in rows])
            for relation, rows in drawn.items()
        },
        x=f"{MEDIAN} (log scale)",
        y="accuracy, %",
        log_x=True,
        caption=f"{label(dataset)}, {label(method)}: accuracy by popularity for the {SHOWN_RELATIONS} relations with "
        f"the strongest and the {SHOWN_RELATIONS} with the weakest correlation, of those with two bins or more. Bands "
        "are Wilson's 95 % intervals.",
    )
    return [figure, table]


def merged(bins: list[dict]) -> str:
    """How bins of this size came about, for a caption; `bins` are all rows of a method."""
    return _merged(popularity_bins.least_of(sum(row["questions"] for row in bins)))


def _merged(least: int) -> str:
    return f"Bins with fewer than {least} questions are merged with their neighbours."


MERGED = _merged(popularity_bins.LEAST)  # of a relation's bins, which never have fewer


def drawn_methods(methods: list[str]) -> list[str]:
    """The methods in charts by popularity: those of one passage at most; the tables have all."""
    return [method for method in methods if not method.startswith("replug")]


def places(rows: list[dict]) -> list[float]:
    """Where bins are drawn: at their median popularity."""
    return [max(row["popularity"], 1) for row in rows]


def bounds(row: dict) -> list[int]:
    """The cells under BOUNDS of a bin."""
    return [round(row[end]) for end in ("least", "below")]
