"""The report as HTML: its first page, and its details on a second one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.pages import rendering
from pipelines.pages.section import NOT_TESTABLE, OPPOSITE, SHOWN, VERDICTS, Finding, Section
from pipelines.pages.values import percent
from pipelines.report.run_tables import Tables

TEMPLATES = Path(__file__).parent / "templates"
FIRST = "index.html"
DETAILS = "details.html"
RESULT = "result"  # the section that the first page begins with
LONG_NAMES = {  # of methods -> what these are short for
    "LSR": "LM-supervised retrieval",
    "REPLUG": "Retrieve and Plug",
    "GenRead": "Generate, then Read",
}


def render_pages(
    tables: Tables,
    first: Sequence[Section],
    details: Sequence[Section],
    findings: Sequence[Finding],
) -> dict[str, str]:
    """Name of a file -> its HTML. Without sections of details there is the first page alone."""
    is_fictional = tables.settings.fetch.is_fictional
    title = f"Longtail report: {tables.settings.profile}"
    data = "in this run"
    if is_fictional:
        title += ", a fictional world"
        data = "on the fictional sample"

    facts = {
        "styles": rendering.styles_of_page([*first, *details]),
        "is_fictional": is_fictional,
        "has_answers": bool(tables.answered_sets),
        "details": details,
    }
    result = next((section for section in first if section.id == RESULT), None)
    others = [section for section in first if section is not result]
    first_page = _render(
        facts,
        title=title,
        is_first=True,
        result=result,
        sections=others,
        findings=findings,
        counted=f"{', '.join(tables.shown_lms)} {data}",
    )
    pages = {FIRST: first_page}
    if details:
        pages[DETAILS] = _render(facts, title=f"Details of the {title}", sections=details)
    return pages


def _render(
    facts: dict[str, Any],
    title: str,
    sections: Sequence[Section],
    is_first: bool = False,
    result: Section | None = None,
    findings: Sequence[Finding] = (),
    counted: str = "",
) -> str:
    """A page of the report; only the first one has a `result` and findings."""
    parts = rendering.page_parts(facts["styles"], LONG_NAMES)
    template = rendering.environment(TEMPLATES).get_template("report.html.j2")
    return template.render(
        parts | facts,
        folded=True,
        title=title,
        sections=sections,
        is_first=is_first,
        result=result,
        findings=findings,
        summary=_summary(findings),
        claims=_by_claim(findings),
        counted=counted,
        verdicts=VERDICTS,
        long_names=LONG_NAMES,
        tail=percent(TAIL),
        head=percent(HEAD),
        methods=_short_methods(findings),
    )


def _by_claim(findings: Iterable[Finding]) -> dict[str, dict[str, dict[str, list[Finding]]]]:
    """Paper -> claim -> question set -> its findings."""
    papers: dict[str, dict[str, dict[str, list[Finding]]]] = {}
    for finding in findings:
        sets = papers.setdefault(finding.paper, {}).setdefault(finding.claim, {})
        sets.setdefault(finding.on, []).append(finding)
    return papers


def _summary(findings: Sequence[Finding]) -> dict[str, int]:
    """Verdict -> its findings, with those that remain after Holm's correction apart."""
    counts = Counter(finding.verdict for finding in findings)
    remaining = Counter(finding.verdict for finding in findings if finding.remains)
    return {
        "tested": len(findings) - counts[NOT_TESTABLE],
        "not_testable": counts[NOT_TESTABLE],
        "shown": counts[SHOWN],
        "opposite": counts[OPPOSITE],
        "shown_after_holm": remaining[SHOWN],
        "opposite_after_holm": remaining[OPPOSITE],
    }


def _short_methods(findings: Sequence[Finding]) -> list[str]:
    """The names of the findings' methods that are short for something."""
    methods = " ".join(finding.method for finding in findings)
    return [name for name in LONG_NAMES if name in methods]
