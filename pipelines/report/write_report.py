"""Stage `report`: the results as one self-contained page, with its figures as SVG, tables as CSV, findings as JSON."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pipelines.params import params_file
from pipelines.storage import shards
from pipelines.work import stage

if TYPE_CHECKING:
    from pipelines.report.inputs import Inputs
    from pipelines.report.page import Section

OUT = Path("data/report")
FOOTER = (
    "Made by Longtail from the tables under data/. Beside this page lie the figures as SVG files (figures/), the "
    "tables as CSV files (tables/) and the findings (findings.json). The command longtail reproduce holds the figures "
    "against the papers' published numbers, in data/reproduction/reproduction.md."
)
SECTIONS = (
    "profile",
    "seed",
    "language",
    "fetch",
    "lm",
    "lms",
    "retriever",
    "retrievers",
    "reranker",
    "lsr",
    "popularity",
    "answer",
    "replug",
    "thresholds",
    "report",
    "parts",
    "ways",
    "lm_text",
)


def write_report(data: Path, out: Path, params: SimpleNamespace, workers: int = 1) -> stage.Metrics:
    """Write index.html, figures/*.svg, tables/*.csv and findings.json below `out`; return each finding's figure.

    Times are on a page of their own in data/latency, because `out` is the same bytes wherever it is made. That page
    alone says how many stages ran side by side (`workers`).
    """
    from pipelines.report import attribution_page, colours, csv_files, latency_page, page, rendering
    from pipelines.report.findings import findings
    from pipelines.report.inputs import read_inputs

    inputs = read_inputs(data, params.lms, params.parts, params)
    found = findings(inputs, params.thresholds, params.replug.top_k)
    shown = sections(inputs)
    slots = colours.of_page(shown)
    with shards.atomic(out) as folder:
        for name in ("figures", "tables"):
            (folder / name).mkdir(parents=True)
        for block in (block for section in shown for block in section.blocks):
            if isinstance(block, page.Figure):
                for figure in block.every:
                    (folder / f"figures/{figure.name}.svg").write_text(
                        rendering.standalone(figure, slots), encoding="utf-8"
                    )
            elif isinstance(block, page.Table):
                (folder / f"tables/{block.name}.csv").write_text(csv_files.to_csv(block), encoding="utf-8")
        if any(section.id == "attribution" for section in shown):
            attribution_page.write_attribution_page(
                data, inputs.main_corpus, inputs.main, folder / attribution_page.NAME
            )
        shards.write_json(folder / "findings.json", [page.as_json(finding) for finding in found])
        html = rendering.render(f"Longtail report: {params.profile}", _intro(inputs, params), found, shown, FOOTER)
        (folder / "index.html").write_text(html, encoding="utf-8")
    latency_page.write_latency_page(inputs, params.lms, params.retrievers, workers)
    return {finding.id: finding.figure.value for finding in found if finding.verdict != "not measured"}


def sections(inputs: Inputs) -> list[Section]:
    """The sections that this run has something to show for."""
    from pipelines.report import sections_listed

    return [section for entry in sections_listed.ENTRIES if (section := entry.section(inputs))]


def _intro(inputs: Inputs, params: SimpleNamespace) -> str:
    """What this run did, in a sentence, whose figures the page shows, and which encoder each retriever is."""
    from pipelines.report.page import label
    from pipelines.report.run_section import encoders

    did = []
    if inputs.documents:
        did.append(f"searched {_and([f'{n:,} {label(name)}' for name, n in inputs.documents.items()])} documents")
    asked = {dataset: inputs.rows("accuracy", dataset=dataset) for dataset in inputs.asked}
    if asked:
        questions = sum(rows[0]["questions"] for rows in asked.values())
        methods = list(dict.fromkeys(label(row["method"]) for rows in asked.values() for row in rows))
        several = f"{len(methods)} ways ({', '.join(methods)})" if len(methods) > 1 else f"by one method ({methods[0]})"
        did.append(f"asked {questions:,} questions, each answered {several}")
    for corpus in inputs.parts.scored:
        if queries := inputs.scored(corpus).get(inputs.main, {}).get("queries"):
            did.append(f"scored {queries:,} texts of {label(corpus)}")
    rejected = sum(row["rows"] for row in inputs.rejects)
    did.append(f"rejected {rejected:,} input row{'' if rejected == 1 else 's'}")
    named = [f"{name} is {encoder}" for name, encoder in encoders(params)]
    main = f" Figures are of {inputs.main}, the main language model, unless they name another."
    return (
        "When does retrieved text help a language model, and when does it mislead the model? "
        f"{_fictional(inputs, params)}This run {_and(did)}.{main if len(inputs.sizes) > 1 else ''}"
        f"{named and f' Here, {_and(named)}.'}"
    )


def _fictional(inputs: Inputs, params: SimpleNamespace) -> str:
    """What a reader must know of a run on the sample world: that nothing in it is real."""
    if params.fetch.source != "world":
        return ""
    trained = [lm for lm in params.lms if params.lm[lm].source == "train"]
    sizes = {lm: f" of {inputs.sizes[lm]:,} parameters" if inputs.sizes.get(lm) else "" for lm in trained}
    small = [
        f"{lm} is a small language model{sizes[lm]} that this run trained on texts of that world" for lm in trained
    ]
    return (
        "This is the sample: a small fictional world, whose people, places and page views are made up. "
        f"{f'{_and(small)}. ' if small else ''}Its figures show how the page reads, not what real models do. "
    )


def _and(parts: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def main() -> None:
    def work(params: SimpleNamespace) -> stage.Metrics:
        compute = params_file.load_params("compute").compute  # no param of this stage: no output depends on it
        return write_report(Path("data"), OUT, params, compute.workers if compute.device == "cpu" else 1)

    stage.run("report", SECTIONS, work, out=str(OUT / "index.html"))


if __name__ == "__main__":
    main()
