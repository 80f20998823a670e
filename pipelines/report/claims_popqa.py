"""The claims of the PopQA paper, each held against all figures of the run that bear on it."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pipelines.adaptive import rule
from pipelines.evaluation.accuracy import HEAD, TAIL
from pipelines.evaluation.answer_sets import FEWEST
from pipelines.evaluation.retrieval_effects import TAIL_LESS_HEAD
from pipelines.intervals import NOTHING
from pipelines.methods import Method
from pipelines.pages.section import Row
from pipelines.pages.values import percent, show
from pipelines.report import adaptive_metrics
from pipelines.report.measured import Claim, Group, Measured, change, measured_of
from pipelines.report.run_tables import Tables

PAPER = "PopQA: When Not to Trust Language Models (Mallen et al., 2023)"
CORRELATION = (
    "The correlation of being right with log popularity. Beside it, the share of all questions "
    "that is right (and how many questions)."
)


def _correlations(tables: Tables, kind: str) -> Iterator[Measured]:
    """How being right is correlated with popularity, for methods of a kind."""
    for row in tables.answered("accuracy"):
        if Method.of_name(row["method"]).kind != kind:
            continue
        n = row["popularity_known"]
        share = row["substring"].value
        wrong = round((1 - share) * n)
        lacking = ""
        if wrong < FEWEST <= n:
            lacking = f"All but {wrong} of {n:,} questions are answered right."
        beside = f"{percent(share, 1)} ({show(row['questions'])})"
        measured = measured_of(tables, row, "correlation", share, [Group(n, share)], beside)
        yield replace(measured, lacking=lacking)


def _rows_of_effects(tables: Tables) -> Iterator[dict[str, Row]]:
    """For each question set, language model and method that retrieves: group of questions -> its
    row.
    """
    by_method: dict[tuple[str, str, str], dict[str, Row]] = defaultdict(dict)
    for row in tables.answered("retrieval_effect"):
        if Method.of_name(row["method"]).kind != "genread":
            by_method[row["dataset"], row["lm"], row["method"]][row["group"]] = row
    yield from by_method.values()


def _group(row: Row) -> Group:
    return Group(row["questions"], row["closed_book"].value, row["augmented"].value)


def _effects(tables: Tables, group: str) -> Iterator[Measured]:
    """What retrieved passages change in a group of questions, by every method that retrieves."""
    for rows in _rows_of_effects(tables):
        row = rows[group]
        counted = _group(row)
        rank = rows["all"]["augmented"].value
        yield measured_of(tables, row, "gain", rank, [counted], change(counted))


def _tail_less_head(tables: Tables) -> Iterator[Measured]:
    """What passages change in the tail, less what they change at the head."""
    for rows in _rows_of_effects(tables):
        row = rows[TAIL_LESS_HEAD]
        changes = []
        for end in ("tail", "head"):
            points = show(rows[end]["gain"].times(100), signed=True, digits=1)
            changes.append(points.split()[0])
        rank = rows["all"]["augmented"].value
        groups = [_group(rows["tail"]), _group(rows["head"])]
        yield measured_of(tables, row, "gain", rank, groups, ", ".join(changes))


def _gains_of_thresholds(tables: Tables) -> Iterator[Measured]:
    """What thresholds are worth with each method; if a question set has none, why it has none."""
    if not tables.settings.parts.rules:
        return
    in_use = adaptive_metrics.in_use(tables)
    least = tables.settings.thresholds.min_questions
    for dataset in tables.answered_sets:
        by_lm = adaptive_metrics.figures_of_set(tables, dataset)
        rows = []
        for row in in_use:
            if row["dataset"] == dataset and row["lm"] in tables.shown_lms:
                rows.append(row)

        if all(row["lm"] != tables.lm for row in rows):
            lacking = adaptive_metrics.too_few(dataset, by_lm.get(tables.lm, {}), least)
            yield Measured(dataset, "", NOTHING, 0.0, [], lacking=lacking)
        for row in rows:
            yield _gain_of_threshold(tables, row)


def _gain_of_threshold(tables: Tables, row: Row) -> Measured:
    better = max(row["always"].value, row["never"].value)
    adaptive = row["adaptive"].value
    lacking = rule.untestable(row["oracle"].value, better, row["questions"])
    beside = change(Group(row["questions"], better, adaptive))
    measured = measured_of(tables, row, "gain", adaptive, [], beside)
    return replace(measured, lacking=lacking and f"{lacking}.")


CLAIMS = (
    Claim(
        id="memory",
        claim="Without retrieval, accuracy rises with the subject's popularity.",
        measured=CORRELATION,
        unit="",
        figures=partial(_correlations, kind="closed_book"),
    ),
    Claim(
        id="genread",
        claim=(
            "GenRead, whose passages come from the model's memory, does worse on less popular "
            "subjects as well."
        ),
        measured=CORRELATION,
        unit="",
        figures=partial(_correlations, kind="genread"),
    ),
    Claim(
        id="tail",
        claim="Retrieval helps in the long tail.",
        measured=(
            "The change in points against answers without retrieval, on the least popular "
            f"{percent(TAIL)} of the questions. Beside it, both accuracies in % (and how many "
            "questions)."
        ),
        figures=partial(_effects, group="tail"),
    ),
    Claim(
        id="tail-most",
        claim="Retrieval helps more in the tail than at the head.",
        measured=(
            f"The change in the tail minus the change on the most popular {percent(HEAD)} of the "
            "questions, in points. Beside it, both changes."
        ),
        figures=_tail_less_head,
    ),
    Claim(
        id="head",
        claim="Retrieval hurts at the head.",
        measured=(
            "The change in points against answers without retrieval, on the most popular "
            f"{percent(HEAD)} of the questions. Beside it, both accuracies in % (and how many "
            "questions)."
        ),
        expected=-1,
        figures=partial(_effects, group="head"),
    ),
    Claim(
        id="namesakes",
        claim="Retrieval hurts if a namesake's page is retrieved for a popular subject.",
        measured=(
            "The change in points against answers without retrieval, on those of the most popular "
            f"{percent(HEAD)} of the questions for which another page by the same name was found."
        ),
        expected=-1,
        figures=partial(_effects, group="namesake's page, head"),
    ),
    Claim(
        id="adaptive",
        claim=(
            "Retrieving only below a popularity threshold beats both always and never retrieving."
        ),
        measured=(
            "Accuracy on held-out questions minus the better of always retrieving and without "
            "retrieval, in points. Beside it, both accuracies in % on the questions of known "
            "popularity (and how many they are). In "
            '"X below Y", X answers below the threshold and Y above it.'
        ),
        figures=_gains_of_thresholds,
    ),
)
