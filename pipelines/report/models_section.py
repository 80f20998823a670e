"""The report's section on language models of several sizes, imported answers included (PopQA, Figures 4, 5 and 7)."""

from __future__ import annotations

import math

from pipelines.report import figures
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Percent, Section, Table, label


def language_models(inputs: Inputs) -> Section:
    """Every language model by method; closed-book accuracy by popularity and model; correlation by model."""
    blocks: list = []
    for dataset in inputs.parts.answered:
        rows = [row for row in inputs.tables["accuracy"] if row["dataset"] == dataset]
        lms = [lm for lm in inputs.sizes if any(row["lm"] == lm for row in rows)]
        if len(lms) > 1:
            blocks += [*_by_method(dataset, lms, rows, inputs), *_by_popularity(dataset, lms, inputs)]
    return Section("models", "Language models compared", blocks)


def _by_method(dataset: str, lms: list[str], rows: list[dict], inputs: Inputs) -> list[Figure | Table]:
    cells = {(row["lm"], row["method"]): row for row in rows}
    common = [m for m in dict.fromkeys(row["method"] for row in rows) if all((lm, m) in cells for lm in lms)]
    accuracies = {method: [cells[lm, method]["substring"].times(100) for lm in lms] for method in common}
    table = Table(
        f"models-{dataset}",
        f"{label(dataset)}: accuracy in per cent by language model, and its correlation (substring) with log "
        "popularity. Smaller models come first; those of unknown size come last. Each was asked its own number of "
        "questions.",
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
            for row in sorted(rows, key=lambda row: _by_size(inputs, row["lm"]))
        ],
    )
    if not accuracies:
        return [table]
    figure = figures.bars(
        f"models-{dataset}",
        lms,
        accuracies,
        y="accuracy, %",
        caption=f"{label(dataset)}: accuracy by language model, by the methods that all of them have.",
    )
    return [figure, table]


def _by_size(inputs: Inputs, lm: str) -> tuple:
    """A sort key: by parameters, models of unknown size last in the order of the run."""
    size = inputs.sizes[lm]
    return (math.inf if size is None else size, list(inputs.sizes).index(lm))


def _by_popularity(dataset: str, lms: list[str], inputs: Inputs) -> list[Figure | Table]:
    by_lm = {lm: inputs.rows("accuracy_by_popularity", lm, dataset=dataset, method="closed_book") for lm in lms}
    by_lm = {lm: rows for lm, rows in by_lm.items() if rows}
    if len(by_lm) < 2:
        return []
    return [
        figures.lines(
            f"models-by-popularity-{dataset}",
            {
                lm: ([max(row["popularity"], 1) for row in rows], [row["substring"].times(100) for row in rows])
                for lm, rows in by_lm.items()
            },
            x="median monthly page views of the subject, by decile",
            y="closed-book accuracy, %",
            log_x=True,
            caption=f"{label(dataset)}: closed-book accuracy by popularity and language model. Bands are Wilson's 95 % "
            "intervals.",
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
                for lm, rows in by_lm.items()
                for row in rows
            ],
        ),
    ]
