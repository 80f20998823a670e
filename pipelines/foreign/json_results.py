"""The results of `longtail thresholds --json` and `longtail compare --json`, as plain values.

Accuracies and shares lie between 0 and 1. A figure with an interval is {value, low, high}, and null
stands for what is not known. docs/command-line.md lists the keys.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.foreign.compare_systems import Compared
from pipelines.foreign.metrics_page import SYSTEM_METRICS
from pipelines.foreign.question_tables import Questions
from pipelines.foreign.tune_from_files import Result
from pipelines.intervals import Interval
from pipelines.pages.section import Row
from pipelines.pages.table_rows import is_known

RELATION_FIGURES = ("threshold", "closed_book", "augmented", "adaptive", "retrieved")
DECIDER_FIGURES = ("accuracy", "difference", "retrieved", "calls", "accuracy_area", "less")


def thresholds_as_json(
    questions: Questions, results: Sequence[Result], systems: Sequence[Row], notes: Sequence[str]
) -> dict[str, Any]:
    """Each pair of files, the best first: what its thresholds are worth, and the thresholds; and
    each file's accuracy, of `systems`, rows of the table `accuracy`.
    """
    return {
        "questions": results[0].file.questions,
        "signal": questions.signal_name,
        "notes": list(notes),
        "pairs": [_pair(result) for result in results],
        "systems": [_system(row) for row in systems],
    }


def comparison_as_json(
    questions: Questions, compared: Compared, notes: Sequence[str]
) -> dict[str, Any]:
    """The systems, the best first, each less each that is better, and all by relation."""
    systems = []
    for row in compared.accuracy:
        answers = {"answers": compared.counts[row["method"]]}
        systems.append(_system(row) | answers | _values(row, "correlation"))

    pairs = []
    for row in compared.pairs:
        figures = ("against", "gain", "only_this", "only_that", "p")
        pairs.append(_values(row, *figures, system="method"))

    relations = []
    for row in compared.by_relation:
        name = {"name": questions.names[row["relation"]]}
        of_system = _values(row, "questions", id="relation", system="method", accuracy="substring")
        relations.append(of_system | name)

    return {
        "questions": compared.questions,
        "signal": questions.signal_name,
        "notes": list(notes),
        "systems": systems,
        "pairs": pairs,
        "relations": relations,
    }


def _values(row: Mapping[str, Any], *columns: str, **renamed: str) -> dict[str, Any]:
    """Columns of a row as plain values; those that are `renamed` have another key here."""
    values = {}
    for key, column in (renamed | dict(zip(columns, columns, strict=True))).items():
        value = row.get(column)
        if isinstance(value, Interval):
            value = value.as_json() if is_known(value) else None
        values[key] = value
    return values


def _system(row: Row) -> dict[str, Any]:
    return _values(row, *SYSTEM_METRICS, system="method", accuracy="substring")


def _pair(result: Result) -> dict[str, Any]:
    rule = result.file
    relations = []
    for row in result.relations:
        facts = {"name": rule.names[row["relation"]], "own_threshold": not row["pooled"]}
        relations.append(_values(row, "questions", *RELATION_FIGURES, id="relation") | facts)

    pair = _values(vars(rule), "below", "above", "policy", "verdict")
    pair |= _values(result.held_out, *result.held_out)
    if rule.budget is not None:
        pair["budget"] = rule.budget
        pair |= _values(result.figures, "gain_over_never", "over_budget", "retrieved_most")
    pair["relations"] = relations
    pair["deciders"] = [_values(row, "system", *DECIDER_FIGURES) for row in result.deciders]
    return pair
