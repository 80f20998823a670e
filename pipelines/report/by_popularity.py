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
from pipelines.report.drawing import PALETTE
from pipelines.report.inputs import Inputs
from pipelines.report.page import MATCH, RULES, Block, Figure, Percent, Table, by_rule, label, named

BOUNDS = ("page views from", "below")
MEDIAN = "median monthly page views"
GAINS = dict(zip(RULES, popularity_bins.GAINS, strict=True))  # rule -> the column of the gain by it
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
    values: Sequence[str] = tuple(RULES),
) -> Table:
    """A table with a line for each value of `by` (a bin, a relation), and a column for each method or other `across`.

    `rows` have a figure for each of both; `columns` maps the values of `across` to what the head calls them. `head` and
    `lead` are a line's first cells. Several `values`, such as both rules, take a line each, and so do several language
    models. Shares become per cent.
    """
    of_lm = [row.get("lm") if across != "lm" else None for row in rows]
    cells = {(lm, row[across], row[by]): row for lm, row in zip(of_lm, rows, strict=True)}
    lines = {(lm, row[by]): row for lm, row in reversed([*zip(of_lm, rows, strict=True)])}  # the first of each
    several, models = len(values) > 1, len(set(of_lm)) > 1
    return Table(
        name,
        caption,
        [*head[:1], *["language model"] * models, *head[1:], *[MATCH] * several, *columns.values()],
        [
            [*first[:1], *[lm] * models, *first[1:], *[value] * several]
            + [_shown(cells.get((lm, column, place)), value) for column in columns]
            for (lm, place), row in reversed(lines.items())
            for first in [[*lead(row)]]
            for value in values
        ],
    )


def _shown(row: dict | None, value: str) -> Interval | Percent | None:
    return row and (row[value] if value == "correlation" else Percent(row[value]))


def chart(
    name: str,
    rows: Sequence[dict],
    series: Iterable[str],
    value: str = "substring",
    place: Callable[[dict], float] = views,
    **words,
) -> Figure:
    """A line for each series (a method), of a share in per cent over its rows' places; `words` are those of axes."""
    of_series = {one: [row for row in rows if row.get("series", row["method"]) == one] for one in series}
    points = {one: ([*map(place, of)], [row[value].times(100) for row in of]) for one, of in of_series.items()}
    return figures.lines(name, points, **{"y": "accuracy, %"} | words)


def by_decile(dataset: str, inputs: Inputs) -> list[Block]:
    """By decile of popularity; the reader can choose a relation, drawn by bins of its own (Figures 1, 7 and 20)."""
    rows = inputs.answered("accuracy_by_popularity", dataset=dataset)
    if not rows:
        return []
    parts, why = _deciles(dataset, inputs)
    return [
        _with_relations("accuracy-by-popularity", dataset, inputs, _accuracy),
        crossed(
            f"accuracy-by-popularity-{dataset}",
            f"{label(dataset)}: accuracy in per cent {parts}.{why}",
            ["from decile", "questions", "median page views"],
            itemgetter("decile", "questions", "popularity"),
            rows,
            "decile",
            labels(rows),
        ),
    ]


def gains_by_decile(dataset: str, inputs: Inputs) -> list[Figure]:
    """What reading a passage changes, by decile of popularity, or by that of a relation that the reader chooses."""
    rows = inputs.answered("accuracy_by_popularity", dataset=dataset)
    if not any(math.isfinite(row["gain"].value) for row in rows):
        return []
    return [_with_relations("gain-by-popularity", dataset, inputs, _gain)]


def _deciles(dataset: str, inputs: Inputs) -> tuple[str, str]:
    """What the bins of the main language model's questions are called, and why they are fewer than ten."""
    rows = inputs.rows("accuracy_by_popularity", dataset=dataset)
    deciles = [row for row in rows if row["method"] == rows[0]["method"]]
    if len(deciles) >= popularity_bins.DECILES:
        return "by decile of popularity", ""
    least = popularity_bins.least_of(sum(row["questions"] for row in deciles))
    why = f" There are {len(deciles)} groups, because some deciles would have fewer than {least} questions."
    return f"in {len(deciles)} groups by popularity", why


def _with_relations(name: str, dataset: str, inputs: Inputs, draw: Callable[..., Figure]) -> Figure:
    """The figure of all questions, in place of which the reader can choose that of a relation with two bins or more."""
    parts, why = _deciles(dataset, inputs)
    rows = inputs.answered("accuracy_by_popularity", dataset=dataset)
    whole = draw(f"{name}-{dataset}", label(dataset), rows, f"{MEDIAN}, {parts}", why)
    rows, choices = inputs.answered("accuracy_by_relation_and_popularity", dataset=dataset), {}
    for relation in dict.fromkeys(row["relation"] for row in rows):
        bins = [row for row in rows if row["relation"] == relation]
        if sum(row["series"] == rows[0]["series"] for row in bins) > 1:
            title, x = f"{label(dataset)}, {named(relation)}", f"{MEDIAN}, by half power of ten"
            choices[named(relation)] = draw(f"{name}-{dataset}-{relation}", title, bins, x, f" {MERGED}")
    return replace(whole, by="relation", choices=choices)


def _accuracy(name: str, title: str, rows: list[dict], x: str, bins: str) -> Figure:
    """Accuracy by popularity."""
    caption = f"{title}: accuracy by the subject's popularity.{bins} {WILSON}{left_out(rows)}"
    words = {"x": f"{x} (log scale)", "log_x": True, "caption": caption}
    return by_rule(lambda rule: chart(name, rows, drawn(rows), rule, **words))


def _gain(name: str, title: str, rows: list[dict], x: str, bins: str) -> Figure:
    """What reading a passage changes by popularity."""
    caption = (
        f"{title}: what reading a passage changes, by popularity. Above zero it helps.{bins} Bands are 95 % bootstrap "
        "intervals over subjects."
    )
    words = {"x": f"{x} (log scale)", "y": "augmented minus closed-book, points", "log_x": True, "zero": True}
    augmented = [row for row in rows if row["method"] != "closed_book"]
    return by_rule(lambda rule: chart(name, rows, drawn(augmented), GAINS[rule], caption=caption, **words))


def by_log_popularity(dataset: str, inputs: Inputs) -> list[Block]:
    """By half power of ten of popularity (Figure 1); nothing where there are too few questions for a bin."""
    rows = inputs.answered("accuracy_by_log_popularity", dataset=dataset)
    if not rows:
        return []
    name, why = f"accuracy-by-log-popularity-{dataset}", merged(_of_first(rows))
    words = {"x": f"{MEDIAN} (log scale)", "log_x": True}
    words["caption"] = f"{label(dataset)}: accuracy by half power of ten of popularity. {why} {WILSON}{left_out(rows)}"
    return [
        by_rule(lambda rule: chart(name, rows, drawn(rows), rule, **words)),
        crossed(
            name,
            f"{label(dataset)}: accuracy in per cent by half power of ten of monthly page views. {why}",
            [*BOUNDS, "questions"],
            lambda row: [*bounds(row), row["questions"]],
            rows,
            "bin",
            labels(rows),
        ),
    ]


def least_popular(dataset: str, inputs: Inputs) -> list[Figure]:
    """Each method on the least popular questions, beside all questions (the paper's figure of its 4,000)."""
    rows = inputs.answered("accuracy_by_group", dataset=dataset, group="least popular")
    if not rows or rows[0]["questions"] < popularity_bins.LEAST:
        return []
    everything = {row["series"]: row for row in inputs.answered("accuracy", dataset=dataset)}
    least = f"{rows[0]['questions']:,} least popular"
    return [
        by_rule(
            lambda rule: figures.bars(
                f"least-popular-{dataset}",
                [label(row["series"]) for row in rows],
                {
                    least: [row[rule].times(100) for row in rows],
                    "all questions": [everything[row["series"]][rule].times(100) for row in rows],
                },
                y="accuracy, %",
                caption=f"{label(dataset)}: accuracy on the {rows[0]['questions']:,} least popular questions, and on "
                f"all {everything[rows[0]['series']]['questions']:,}. The paper shows its {accuracy.LEAST_POPULAR:,} "
                f"least popular of {accuracy.OF_PUBLISHED:,} questions; a smaller set shows the same share. Bars are "
                "Wilson's 95 % intervals.",
            )
        )
    ]


def by_relative_popularity(inputs: Inputs) -> list[Block]:
    """The main question set's accuracy by popularity relative to the relation (Figure 8)."""
    dataset, name = inputs.main_questions, "accuracy-by-relative-popularity"
    rows = inputs.answered(name.replace("-", "_"), dataset=dataset)
    if not rows:
        return []
    words = {"place": itemgetter("relative_popularity")}
    words["x"] = "log popularity against the relation's mean, in its standard deviations"
    words["caption"] = (
        f"{label(dataset)}: accuracy by popularity relative to other questions of the same relation. {WILSON}"
    )
    return [
        by_rule(lambda rule: chart(name, rows, drawn(rows), rule, **words)),
        crossed(
            name,
            f"{label(dataset)}: accuracy in per cent by relative popularity (the mean of a bin, in standard deviations "
            "of the relation).",
            ["relative popularity", "questions"],
            lambda row: [round(row["relative_popularity"], 2), row["questions"]],
            rows,
            "bin",
            labels(rows),
        ),
    ]


def merged(bins: list[dict]) -> str:
    """How bins of this size came about, for a caption; `bins` are all rows of a method."""
    return _merged(popularity_bins.least_of(sum(row["questions"] for row in bins)))


def _merged(least: int) -> str:
    return f"Bins with fewer than {least} questions are merged with their neighbours."


MERGED = _merged(popularity_bins.LEAST)  # of a relation's bins, which never have fewer


def drawn_methods(methods: list[str]) -> list[str]:
    """The methods in charts by popularity: those of one passage at most; the tables have all."""
    return [method for method in methods if not method.startswith("replug")]


def left_out(rows: list[dict]) -> str:
    """The methods that a chart by popularity leaves out, for its caption."""
    methods = [*dict.fromkeys(row["method"] for row in rows)]
    names = [label(method) for method in methods if method not in drawn_methods(methods)]
    return (
        f" Not drawn, as they read several documents: {', '.join(names)}; the report's table has them." if names else ""
    )


def drawn(rows: list[dict]) -> list[str]:
    """The series of a chart of `Inputs.answered` rows, as many as have a colour of their own; the tables have all."""
    shown = drawn_methods([*dict.fromkeys(row["method"] for row in rows)])
    return [*dict.fromkeys(row["series"] for row in rows if row["method"] in shown)][: len(PALETTE)]


def _of_first(rows: list[dict]) -> list[dict]:
    """The rows of the first series."""
    return [row for row in rows if row["series"] == rows[0]["series"]]


def of_relation(row: dict) -> list:
    """The first cells of a line of a table by relation."""
    return [named(row["relation"]), row["questions"]]


def labels(rows: Sequence[dict]) -> dict[str, str]:
    """Each method of these rows and what the report calls it."""
    return {method: label(method) for method in dict.fromkeys(row["method"] for row in rows)}


def bounds(row: dict) -> list[int]:
    """The cells under BOUNDS of a bin."""
    return [round(row[end]) for end in ("least", "below")]
