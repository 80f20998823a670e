"""Accuracy by popularity, as figures and tables of the section on accuracy (PopQA, section 4).

By decile and by half power of ten of popularity, and by popularity relative to the relation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from pipelines.evaluation import accuracy, popularity_bins
from pipelines.intervals import Interval
from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Block, Figure, Percent, Table, label, named

RULES = ("substring", "word")
BOUNDS = ("page views from", "below")
MEDIAN = "median monthly page views"
SHOWN_RELATIONS = 2  # drawn are those with the strongest and as many with the weakest correlation
WILSON = "Bands are Wilson's 95 % intervals."


def views(row: dict) -> float:
    """Where a bin is drawn: at its median page views, none below 1 on their log scale."""
    return max(row["popularity"], 1)


def crossed(
    name: str,
    caption: str,
    head: Sequence[str],
    lead: Callable[[dict], Sequence],
    rows: Sequence[dict],
    by: str,
    columns: Mapping[str, str],
    *,
    across: str = "method",
    values: Sequence[str] = RULES,
) -> Table:
    """A table with a line for each value of `by` (a bin, a relation), and a column for each method or other `across`.

    `rows` have a figure for each of both; `columns` maps the values of `across` to what the head calls them. `head` and
    `lead` are a line's first cells. Several `values`, such as both rules, take a line each. Shares become per cent.
    """
    cells = {(row[across], row[by]): row for row in rows}
    several = len(values) > 1
    lines = [row for row in rows if row[across] == next(iter(columns))]
    return Table(
        name,
        caption,
        [*head, *["match"] * several, *columns.values()],
        [
            [*lead(row), *[value] * several] + [_shown(cells[column, row[by]][value], value) for column in columns]
            for row in lines
            for value in values
        ],
    )


def _shown(figure: Interval, value: str) -> Interval | Percent:
    return figure if value == "correlation" else Percent(figure)


def chart(
    name: str,
    rows: Sequence[dict],
    methods: Iterable[str],
    value: str = "substring",
    place: Callable[[dict], float] = views,
    **words,
) -> Figure:
    """A line for each method, of a share in per cent over its rows' places; `words` are those of axes and caption."""
    of_methods = {method: [row for row in rows if row["method"] == method] for method in methods}
    series = {m: ([*map(place, of)], [row[value].times(100) for row in of]) for m, of in of_methods.items()}
    return figures.lines(name, series, **{"y": "accuracy, %"} | words)


def popularity(dataset: str, inputs: Inputs) -> list[Block]:
    """By decile of popularity; the reader can choose a relation, drawn by bins of its own (Figures 1, 7 and 20)."""
    rows, methods = inputs.rows("accuracy_by_popularity", dataset=dataset), inputs.methods(dataset)
    if not rows:
        return []
    deciles = [row for row in rows if row["method"] == methods[0]]
    drawn = drawn_methods(methods)
    bins, parts, why = "by decile", "by decile of popularity", ""
    if len(deciles) < popularity_bins.DECILES:
        bins = parts = f"in {len(deciles)} groups by popularity"
        least = popularity_bins.least_of(sum(row["questions"] for row in deciles))
        why = f" There are {len(deciles)} groups, because some deciles would have fewer than {least} questions."
    whole = _charts(f"popularity-{dataset}", label(dataset), rows, drawn, f"{MEDIAN}, {bins}", why)
    by_relation = inputs.rows("accuracy_by_relation_and_popularity", dataset=dataset)
    choices = _of_relations(dataset, by_relation, drawn)
    return [
        *(
            replace(chart, by="relation", choices={name: charts[i] for name, charts in choices.items()})
            for i, chart in enumerate(whole)
        ),
        crossed(
            f"accuracy-by-popularity-{dataset}",
            f"{label(dataset)}: accuracy in per cent {parts}, by both rules.{why}",
            ["from decile", "questions", "median page views"],
            itemgetter("decile", "questions", "popularity"),
            rows,
            "decile",
            labels(methods),
        ),
    ]


def log_popularity(dataset: str, inputs: Inputs) -> list[Block]:
    """By half power of ten of popularity (Figure 1); nothing where there are too few questions for a bin."""
    rows, methods = inputs.rows("accuracy_by_log_popularity", dataset=dataset), inputs.methods(dataset)
    if not rows:
        return []
    name, why = f"accuracy-by-log-popularity-{dataset}", merged([row for row in rows if row["method"] == methods[0]])
    return [
        chart(
            name,
            rows,
            drawn_methods(methods),
            x=f"{MEDIAN} (log scale)",
            log_x=True,
            caption=f"{label(dataset)}: accuracy by half power of ten of popularity. {why} {WILSON}",
        ),
        crossed(
            name,
            f"{label(dataset)}: accuracy in per cent by half power of ten of monthly page views, by both rules. {why}",
            [*BOUNDS, "questions"],
            lambda row: [*bounds(row), row["questions"]],
            rows,
            "bin",
            labels(methods),
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
        if sum(row["method"] == methods[0] for row in bins) > 1:
            title = f"{label(dataset)}, {named(relation)}"
            x, name = f"{MEDIAN}, by half power of ten", f"popularity-{dataset}-{relation}"
            choices[named(relation)] = _charts(name, title, bins, methods, x, f" {MERGED}")
    return choices


def _charts(name: str, title: str, rows: list[dict], methods: list[str], x: str, bins: str) -> list[Figure]:
    """Accuracy by popularity, and what reading a passage changes; `bins` says how the bins of `rows` came about."""
    x = f"{x} (log scale)"
    caption = f"{title}: accuracy by the subject's popularity.{bins} {WILSON}"
    charts = [chart(f"accuracy-by-{name}", rows, methods, x=x, log_x=True, caption=caption)]
    augmented = [m for m in methods if m != "closed_book"]
    if not augmented or "closed_book" not in methods:
        return charts
    caption = (
        f"{title}: what reading a passage changes, by popularity. Above zero it helps.{bins} Bands are 95 % bootstrap "
        "intervals over subjects."
    )
    words = {"x": x, "y": "augmented minus closed-book, points", "log_x": True, "zero": True, "caption": caption}
    return [*charts, chart(f"gain-by-{name}", rows, augmented, "gain", **words)]


def relative_popularity(inputs: Inputs) -> list[Block]:
    """The main question set's accuracy by popularity relative to the relation (Figure 8)."""
    dataset, name = inputs.main_questions, "accuracy-by-relative-popularity"
    rows, methods = inputs.rows("accuracy_by_relative_popularity", dataset=dataset), inputs.methods(dataset)
    if not rows:
        return []
    return [
        chart(
            name,
            rows,
            drawn_methods(methods),
            place=itemgetter("relative_popularity"),
            x="log popularity against the relation's mean, in its standard deviations",
            caption=f"{label(dataset)}: accuracy by popularity relative to other questions of the same relation. "
            f"{WILSON}",
        ),
        crossed(
            name,
            f"{label(dataset)}: accuracy in per cent by relative popularity (the mean of a bin, in standard deviations "
            "of the relation), by both rules.",
            ["relative popularity", "questions"],
            lambda row: [round(row["relative_popularity"], 2), row["questions"]],
            rows,
            "bin",
            labels(methods),
        ),
    ]


def relation_and_popularity(relations: list[dict], inputs: Inputs) -> list[Block]:
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
            named(relation): ([*map(views, rows)], [row["substring"].times(100) for row in rows])
            for relation, rows in drawn.items()
        },
        x=f"{MEDIAN} (log scale)",
        y="accuracy, %",
        log_x=True,
        caption=f"{label(dataset)}, {label(method)}: accuracy by popularity for the {SHOWN_RELATIONS} relations with "
        f"the strongest and the {SHOWN_RELATIONS} with the weakest correlation, of those with two bins or more. "
        f"{WILSON}",
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


def of_relation(row: dict) -> list:
    """The first cells of a line of a table by relation."""
    return [named(row["relation"]), row["questions"]]


def labels(methods: Sequence[str]) -> dict[str, str]:
    """Each method and what the report calls it."""
    return {method: label(method) for method in methods}


def bounds(row: dict) -> list[int]:
    """The cells under BOUNDS of a bin."""
    return [round(row[end]) for end in ("least", "below")]
