"""Stage `report`: the results as one page, with its figures as SVG, tables as CSV, findings as JSON; and latency."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from pipelines.answering import answer_files, latency
from pipelines.pages import rendering, table_texts
from pipelines.pages.figures import bars
from pipelines.pages.section import Figure, Section, Table
from pipelines.pages.values import label
from pipelines.params import params_file
from pipelines.report.entries import Drawn, Entry, in_order, measured, table_of
from pipelines.report.findings import findings
from pipelines.report.inputs import Inputs, read_inputs
from pipelines.report.sections import page_text, report_sections
from pipelines.report.studies import (
    carried_section,
    controls_section,
    copying_section,
    measures_section,
    rarity_section,
    seen_section,
)
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

OUT = Path("data/report")
STUDIES = [
    carried_section,
    controls_section,
    copying_section,
    measures_section,
    rarity_section,
    seen_section,
]
QUANTILES = {"median": "median", "p90": "90 % within"}
SECTIONS = (
    "profile", "seed", "language", "fetch", "lm", "lms", "retriever", "retrievers", "reranker", "lsr", "popularity",
    "answer", "replug", "thresholds", "report", "parts", "ways", "lm_text",
)  # fmt: skip


def write_report(data: Path, out: Path, params: SimpleNamespace, workers: int = 1) -> stage.Metrics:
    """Write index.html, figures/*.svg, tables/*.csv and findings.json below `out`; return each finding's figure.

    Times are on a page of their own in data/latency, because `out` is the same bytes wherever it is made; `workers`
    is how many stages ran side by side.
    """
    inputs = read_inputs(data, params.lms, params.parts, params)
    found = findings(inputs)
    shown = [one for entry in listed() if (one := entry.section(inputs))]
    styles = rendering.styles_of_page(shown)
    with atomic(out) as folder:
        for name in ("figures", "tables"):
            (folder / name).mkdir(parents=True)
        for block in (block for one in shown for block in one.blocks):
            for figure in block.by_rule.values() if isinstance(block, Figure) else ():
                file = folder / f"figures/{figure.name}.svg"
                file.write_text(rendering.standalone(figure, styles), encoding="utf-8")
            if isinstance(block, Table):
                (folder / f"tables/{block.name}.csv").write_text(
                    table_texts.to_csv(block), encoding="utf-8"
                )
        write_json(folder / "findings.json", [finding.as_json() for finding in found])
        intro, footer = (page_text(name, inputs) for name in ("introduction", "footer"))
        title = f"Longtail report: {params.profile}"
        html = rendering.render(title, intro, found, shown, footer, inputs.main)
        (folder / "index.html").write_text(html, encoding="utf-8")
    write_latency(inputs, params.lms, params.retrievers, workers)
    return {finding.id: finding.figure.value for finding in found if not finding.lacking}


def listed() -> list[Entry]:
    """The report's entries. A study's entry says itself where it stands."""
    return in_order(
        [
            *report_sections().values(),
            *(entry for study in STUDIES for entry in study.report_entries()),
        ]
    )


def write_latency(
    inputs: Inputs, lms: Sequence[str], retrievers: Sequence[str], workers: int
) -> None:
    """Write index.html and latency.csv into data/latency, of the answers of this run; nothing if there are none."""
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
    columns = [
        "dataset",
        "lm",
        "method",
        "questions",
        "batches",
        *QUANTILES,
        "search",
        "machine",
        "threads",
        "server",
    ]
    caption = (
        "Seconds of a question by language model and method, over batches of questions: its share of its batch's, and "
        "of the search's (for GenRead, of writing the passage), without opening models and indexes."
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
    intro = "These times were measured as the answers of this run were made."
    if workers > 1:
        intro += f" Stages ran side by side (compute.workers: {workers}); compute.workers: 1 measures them alone."
    parts = [Section("latency", "Seconds of a question", [*drawn.blocks(), table])]
    footer = "Made by Longtail from data/latency/<question set>/<language model>/<method>.json."
    for name, text in rendering.page_files("How long answers take", intro, parts, footer).items():
        with atomic(inputs.data / latency.FOLDER / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def main() -> None:
    def work(params: SimpleNamespace) -> stage.Metrics:
        compute = params_file.load_params(
            "compute"
        ).compute  # no param of this stage: no output depends on it
        return write_report(
            Path("data"), OUT, params, compute.workers if compute.device == "cpu" else 1
        )

    stage.run("report", SECTIONS, work, out=str(OUT / "index.html"))


if __name__ == "__main__":
    main()
