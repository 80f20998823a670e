"""A page on how long answers took, apart from the report, which is the same bytes wherever it is made (Figure 11)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pipelines import shards
from pipelines.answering import answer_files, latency
from pipelines.intervals import interval
from pipelines.report import csv_files, figures, rendering
from pipelines.report.inputs import Inputs
from pipelines.report.page import Figure, Section, Table, label

QUANTILES = {"median": "median", "p90": "90 % within"}


def write(inputs: Inputs, lms: Sequence[str], retrievers: Sequence[str], workers: int) -> None:
    """Write index.html and latency.csv into data/latency, of the answers of this run; nothing if there are none.

    `workers` is how many stages may have run side by side.
    """
    rows = _read(inputs, lms, retrievers)
    if not rows:
        return
    table = Table(
        "latency",
        "Seconds of a question by language model and method, over batches of questions. A question's seconds are its "
        "share of its batch's, and of the search's (for GenRead, of writing the passage), without opening models and "
        "indexes. Intervals hold whatever the law of the batches' times.",
        [
            *("questions of", "language model", "answered", "questions", "batches", *QUANTILES.values()),
            *("of it search", "machine", "threads", "language model runs"),
        ],
        [
            [label(dataset), lm, label(method), row["questions"], len(row["batches"])]
            + [interval(row[name]) for name in QUANTILES]
            + [row["search"], row["machine"], row["threads"], "on a server" if row["server"] else "here"]
            for (dataset, lm, method), row in rows.items()
        ],
    )
    shared = (
        f" Stages ran side by side (compute.workers: {workers}), so these seconds are those of a shared machine; "
        "compute.workers: 1 measures them alone."
    )
    html = rendering.render(
        "How long answers take",
        "These times were measured as the answers of this run were made. They are no part of the report, which has no "
        f"times, so that the same inputs give the same report.{shared if workers > 1 else ''}",
        [],
        [Section("latency", "Seconds of a question", [*_drawn(rows), table])],
        "Made by Longtail from data/latency/<question set>/<language model>/<method>.json.",
    )
    folder = inputs.data / latency.FOLDER
    for name, text in (("index.html", html), ("latency.csv", csv_files.to_csv(table))):
        with shards.atomic(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _read(inputs: Inputs, lms: Sequence[str], retrievers: Sequence[str]) -> dict[tuple[str, str, str], dict]:
    """(question set, language model, method) -> what its file says. It is called as the file of the answers is."""
    files = {
        (dataset, lm, method): inputs.data / latency.FOLDER / dataset / lm / f"{answers.stem}.json"
        for dataset in inputs.asked
        for lm, by_method in answer_files.sets(dataset, lms, retrievers, inputs.data).items()
        for method, answers in by_method.items()
    }
    return {key: json.loads(file.read_text(encoding="utf-8")) for key, file in files.items() if file.is_file()}


def _drawn(rows: dict[tuple[str, str, str], dict]) -> list[Figure]:
    """The two quantiles by method, a figure for each question set and language model."""
    return [
        figures.bars(
            f"latency-{dataset}-{lm}",
            [label(method) for of, by, method in rows if (of, by) == (dataset, lm)],
            {
                words: [interval(row[name]) for (of, by, _), row in rows.items() if (of, by) == (dataset, lm)]
                for name, words in QUANTILES.items()
            },
            y="seconds of a question",
            caption=f"{label(dataset)}, {lm}: seconds of a question by method.",
        )
        for dataset, lm in dict.fromkeys((dataset, lm) for dataset, lm, _ in rows)
    ]
