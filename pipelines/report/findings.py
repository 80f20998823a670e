"""The findings: every claim of the papers, held against every figure of the run that
bears on it.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipelines.intervals import LEVEL
from pipelines.pages.section import Finding
from pipelines.report import claims_popqa, claims_replug
from pipelines.report.measured import findings_of
from pipelines.report.run_tables import Tables


def findings(tables: Tables) -> list[Finding]:
    """All findings of the main language model and the imported ones, after Holm's correction."""
    all_findings = []
    for paper in (claims_popqa, claims_replug):  # in the order of the page
        for claim in paper.CLAIMS:
            all_findings += findings_of(paper.PAPER, claim, tables)
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
