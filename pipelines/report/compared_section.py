"""The report's section on language models of several sizes, imported answers included (PopQA, Figures 4, 5 and 7)."""

from __future__ import annotations

import math

from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Percent, Section, Table, label, percent


def language_models(inputs: Inputs) -> Section:
    """Every language model by method; closed-book accuracy by popularity and model; correlation by model."""
    title = "Language models compared"
    blocks: list = []
    for dataset in inputs.parts.answered:
        rows = [row for row in inputs.tables["accuracy"] if row["dataset"] == dataset]
        lms = [lm for lm in inputs.sizes if any(row["lm"] == lm for row in rows)]
        if len(lms) > 1:
            blocks += [*_by_method(dataset, lms, rows, inputs), *_by_popularity(dataset, lms, inputs)]
    missing = "" if blocks else "Only one language model answered questions in this run."
    return Section("models", title, blocks, missing)


def _by_method(dataset: str, lms: list[str], rows: list[dict], inputs: Inputs) -> list[Figure | Table]:
    of = {(row["lm"], row["method"]): row for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    drawn = {m: [of[lm, m]["substring"].times(100) for lm in lms] for m in methods if all((lm, m) in of for lm in lms)}
    said = "; ".join(
        f"{lm} " + ", ".join(f"{label(m)} {own[i].value:.0f} %" for m, own in drawn.items()) for i, lm in enumerate(lms)
    )
    table = Table(
        f"models-{dataset}",
        f"{label(dataset)}: accuracy in per cent by language model, smaller ones first where sizes are known, and its "
        "correlation (substring) with log popularity. Each on the questions that it was asked.",
        ["language model", "parameters", "answered", "questions", "substring", "word", "correlation"],
        [
            [
                row["lm"],
                inputs.sizes[row["lm"]],
                label(row["method"]),
                row["questions"],
                Percent(row["substring"]),
                Percent(row["word"]),
                row["correlation"],
            ]
            for row in sorted(rows, key=lambda row: by_size(inputs, row["lm"]))
        ],
    )
    if not drawn:
        return [table]
    figure = figures.bars(
        f"models-{dataset}",
        lms,
        drawn,
        y="accuracy, %",
        caption=f"{label(dataset)}: accuracy by language model, with the methods that all of them have.",
        alt=f"Bar chart of {label(dataset)} accuracy by language model: {said}.",
    )
    return [figure, table]


def by_size(inputs: Inputs, lm: str) -> tuple:
    """Sort key: language models by their parameters, those of unknown size last, in the order of the run."""
    size = inputs.sizes[lm]
    return (math.inf if size is None else size, list(inputs.sizes).index(lm))


def _by_popularity(dataset: str, lms: list[str], inputs: Inputs) -> list[Figure | Table]:
    found = {lm: inputs.rows("accuracy_by_popularity", lm, dataset=dataset, method="closed_book") for lm in lms}
    found = {lm: rows for lm, rows in found.items() if rows}
    if len(found) < 2:
        return []
    said = "; ".join(
        f"{lm} from {percent(rows[0]['substring'].value)} to {percent(rows[-1]['substring'].value)}"
        for lm, rows in found.items()
    )
    return [
        figures.lines(
            f"models-by-popularity-{dataset}",
            {
                lm: ([max(row["popularity"], 1) for row in rows], [row["substring"].times(100) for row in rows])
                for lm, rows in found.items()
            },
            x="median monthly page views of the subject, by decile",
            y="closed-book accuracy, %",
            log_x=True,
            caption=f"{label(dataset)}: closed-book accuracy by popularity and language model; bands are Wilson's 95 % "
            "intervals.",
            alt=f"Line chart of closed-book accuracy by decile of popularity, least to most popular: {said}.",
        ),
        Table(
            f"models-by-popularity-{dataset}",
            f"{label(dataset)}: closed-book accuracy in per cent by decile of popularity and language model, by both "
            "rules.",
            ["language model", "decile", "questions", "median page views", "substring", "word"],
            [
                [
                    lm,
                    row["decile"],
                    row["questions"],
                    row["popularity"],
                    Percent(row["substring"]),
                    Percent(row["word"]),
                ]
                for lm, rows in found.items()
                for row in rows
            ],
        ),
    ]
