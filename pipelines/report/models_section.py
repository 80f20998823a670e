"""The section that compares language models on the same questions (PopQA, section 4)."""

import math
from collections.abc import Iterator, Sequence

from pipelines.pages.section import Axis, Block, Figure, Row, Section, grouped
from pipelines.pages.table_rows import table_of
from pipelines.pages.values import in_percent, label
from pipelines.report.curves import ACCURACY, BANDS, VIEWS, with_views
from pipelines.report.effect_section import COMPARED_COLUMNS, COMPARED_HEADS
from pipelines.report.run_tables import Tables

MODELS_BY_SIZE = """SELECT accuracy.*, models.parameters, models.judged
    FROM accuracy JOIN models USING (lm)
    WHERE list_contains($answered_sets, dataset) AND dataset IN
        (SELECT dataset FROM accuracy GROUP BY dataset HAVING count(DISTINCT lm) > 1)
    ORDER BY parameters NULLS LAST, models.file_row_number, accuracy.file_row_number"""


def section(tables: Tables) -> Section:
    by_size = table_of(
        "models",
        "Accuracy in per cent by language model, smaller ones first, and its correlation "
        "(substring) with log popularity. Numbers of questions and their splits can differ.",
        tables.ask(MODELS_BY_SIZE),
        [
            "lm",
            "parameters",
            "dataset",
            "method",
            "judged",
            "questions",
            "substring",
            "word",
            "correlation",
        ],
        {"judged": "judged on"},
    )

    compared = table_of(
        "models-compared",
        "One language model less another by the same method, in points, on the questions that both "
        "answered. Columns are those of the methods' comparisons.",
        tables.rows("comparisons", "against_lm <> lm AND questions > 0"),
        ["lm", "against_lm", "dataset", "method", *COMPARED_COLUMNS],
        COMPARED_HEADS,
    )

    by_popularity = Figure(
        name="models-by-popularity",
        kind="lines",
        rows=with_views(tables.rows("common_accuracy_by_log_popularity", "method = 'closed_book'")),
        series="lm",
        x="views",
        y="substring",
        x_axis=VIEWS,
        y_axis=Axis("accuracy without retrieval, %"),
        caption=(
            "accuracy without retrieval (substring) by popularity, on the questions that all "
            f"language models answered. {BANDS}"
        ),
        by="dataset",
    )

    by_relation = table_of(
        "models-by-relation",
        "Accuracy in per cent by relation, language model and method, on the questions that all "
        "language models answered, and its correlation (substring) with log popularity.",
        tables.rows("common_accuracy_by_relation"),
        ["relation", "dataset", "lm", "method", "questions", "substring", "word", "correlation"],
    )

    blocks: list[Block] = [
        *_by_method(tables),
        by_size,
        compared,
        by_popularity,
        by_relation,
    ]

    return Section("models", "Language models compared", blocks, _leads(tables))


def _leads(tables: Tables) -> str:
    rows = tables.rows("common_accuracy", "method = 'closed_book'")
    of_first_set = []
    for row in rows:
        if row["dataset"] == rows[0]["dataset"] and math.isfinite(row["substring"].value):
            of_first_set.append(row)
    if len(of_first_set) < 2:
        return "No two language models answered the same questions without retrieval."

    best, *_, worst = sorted(of_first_set, key=lambda row: -row["substring"].value)
    most_often = f"{best['lm']} is right most often ({in_percent(best['substring'])} %)"
    least_often = f"{worst['lm']} least often ({in_percent(worst['substring'])} %)"
    begins = f"Without retrieval, on the same questions of {label(best['dataset'])}"
    return f"{begins}, {most_often}, and {least_often}."


def _by_method(tables: Tables) -> Iterator[Figure]:
    rows = tables.rows("common_accuracy")
    figure = Figure(
        name="models",
        kind="bars",
        rows=rows,
        series="method",
        x="lm",
        y="substring",
        y_axis=ACCURACY,
        caption="",
    )

    for dataset, of_set in grouped(rows, "dataset").items():
        caption = (
            "accuracy (substring) by language model and method, on the questions that all "
            f"language models answered.{_missing_bars(of_set)}"
        )

        yield figure.one_of(dataset, of_set, caption)


def _missing_bars(rows: Sequence[Row]) -> str:
    lms = {row["lm"] for row in rows}
    methods = {row["method"] for row in rows}
    if len(rows) == len(lms) * len(methods):
        return ""
    return " A bar is missing where a model has no such answers."
