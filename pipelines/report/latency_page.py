"""A page on how long answers took, apart from the report, which is the same bytes wherever it is made (Figure 11)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pipelines.answering import answer_files, latency
from pipelines.report import rendering
from pipelines.report.entries import Drawn, measured, table_of
from pipelines.report.figures import bars
from pipelines.report.inputs import Inputs
from pipelines.report.page import Section, label
from pipelines.storage import shards

QUANTILES = {"median": "median", "p90": "90 % within"}


def write_latency_page(inputs: Inputs, lms: Sequence[str], retrievers: Sequence[str], workers: int) -> None:
    """Write index.html and latency.csv into data/latency, of the answers of this run; nothing if there are none.

    `workers` is how many stages may have run side by side.
    """
    rows = [
        {"dataset": dataset, "lm": lm, "method": method}
        | measured(found)
        | {"batches": len(found["batches"]), "server": "on a server" if found["server"] else "here"}
        for dataset in inputs.asked
        for lm, by_method in answer_files.sets(dataset, lms, retrievers, inputs.data).items()
        for method, answers in by_method.items()  # a file of seconds is called as that of the answers is
        if (file := inputs.data / latency.FOLDER / dataset / lm / f"{answers.stem}.json").is_file()
        for found in [json.loads(file.read_text(encoding="utf-8"))]
    ]
    if not rows:
        return
    columns = ["dataset", "lm", "method", "questions", "batches", *QUANTILES, "search", "machine", "threads", "server"]
    caption = (
        "Seconds of a question by language model and method, over batches of questions. A question's seconds are its "
        "share of its batch's, and of the search's (for GenRead, of writing the passage), without opening models and "
        "indexes. Intervals hold whatever the law of the batches' times."
    )
    heads = QUANTILES | {"search": "of it search", "server": "language model runs"}
    table = table_of("latency", caption, rows, columns, heads)
    of_each = [
        row | {"of": f"{label(row['dataset'])}, {row['lm']}", "series": words, "seconds": row[name]}
        for row in rows
        for name, words in QUANTILES.items()
    ]
    axes, caption = {"y": "seconds of a question"}, "seconds of a question by method."
    drawn = Drawn(bars, "latency", of_each, "method", "seconds", caption, axes, each="of")
    shared = (
        f" Stages ran side by side (compute.workers: {workers}), so these seconds are those of a shared machine; "
        "compute.workers: 1 measures them alone."
    )
    intro = (
        "These times were measured as the answers of this run were made. They are no part of the report, which has no "
        f"times, so that the same inputs give the same report.{shared if workers > 1 else ''}"
    )
    parts = [Section("latency", "Seconds of a question", [*drawn.blocks(), table])]
    footer = "Made by Longtail from data/latency/<question set>/<language model>/<method>.json."
    for name, text in rendering.page_files("How long answers take", intro, parts, footer).items():
        with shards.atomic(inputs.data / latency.FOLDER / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
