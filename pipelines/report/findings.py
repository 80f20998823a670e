"""The findings: every claim of the papers, held against every figure of the run that
bears on it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from pipelines.intervals import LEVEL
from pipelines.pages.section import Finding, Row
from pipelines.report import claims_popqa, claims_replug
from pipelines.report.measured import findings_of, id_of_finding
from pipelines.report.run_tables import Tables


@lru_cache(maxsize=1)  # a report's sections ask for the same
def findings(tables: Tables) -> list[Finding]:
    """All findings of the main language model and the imported ones, after Holm's correction."""
    all_findings = []
    for paper in (claims_popqa, claims_replug):  # in the order of the page
        for claim in paper.CLAIMS:
            all_findings += findings_of(paper.PAPER, claim, tables)
    return holm(all_findings)


def after_holm(tables: Tables, row: Row) -> str:
    """What the verdict on a row of `adaptive_metrics` ends with where its gain or loss is clear,
    but not after Holm's correction; "" elsewhere.
    """
    lm = "" if row["lm"] == tables.lm else row["lm"]
    id_ = id_of_finding("adaptive", row["dataset"], lm, row["method"])
    lost = {finding.id for finding in findings(tables) if finding.is_lost_to_holm}
    return ", but not after Holm's correction" if id_ in lost else ""


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
