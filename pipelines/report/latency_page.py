"""The page of how long answers take, in data/latency: times differ between runs, so the report has
none.
"""

import json
from collections.abc import Iterator, Sequence

from pipelines.answering import answer_files, latency
from pipelines.pages import rendering
from pipelines.pages.section import Axis, Block, Figure, Row, Section, Table
from pipelines.pages.table_rows import figures_by, spread, table_of
from pipelines.pages.values import alone, label
from pipelines.report.run_tables import Tables, read_figures
from pipelines.storage.atomic import atomic

QUANTILES = {"median": "median", "p90": "90 % within"}
MACHINE = ("machine", "threads", "server")  # columns of where the times were measured
FOOTER = "Made by Longtail from data/latency/<question set>/<language model>/<method>.json."


def write_latency(tables: Tables, workers: int) -> None:
    """Write index.html and latency.csv into data/latency, of the answers of this run.

    `workers` is how many stages ran side by side. Nothing is written if there are no answers.
    """
    rows = list(_times(tables))
    if not rows:
        return
    intro = "These times were measured as the answers of this run were made."
    machines = {tuple(row[name] for name in MACHINE) for row in rows}
    is_one_machine = len(machines) == 1
    if is_one_machine:
        machine, threads, where = machines.pop()
        intro += f" Machine: {machine}, {threads} threads. The language model runs {where}."
    if workers > 1:
        intro += (
            f" Stages ran side by side (compute.workers: {workers}); compute.workers: 1 measures "
            "them alone."
        )

    csv_only = MACHINE if is_one_machine else ()
    blocks: list[Block] = [*_figures(rows), _table(rows, csv_only)]
    sections = [Section("latency", "Seconds of a question", blocks, _leads(rows))]
    files = rendering.page_files("How long answers take", intro, sections, FOOTER)
    for name, text in files.items():
        with atomic(tables.data / latency.FOLDER / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _times(tables: Tables) -> Iterator[Row]:
    """Seconds of a question by question set, language model and method."""
    settings = tables.settings
    for dataset in tables.answered_sets:
        by_lm = answer_files.sets(dataset, settings.lms, settings.retrievers, tables.data)
        for lm, by_method in by_lm.items():
            folder = tables.data / latency.FOLDER / dataset / lm
            for method, answers in by_method.items():
                file = folder / f"{answers.stem}.json"  # has the name of the file of answers
                if file.is_file():
                    times = json.loads(file.read_text(encoding="utf-8"))
                    yield {
                        "dataset": dataset,
                        "lm": lm,
                        "method": method,
                        **read_figures(times),
                        "batches": len(times["batches"]),
                        "server": "on a server" if times["server"] else "here",
                    }


def _figures(rows: list[Row]) -> list[Figure]:
    named = [{**row, "of": f"{label(row['dataset'])}, {row['lm']}"} for row in rows]
    figure = Figure(
        name="latency",
        kind="bars",
        rows=spread(named, QUANTILES, "seconds"),
        x="method",
        y="seconds",
        y_axis=Axis("seconds of a question"),
        caption="seconds of a question by method: half take the median or less.",
    )
    return figures_by(figure, "of")


def _table(rows: list[Row], csv_only: Sequence[str]) -> Table:
    return table_of(
        "latency",
        "Seconds of a question: its share of its batch and of the search (for GenRead, of writing "
        "the passage), without opening models and indexes.",
        rows,
        [
            "dataset",
            "lm",
            "method",
            "questions",
            "batches",
            *QUANTILES,
            "search",
            *MACHINE,
        ],
        {**QUANTILES, "search": "of it search", "server": "language model runs"},
        csv_only,
    )


def _leads(rows: list[Row]) -> str:
    """The fastest and the slowest method of the first question set and language model."""
    key = (rows[0]["dataset"], rows[0]["lm"])
    of_first = [row for row in rows if (row["dataset"], row["lm"]) == key]
    fastest = min(of_first, key=lambda row: row["median"].value)
    slowest = max(of_first, key=lambda row: row["median"].value)
    begins = f"For half of the questions of {label(key[0])}, {key[1]} takes"
    shortest = f"{alone(fastest['median'])} seconds or less ({label(fastest['method'])})"
    if len(of_first) == 1:
        return f"{begins} {shortest}."
    return f"{begins} {shortest}, or {alone(slowest['median'])} ({label(slowest['method'])})."
