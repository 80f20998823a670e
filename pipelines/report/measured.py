"""Figures that bear on a claim of the papers, and how a claim is held against them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pipelines.evaluation.answer_sets import FEWEST
from pipelines.intervals import Interval, fixed
from pipelines.pages.section import Finding, Row
from pipelines.pages.values import Percent, label, show
from pipelines.report.run_tables import Tables


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what figures are held against it."""

    id: str
    claim: str  # a sentence that is true if the figure has the expected sign
    # what the figures are, and what stands beside them; {k} is the number of REPLUG's documents
    measured: str
    figures: Callable[[Tables], Iterable[Measured]]  # all figures of a run that bear on it
    unit: str = "points"  # points, of shares; %; or none
    expected: int = 1  # the sign of a figure that supports the claim


@dataclass(frozen=True)
class Group:
    """Questions or texts that a figure is of, with the shares right without and with what is
    claimed.
    """

    n: int
    before: float = math.nan
    after: float = math.nan

    @property
    def counts(self) -> list[int]:
        """How many are right without and with it, as far as these are known."""
        shares = [share for share in (self.before, self.after) if math.isfinite(share)]
        return [round(share * self.n) for share in shares]


@dataclass(frozen=True)
class Measured:
    """A figure of a method or retriever on a question set, corpus or benchmark."""

    on: str
    method: str
    figure: Interval
    rank: float  # how good the method is, more is better
    groups: Sequence[Group]
    beside: str = ""  # figures to show with it
    lm: str = ""  # if it is not the main one
    lacking: str = ""  # why the figure can show no effect
    items: str = "questions"  # what the groups are of
    right: str = "answered right"


def measured_of(
    tables: Tables, row: Row, column: str, rank: float, groups: Sequence[Group], beside: str
) -> Measured:
    """The figure of a row of answers: of its question set, method and language model."""
    return Measured(
        on=row["dataset"],
        method=row["method"],
        figure=row[column],
        rank=rank,
        groups=groups,
        beside=beside,
        lm="" if row["lm"] == tables.lm else row["lm"],
    )


def change(group: Group) -> str:
    """The share right without and with it in per cent, and how many questions that is of."""
    return f"{from_to(group)} ({show(group.n)})"


def from_to(group: Group) -> str:
    """The share right without and with it in per cent."""
    return f"{fixed(100 * group.before, 1)} → {fixed(100 * group.after, 1)}"


def findings_of(paper: str, claim: Claim, tables: Tables) -> list[Finding]:
    """A paper's claim held against each figure; those of one set stand together, the best method
    first.
    """
    figures = list(claim.figures(tables))
    sets = list(dict.fromkeys(figure.on for figure in figures))
    order = sorted(figures, key=lambda figure: (sets.index(figure.on), -figure.rank))
    held = replace(claim, measured=claim.measured.replace("{k}", str(tables.top_k)))
    return [_finding(paper, held, figure) for figure in order]


def id_of_finding(claim: str, on: str, lm: str, method: str) -> str:
    """The id of a claim held against a figure; `lm` is "" for the main language model."""
    return "-".join(part for part in (claim, on, lm, method) if part)


def _finding(paper: str, claim: Claim, measured: Measured) -> Finding:
    method = label(measured.method) if measured.method else "every method"
    lacking = measured.lacking or hindrance(measured, claim.expected)
    if measured.lm:
        method += f", {measured.lm}"

    id_ = id_of_finding(claim.id, measured.on, measured.lm, measured.method)
    said = _show_in(claim.unit, measured.figure)
    beside = "" if lacking else measured.beside
    return Finding(
        id=id_,
        paper=paper,
        claim=claim.claim,
        measured=claim.measured,
        on=label(measured.on),
        method=method,
        said=said,
        beside=beside,
        figure=measured.figure,
        expected=claim.expected,
        lacking=lacking,
    )


def _show_in(unit: str, figure: Interval) -> str:
    if unit == "points":
        return show(Percent(figure, signed=True))
    return show(figure, signed=True, digits=1 if unit == "%" else None)


def hindrance(measured: Measured, expected: int) -> str:
    """Why a figure could show no effect of this sign even if there were one; "" if it could."""
    is_single = len(measured.groups) == 1
    for group in measured.groups:
        reason = _too_few(measured, group)
        if not reason and is_single and len(group.counts) > 1:
            reason = _nothing_to_change(measured, group, expected)
        if reason:
            return reason

    if not math.isfinite(measured.figure.value):
        return "There is no figure."
    if measured.figure.low == measured.figure.high:
        return f"Nothing changes on any of the {measured.items}."
    return ""


def _too_few(measured: Measured, group: Group) -> str:
    """Why a group is too small, or hardly any of it right; "" if it is not."""
    if not group.n:
        return f"There are no such {measured.items}."
    if group.n < FEWEST:
        return f"There are only {group.n} {measured.items}, and a figure takes {FEWEST}."
    most = max(group.counts, default=FEWEST)
    if most < FEWEST:
        return f"At most {most} of {group.n:,} {measured.items} are {measured.right}."
    return ""


def _nothing_to_change(measured: Measured, group: Group, expected: int) -> str:
    """Why hardly any question could be won or lost; "" if enough could."""
    before = group.counts[0]
    can_change = before if expected < 0 else group.n - before
    if can_change >= FEWEST:
        return ""
    verb = "lost" if expected < 0 else "won"
    return (
        f"Without it, {before} of {group.n:,} {measured.items} are {measured.right}: hardly any "
        f"can be {verb}."
    )
