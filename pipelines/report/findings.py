"""The findings: every claim of the papers, held against every figure of the run that
bears on it.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipelines.intervals import LEVEL
from pipelines.pages.section import Finding
from pipelines.report import claims_popqa, claims_replug
from pipelines.report.run_tables import Tables

CLAIMS = (  # in the order of the page
    claims_popqa.memory,
    claims_popqa.genread,
    claims_popqa.tail,
    claims_popqa.tail_most,
    claims_popqa.head,
    claims_popqa.namesakes,
    claims_popqa.adaptive,
    claims_replug.replug,
    claims_replug.several_documents,
    claims_replug.what_documents_say,
    claims_replug.lsr,
    claims_replug.recall,
    claims_replug.lsr_answers,
    claims_replug.ensemble,
    claims_replug.benchmark,
)


def findings(tables: Tables) -> list[Finding]:
    """All findings of the main language model and the imported ones, after Holm's correction."""
    all_findings = []
    for claim in CLAIMS:
        all_findings += claim(tables)
    return holm(all_findings)


def holm(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, marked if they remain after Holm's correction for all that are tested.

    The smallest of n p-values is multiplied by n, the next one by n - 1, and so on, until one is
    above 5 %.
    """
    tested = [finding for finding in findings if not finding.lacking]
    tested.sort(key=lambda finding: finding.p)
    remaining = set()
    for i, finding in enumerate(tested):
        if finding.p * (len(tested) - i) > 1 - LEVEL:
            break
        remaining.add(finding.id)
    return [replace(finding, remains=finding.id in remaining) for finding in findings]
