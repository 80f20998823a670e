"""The report's section on language models of several sizes, imported answers included (PopQA, Figures 4, 5 and 7)."""

from __future__ import annotations

import math
from dataclasses import replace

from pipelines.evaluation.popularity_bins import LEAST
from pipelines.intervals import NOTHING
from pipelines.report import figures
from pipelines.report.accuracy_section import OF_RULES
from pipelines.report.by_popularity import (
    BOUNDS,
    MEDIAN,
    MERGED,
    WILSON,
    bounds,
    crossed,
    drawn_methods,
    merged,
    of_relation,
    views,
)
from pipelines.report.effect_section import COMPARED, compared
from pipelines.report.effect_section import OF_RULES as OF_COMPARED
from pipelines.report.inputs import Inputs
from pipelines.report.page import RULES, Block, Figure, Percent, Section, Table, by_rule, label, named, show

PANELS = 8  # language models in small charts; the tables have all


def language_models(inputs: Inputs) -> Section:
    """Every language model by method, each pair of models, and popularity and relations model beside model."""
    blocks: list = []
    for dataset in inputs.parts.answered:
        rows = [row for row in inputs.tables["accuracy"] if row["dataset"] == dataset]
        lms = [lm for lm in inputs.sizes if any(row["lm"] == lm for row in rows)]
        if len(lms) > 1:
            blocks += [
                *_in_common(dataset, lms, inputs),
                _everything(dataset, rows, inputs),
                *_each(dataset, lms, inputs),
            ]
    says = {rule: _says(rule, inputs) for rule in RULES} if blocks else ""
    return Section("models", "Language models compared", blocks, says=says)


def _says(rule: str, inputs: Inputs) -> str:
    """How often each model is right closed-book on the questions that all of them answered."""
    rows = [row for row in inputs.tables["common_accuracy"] if row["method"] == "closed_book"]
    rows = [row for row in rows if row["dataset"] == rows[0]["dataset"] and math.isfinite(row[rule].value)]
    if len(rows) < 2:
        return f"No two language models have closed-book answers to the same questions that are judged by {rule}."
    rows.sort(key=lambda row: -row[rule].value)
    shares = [f"{row['lm']} is right on {show(Percent(row[rule]))} %" for row in (rows[0], rows[-1])]
    between = f" Between them are {', '.join(row['lm'] for row in rows[1:-1])}." if rows[2:] else ""
    n, name = rows[0]["questions"], label(rows[0]["dataset"])
    return f"Closed-book, on the {n:,} questions of {name} that all answered, {' and '.join(shares)}.{between}"


def _everything(dataset: str, rows: list[dict], inputs: Inputs) -> Table:
    judged = {row["lm"]: row["judged"] for row in inputs.tables["models"]}
    return Table(
        f"models-{dataset}",
        f"{label(dataset)}: accuracy in per cent by language model, and its correlation (substring) with log "
        "popularity. Smaller models come first; those of unknown size come last. Each was asked its own number of "
        "questions, of the test split or of all splits (thresholds.imported).",
        ["language model", "parameters", "answered", "judged on", "questions", "substring", "word", "correlation"],
        [
            [
                *(row["lm"], inputs.sizes[row["lm"]], label(row["method"]), judged[row["lm"]], row["questions"]),
                *(Percent(row["substring"]), Percent(row["word"]), row["correlation"]),
            ]
            for row in sorted(rows, key=lambda row: _by_size(inputs, row["lm"]))
        ],
        OF_RULES,
    )


def _each(dataset: str, lms: list[str], inputs: Inputs) -> list[Block]:
    """Each model's accuracy by all its methods, by popularity (Figures 1 and 7) and by relation, the main one first."""
    by_bin = {lm: rows for lm in lms if (rows := inputs.rows("accuracy_by_log_popularity", lm, dataset=dataset))}
    own = "Each model has the questions that it answered itself; later figures have those that all of them answered."

    def panels(rule: str) -> list[tuple]:
        made = []
        for lm in list(by_bin)[:PANELS]:
            methods = dict.fromkeys(row["method"] for row in by_bin[lm])
            of = {m: [row for row in by_bin[lm] if row["method"] == m] for m in drawn_methods([*methods])}
            values = {label(m): [100 * row[rule].value for row in rows] for m, rows in of.items()}
            made.append((lm, [*map(views, next(iter(of.values())))], values))
        return made

    rows = [row for lm in lms for row in inputs.rows("accuracy_by_relation", lm, dataset=dataset)]
    cells = {(row["lm"], row["method"], row["relation"]): row for row in rows}
    relations = list(dict.fromkeys(row["relation"] for row in rows))

    def draw(rule: str) -> Figure:
        return figures.curves(
            f"each-by-popularity-{dataset}",
            panels(rule),
            x=MEDIAN,
            caption=f"{label(dataset)}: accuracy in per cent by half power of ten of popularity, a panel for each "
            f"language model{f' (the first {PANELS})' * (len(by_bin) > PANELS)}. {own} The table below has the "
            "intervals.",
            alt=f"Line charts of accuracy by popularity for {', '.join([*by_bin][:PANELS])}. The numbers are in the "
            "table below.",
            log_x=True,
            same=True,
        )

    return [
        *([by_rule(draw)] if by_bin else []),
        Table(
            f"each-by-popularity-{dataset}",
            f"{label(dataset)}: accuracy in per cent by language model, method and half power of ten of monthly page "
            f"views. {own}",
            ["language model", "answered", *BOUNDS, "questions", *RULES],
            [
                [lm, label(row["method"]), *bounds(row), row["questions"], *(Percent(row[rule]) for rule in RULES)]
                for lm, rows in by_bin.items()
                for row in rows
            ],
            OF_RULES,
        ),
        Table(
            f"each-by-relation-{dataset}",
            f"{label(dataset)}: accuracy in per cent by relation, language model and method. {own}",
            ["relation", "language model", "answered", "questions", *RULES],
            [
                [named(relation), lm, label(method), row["questions"], *(Percent(row[rule]) for rule in RULES)]
                for relation in relations
                for lm, method in dict.fromkeys((row["lm"], row["method"]) for row in rows)
                if (row := cells.get((lm, method, relation)))
            ],
            OF_RULES,
        ),
    ]


def _in_common(dataset: str, lms: list[str], inputs: Inputs) -> list[str | Figure | Table]:
    """The models on the questions that all of them answered, and each two on those that both answered."""
    tables = {
        name: [row for row in inputs.tables[f"common_{name}"] if row["dataset"] == dataset]
        for name in (
            "accuracy",
            "accuracy_by_group",
            "accuracy_by_log_popularity",
            "accuracy_by_relation",
            "accuracy_by_relation_and_popularity",
        )
    }
    pairs = [row for row in inputs.tables["comparisons"] if row["dataset"] == dataset]
    pairs = [row for row in pairs if row["against_lm"] != row["lm"]]
    n = max((row["questions"] for row in tables["accuracy"]), default=0)
    of_common = f"the {n:,} questions of {label(dataset)} that all {len(lms)} language models answered"
    if not n:
        return [
            f"No question of {label(dataset)} was answered by all {len(lms)} language models.",
            _pairs(dataset, pairs),
        ]
    return [
        *_by_method(dataset, lms, tables["accuracy"], of_common),
        *_least_popular(dataset, lms, tables["accuracy_by_group"], of_common),
        _pairs(dataset, pairs),
        *_by_popularity(
            dataset, tables["accuracy_by_log_popularity"], tables["accuracy_by_relation_and_popularity"], of_common
        ),
        *_by_relation(dataset, lms, tables["accuracy_by_relation"], of_common),
    ]


def _pairs(dataset: str, rows: list[dict]) -> Table:
    return Table(
        f"models-compared-{dataset}",
        f"{label(dataset)}: one language model less another by the same method, in points, on the questions that both "
        "answered. Columns are those of the methods' comparisons above.",
        ["language model", "less", "answered", *COMPARED],
        [[row["lm"], row["against_lm"], label(row["method"]), *compared(row)] for row in rows if row["questions"]],
        OF_COMPARED,
    )


def _by_method(dataset: str, lms: list[str], rows: list[dict], of_common: str) -> list[Figure]:
    cells = {(row["lm"], row["method"]): row for row in rows}
    common = [m for m in dict.fromkeys(row["method"] for row in rows) if all((lm, m) in cells for lm in lms)]
    if not common:
        return []
    return [
        by_rule(
            lambda rule: figures.bars(
                f"models-{dataset}",
                lms,
                {method: [cells[lm, method][rule].times(100) for lm in lms] for method in common},
                y="accuracy, %",
                caption=f"Accuracy by language model on {of_common}, by the methods that all of them have.",
            )
        )
    ]


def _least_popular(dataset: str, lms: list[str], rows: list[dict], of_common: str) -> list[Figure]:
    rows = [row for row in rows if row["group"] == "least popular"]
    if not rows or rows[0]["questions"] < LEAST:
        return []
    cells = {(row["lm"], row["method"]): {rule: row[rule].times(100) for rule in RULES} for row in rows}
    nothing, methods = dict.fromkeys(RULES, NOTHING), dict.fromkeys(row["method"] for row in rows)
    return [
        by_rule(
            lambda rule: figures.bars(
                f"models-least-popular-{dataset}",
                lms,
                {method: [cells.get((lm, method), nothing)[rule] for lm in lms] for method in methods},
                y="accuracy, %",
                caption=f"Accuracy by language model on the {rows[0]['questions']:,} least popular of {of_common}.",
            )
        )
    ]


def _by_size(inputs: Inputs, lm: str) -> tuple:
    """A sort key: by parameters, models of unknown size last in the order of the run."""
    size = inputs.sizes[lm]
    return (math.inf if size is None else size, list(inputs.sizes).index(lm))


def _by_popularity(dataset: str, rows: list[dict], by_relation: list[dict], of_common: str) -> list[Figure | Table]:
    """What each model knows by popularity, and of each relation (Figures 5 and 6); nothing unless there are two."""
    by_lm = _closed_book(rows)
    if len(by_lm) < 2:
        return []
    choices = {}
    for relation in dict.fromkeys(row["relation"] for row in by_relation):
        of_relation = _closed_book([row for row in by_relation if row["relation"] == relation])
        if max(map(len, of_relation.values()), default=0) > 1:
            of = f"{named(relation)}, {of_common}"
            choices[named(relation)] = _drawn(f"{dataset}-{relation}", of_relation, of, MERGED)
    bins = merged(next(iter(by_lm.values())))
    return [
        replace(_drawn(dataset, by_lm, of_common, bins), by="relation", choices=choices),
        Table(
            f"models-by-popularity-{dataset}",
            "Closed-book accuracy in per cent by half power of ten of monthly page views and language model, on "
            f"{of_common}. {bins}",
            ["language model", *BOUNDS, "questions", *RULES],
            [
                [lm, *bounds(row), row["questions"], *(Percent(row[rule]) for rule in RULES)]
                for lm, rows in by_lm.items()
                for row in rows
            ],
            OF_RULES,
        ),
    ]


def _closed_book(rows: list[dict]) -> dict[str, list[dict]]:
    """Language model -> its rows of closed-book answers."""
    rows = [row for row in rows if row["method"] == "closed_book"]
    return {lm: [row for row in rows if row["lm"] == lm] for lm in dict.fromkeys(row["lm"] for row in rows)}


def _drawn(name: str, by_lm: dict[str, list[dict]], of_common: str, bins: str) -> Figure:
    return by_rule(
        lambda rule: figures.lines(
            f"models-by-popularity-{name}",
            {lm: ([*map(views, rows)], [row[rule].times(100) for row in rows]) for lm, rows in by_lm.items()},
            x=f"{MEDIAN} (log scale)",
            y="closed-book accuracy, %",
            log_x=True,
            caption=f"Closed-book accuracy by half power of ten of popularity and language model, on {of_common}. "
            f"{bins} {WILSON}",
        )
    )


def _by_relation(dataset: str, lms: list[str], rows: list[dict], of_common: str) -> list[Figure | Table]:
    """Each model's correlation of being right with log popularity by relation (Figure 4)."""
    cells = {(row["lm"], row["relation"]): row for row in rows if row["method"] == "closed_book"}
    shown = [lm for lm in lms if any(of == lm for of, _ in cells)]
    enough = (one for one in cells.items() if one[1]["questions"] >= LEAST)
    relations = dict.fromkeys(relation for (_, relation), row in enough if math.isfinite(row["correlation"].value))
    if len(shown) < 2 or not relations:
        return []
    return [
        figures.bars(
            f"models-correlation-{dataset}",
            [named(relation) for relation in relations],
            {lm: [cells[lm, relation]["correlation"] for relation in relations] for lm in shown},
            y="correlation with log popularity",
            caption=f"How much closed-book answers depend on popularity: correlation of being right (substring) with "
            f"log popularity by relation and language model, on {of_common}; relations with {LEAST} questions or more.",
        ),
        crossed(
            f"models-correlation-{dataset}",
            f"Correlation of being right (substring, closed-book) with log popularity by relation and language model, "
            f"on {of_common}; relations with {LEAST} questions or more.",
            ["relation", "questions"],
            of_relation,
            [row for (_, relation), row in cells.items() if relation in relations],
            "relation",
            {lm: lm for lm in shown},
            across="lm",
            values=["correlation"],
        ),
    ]
