"""Stage `report`: the results as one self-contained page, with its figures as SVG, tables as CSV, findings as JSON."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pipelines import all_studies
from pipelines.params import params_file
from pipelines.storage import shards
from pipelines.work import stage

if TYPE_CHECKING:
    from pipelines.report.entries import Entry

OUT = Path("data/report")
SECTIONS = (
    "profile", "seed", "language", "fetch", "lm", "lms", "retriever", "retrievers", "reranker", "lsr", "popularity",
    "answer", "replug", "thresholds", "report", "parts", "ways", "lm_text",
)  # fmt: skip


def write_report(data: Path, out: Path, params: SimpleNamespace, workers: int = 1) -> stage.Metrics:
    """Write index.html, figures/*.svg, tables/*.csv and findings.json below `out`; return each finding's figure.

    Times are on a page of their own in data/latency, because `out` is the same bytes wherever it is made; `workers`
    is how many stages ran side by side.
    """
    from pipelines.report import latency_page, page, rendering
    from pipelines.report.findings import findings
    from pipelines.report.inputs import read_inputs
    from pipelines.report.real_claims import read_real
    from pipelines.report.sections import page_text

    inputs = read_inputs(data, params.lms, params.parts, params)
    found = findings(inputs, params.thresholds, params.replug.top_k)
    shown = [section for entry in listed() if (section := entry.section(inputs))]
    styles = rendering.styles_of_page(shown)
    with shards.atomic(out) as folder:
        for name in ("figures", "tables"):
            (folder / name).mkdir(parents=True)
        for block in (block for section in shown for block in section.blocks):
            for figure in block.by_rule.values() if isinstance(block, page.Figure) else ():
                file = folder / f"figures/{figure.name}.svg"
                file.write_text(rendering.standalone(figure, styles), encoding="utf-8")
            if isinstance(block, page.Table):
                (folder / f"tables/{block.name}.csv").write_text(page.to_csv(block), encoding="utf-8")
        shards.write_json(folder / "findings.json", [finding.as_json() for finding in found])
        intro, footer = (page_text(name, inputs) for name in ("introduction", "footer"))
        title, real = f"Longtail report: {params.profile}", read_real(params.profile)
        html = rendering.render(title, intro, found, shown, footer, real, inputs.main)
        (folder / "index.html").write_text(html, encoding="utf-8")
    latency_page.write_latency_page(inputs, params.lms, params.retrievers, workers)
    return {finding.id: finding.figure.value for finding in found if not finding.lacking}


def listed() -> list[Entry]:
    """The report's entries. A study's entry says itself where it stands."""
    from pipelines.report.entries import in_order
    from pipelines.report.sections import report_sections

    studies = all_studies.studies_offering("report_entries")
    return in_order([*report_sections().values(), *(entry for study in studies for entry in study.report_entries())])


def main() -> None:
    def work(params: SimpleNamespace) -> stage.Metrics:
        compute = params_file.load_params("compute").compute  # no param of this stage: no output depends on it
        return write_report(Path("data"), OUT, params, compute.workers if compute.device == "cpu" else 1)

    stage.run("report", SECTIONS, work, out=str(OUT / "index.html"))


if __name__ == "__main__":
    main()
