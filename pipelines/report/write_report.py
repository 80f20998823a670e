"""Stage report: the results as one self-contained page, its figures as SVG, its tables as CSV, its findings as JSON."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pipelines import shards, stage

if TYPE_CHECKING:
    from pipelines.report.inputs import Inputs

OUT = Path("data/report")
FOOTER = (
    "Made by Longtail from the tables under data/. The figures lie beside this page as SVG files, the tables under "
    "tables/ as CSV, the findings in findings.json."
)
SECTIONS = ("profile", "seed", "lms", "popularity", "answer", "replug", "thresholds", "report", "parts", "lm_text")


def write_report(data: Path, out: Path, params: SimpleNamespace) -> stage.Metrics:
    """Write index.html, figures/*.svg, tables/*.csv and findings.json below `out`; return each finding's figure."""
    from pipelines.report import (
        accuracy_section,
        adaptive_section,
        attribution_page,
        compared_section,
        costs_section,
        effect_section,
        findings,
        inputs,
        lm_section,
        page,
        popularity_section,
        provenance_section,
        retrieval_section,
        run_section,
        tasks_section,
        training_section,
    )

    read = inputs.read(data, params.lms, params.parts)
    found = findings.findings(read, params.thresholds.search, params.replug.top_k)
    shown = [
        run_section.what_was_run(read, _settings(params)),
        popularity_section.popularity(read),
        accuracy_section.accuracy(read),
        *([accuracy_section.halves(read)] if read.rows("halves") else []),
        effect_section.retrieval_effect(read),
        retrieval_section.retrievers(read, params.replug.top_k),
        adaptive_section.adaptive(read, params.thresholds.search),
        costs_section.costs(read),
        compared_section.language_models(read),
        lm_section.language_modelling(read, params.replug.top_k),
        attribution_page.rarity(read),
        training_section.training(read),
        tasks_section.tasks(read),
        provenance_section.provenance(data, read.manifest, vars(params)),
    ]
    shown = [section for section in shown if section.blocks]  # of what this run has nothing for, nothing is said
    blocks = [block for section in shown for block in section.blocks]
    with shards.atomic(out) as folder:
        for name in ("figures", "tables"):
            (folder / name).mkdir(parents=True)
        for block in blocks:
            if isinstance(block, page.Figure):
                for figure in (block, *block.choices.values()):
                    (folder / f"figures/{figure.name}.svg").write_text(page.standalone(figure), encoding="utf-8")
            elif isinstance(block, page.Table):
                (folder / f"tables/{block.name}.csv").write_text(page.to_csv(block), encoding="utf-8")
        if any(section.id == "attribution" for section in shown):
            attribution_page.write(data, read.main_corpus, read.main, folder / attribution_page.NAME)
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
    from pipelines.report.page import label

    sizes = [f"{n:,} {label(name)}" for name, n in read.documents.items()]
    searched = f"searched {', '.join(sizes[:-1])}{' and ' * (len(sizes) > 1)}{sizes[-1]} documents, " if sizes else ""
    asked = {dataset: read.rows("accuracy", dataset=dataset) for dataset in read.asked}
    questions = sum(rows[0]["questions"] for rows in asked.values())
    methods = list(dict.fromkeys(label(row["method"]) for rows in asked.values() for row in rows))
    ways = f", each answered {len(methods)} ways ({', '.join(methods)})" if methods else ""
    rejected = sum(row["rows"] for row in read.rejects)
    several = len(read.models) > 1
    main = f" Where none is named, figures are of {read.main}, the main language model." if several else ""
    return (
        "When does retrieving a passage help a language model answer, and when does it mislead? This run "
        f"{searched}asked {questions:,} questions{ways}, and rejected {rejected:,} "
        f"input row{'' if rejected == 1 else 's'}.{main}"
    )


def main() -> None:
    stage.run("report", SECTIONS, lambda params: write_report(Path("data"), OUT, params), out=str(OUT / "index.html"))


if __name__ == "__main__":
    main()
