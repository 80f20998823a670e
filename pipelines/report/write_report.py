"""Stage `report`: the results as two pages, with figures as SVG, tables as CSV and findings as
JSON.
"""

from collections.abc import Sequence
from pathlib import Path

from pipelines.pages import rendering
from pipelines.pages.section import Figure, Section, Table
from pipelines.pages.table_texts import figure_csv, to_csv
from pipelines.report import (
    accuracy_section,
    adaptive_section,
    controls_section,
    costs_section,
    effect_section,
    models_section,
    perplexity_section,
    popularity_section,
    provenance_section,
    rarity_section,
    recall_section,
    replug_section,
    report_pages,
    result_section,
    training_section,
)
from pipelines.report.findings import findings
from pipelines.report.run_summary import headlines
from pipelines.report.run_tables import Settings, Tables
from pipelines.storage.atomic import atomic, write_json
from pipelines.work import stage

OUT = Path("data/report")
HEADLINES = Path("data/headlines.json")
# the sections of both pages, in the order of the pages
SECTIONS = (
    result_section.section,
    accuracy_section.section,
    effect_section.section,
    adaptive_section.section,
    popularity_section.section,
    recall_section.section,
    costs_section.section,
    models_section.section,
    replug_section.section,
    controls_section.section,
    perplexity_section.section,
    rarity_section.section,
    training_section.section,
    provenance_section.section,
)
# ids of the sections of the first page; all others are details
FIRST_PAGE = ("result", "accuracy", "effect", "adaptive", "provenance")
FIRST_PAGE_WITHOUT_ANSWERS = ("result", "replug", "provenance")


def write_report(data: Path, out: Path, settings: Settings) -> stage.Metrics:
    """Write index.html, details.html, figures, tables and findings.json below `out`; return the
    headlines.
    """
    tables = Tables(data, settings)
    sections = shown_sections(tables)
    claims = findings(tables)
    pages = report_pages.render_pages(tables, *split_in_pages(tables, sections), claims)

    with atomic(out) as folder:
        _write_blocks(folder, sections)
        write_json(folder / "findings.json", [finding.as_json() for finding in claims])
        for name, html in pages.items():
            (folder / name).write_text(html, encoding="utf-8")

    return headlines(tables, claims)


def shown_sections(tables: Tables) -> list[Section]:
    """The sections for which the run has a figure or a table."""
    sections = [section(tables).shown for section in SECTIONS]
    return [section for section in sections if section.has_figures]


def split_in_pages(
    tables: Tables, sections: Sequence[Section]
) -> tuple[list[Section], list[Section]]:
    """The sections of the first page, and those of the details."""
    ids = FIRST_PAGE if tables.answered_sets else FIRST_PAGE_WITHOUT_ANSWERS
    first = [section for section in sections if section.id in ids]
    details = [section for section in sections if section.id not in ids]
    return first, details


def _write_blocks(folder: Path, sections: Sequence[Section]) -> None:
    """Write the figures and the tables of the pages as files."""
    styles = rendering.styles_of_page(sections)
    for name in ("figures", "tables"):
        (folder / name).mkdir(parents=True)
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Figure):
                svg = rendering.standalone(block, styles)
                (folder / f"figures/{block.name}.svg").write_text(svg, encoding="utf-8")
                path = folder / f"figures/{block.name}.csv"
                path.write_text(figure_csv(block), encoding="utf-8")
            elif isinstance(block, Table):
                path = folder / f"tables/{block.name}.csv"
                path.write_text(to_csv(block), encoding="utf-8")


def main() -> None:
    def work(settings: Settings) -> stage.Metrics:
        return write_report(Path("data"), OUT, settings)

    stage.run("report", Settings, work, out=str(OUT / "index.html"), metrics=HEADLINES)


if __name__ == "__main__":
    main()
