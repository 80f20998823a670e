"""The report as HTML: its first page, and its details on a second one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Term:
    """A term of the pages: what it is short for, if anything, and what it means."""

    name: str
    meaning: str
    long: str = ""


@dataclass(frozen=True)
class Step:
    """What a reader can do next: the command that does it, and the page that explains it."""

    what: str
    command: str
    page: str
    needs_answers: bool = False


TERMS = (
    Term("without retrieval", "The model answers alone. The papers say closed-book."),
    Term("always retrieving", "The model reads a passage with every question."),
    Term(
        "adaptive retrieval",
        "The model reads a passage only if the subject's popularity is below the threshold of its "
        "relation, such as father or genre.",
    ),
    Term(
        "oracle",
        "A bound: for each question it takes the better of the two answers, without retrieval and "
        "with it.",
    ),
    Term("BM25", "A search by the words that a question and a passage share."),
    Term("dense", "A search by embeddings, which an encoder makes of questions and passages."),
    Term(
        "LSR",
        "the encoder is tuned to find the passages that help the language model, which stays as "
        "it is.",
        "LM-supervised retrieval",
    ),
    Term(
        "REPLUG",
        "the model reads each of several passages in a prompt of its own, and its predictions are "
        "averaged.",
        "Retrieve and Plug",
    ),
    Term(
        "GenRead", "the model writes the passage itself, and then reads it.", "Generate, then Read"
    ),
    Term(
        "tail",
        f"The least popular {percent(TAIL)} of the questions. The head is the most popular "
        f"{percent(HEAD)}.",
    ),
    Term(
        "substring",
        "An answer is right if it contains a gold answer; by the rule word, it must stand there as "
        "whole words.",
    ),
    Term("held-out", "Of subjects to which no threshold was fitted."),
    Term("bits per byte", "What the model needs to predict a byte of a text; fewer are better."),
    Term("clearly", "The 95 % interval lies on one side of zero, before Holm's correction."),
    Term("not testable", "The number could show no effect even if there were one."),
    Term(
        "Holm's correction",
        "Of many tests, some show an effect by chance. The correction allows for their number.",
    ),
)
NEXT_STEPS = (
    Step("Ask a question of your own", "longtail ask QUESTION", "ask.md", needs_answers=True),
    Step("See why answers are wrong", "longtail explore --open", "explorer.md"),
    Step(
        "Find thresholds from your own predictions",
        "longtail thresholds closed.csv rag.csv --questions popQA.tsv",
        "thresholds.md",
    ),
    Step("Run it on your own data", "longtail init FOLDER", "real-data.md"),
)


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

    has_answers = bool(tables.answered_sets)
    next_steps = [step for step in NEXT_STEPS if has_answers or not step.needs_answers]
    facts = {
        "styles": rendering.styles_of_page([*first, *details]),
        "is_fictional": is_fictional,
        "has_answers": has_answers,
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
        next_steps=next_steps,
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
    next_steps: Sequence[Step] = (),
    counted: str = "",
) -> str:
    """A page of the report; only the first one has a `result`, findings and what to do next."""
    long_names = {term.name: term.long for term in TERMS if term.long}
    parts = rendering.page_parts(facts["styles"], long_names)
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
        next_steps=next_steps,
        terms=TERMS,
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
    return [term.name for term in TERMS if term.long and term.name in methods]
