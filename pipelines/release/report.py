"""Stage report: the results as one self-contained page, its figures as SVG, its tables as CSV, its findings as JSON."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pipelines import shards, stage

if TYPE_CHECKING:
    from pipelines.release.inputs import Inputs

OUT = Path("data/report")
FOOTER = (
    "Made by Longtail from the tables under data/. The figures lie beside this page as SVG files, the tables under "
    "tables/ as CSV, the findings in findings.json."
)
SECTIONS = ("profile", "seed", "fetch", "lms", "popularity", "answer", "replug", "thresholds", "report")


def write_report(data: Path, out: Path, params: SimpleNamespace) -> stage.Metrics:
    """Write index.html, figures/*.svg, tables/*.csv and findings.json below `out`; return each finding's figure."""
    from pipelines.release import (
        adaptive_section,
        attribution_page,
        findings,
        inputs,
        lm_section,
        model_sections,
        page,
        popularity_section,
        retrieval_section,
        sections,
    )

    read = inputs.read(data, params.lms, params.seed, params.report.bootstrap)
    found = findings.findings(read, params.thresholds.search, params.replug.top_k)
    shown = [
        sections.what_was_run(read, _settings(params)),
        popularity_section.popularity(read),
        sections.accuracy(read),
        *([sections.halves(read)] if params.fetch.source == "world" and "popqa" in read.answers else []),
        sections.retrieval_effect(read),
        retrieval_section.retrieval(read),
        adaptive_section.adaptive(read, params.thresholds.search),
        lm_section.language_modelling(read, params.replug.top_k),
        attribution_page.rarity(read),
        model_sections.training(read),
        model_sections.tasks(read),
    ]
    blocks = [block for section in shown for block in section.blocks]
    with shards.atomic(out) as folder:
        for name in ("figures", "tables"):
            (folder / name).mkdir(parents=True)
        for block in blocks:
            if isinstance(block, page.Figure):
                (folder / f"figures/{block.name}.svg").write_text(page.standalone(block), encoding="utf-8")
            elif isinstance(block, page.Table):
                (folder / f"tables/{block.name}.csv").write_text(page.to_csv(block), encoding="utf-8")
        if "attribution" in read.metrics:
            attribution_page.write(data, folder / attribution_page.NAME)
        shards.write_json(folder / "findings.json", [page.as_json(finding) for finding in found])
        html = page.render(f"Longtail report: {params.profile}", _intro(read), found, shown, FOOTER)
        (folder / "index.html").write_text(html, encoding="utf-8")
    return {finding.id: finding.figure.value for finding in found if finding.verdict != "not measured"}


def _settings(params: SimpleNamespace) -> list[tuple[str, object]]:
    return [
        ("profile", params.profile),
        ("seed", str(params.seed)),
        ("language models, the main one first", ", ".join(params.lms)),
        ("month of the page views", params.popularity.month),
        ("demonstrations in a question's prompt", params.answer.n_shots),
        ("documents in the ensemble (k)", params.replug.top_k),
        ("temperature of lambda", params.replug.temperature),
        ("mixture", params.replug.mixture),
        ("threshold search in use", params.thresholds.search),
        ("splits of the thresholds' evaluation", params.thresholds.splits),
        ("bootstrap resamples", params.report.bootstrap),
    ]


def _intro(read: Inputs) -> str:
    from pipelines.release.page import label

    documents = " and ".join(f"{n:,} {label(name)}" for name, n in read.documents.items())
    asked = sum(len(answers.ids) for answers in read.answers.values())
    rejected = sum(row["rows"] for row in read.rejects)
    return (
        "When does retrieving a passage help a language model answer, and when does it mislead? This run searched "
        f"{documents} documents, asked {asked:,} questions four ways each (without retrieval, and with the top "
        "passage by BM25, by a dense retriever, and by the same retriever tuned to the language model), and "
        f"rejected {rejected:,} input row{'' if rejected == 1 else 's'}."
    )


def main() -> None:
    stage.run("report", SECTIONS, lambda params: write_report(Path("data"), OUT, params), out=str(OUT / "index.html"))


if __name__ == "__main__":
    main()
