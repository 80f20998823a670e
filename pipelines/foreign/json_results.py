"""The results of `longtail thresholds --json` and `longtail compare --json`, as plain values.

Accuracies and shares lie between 0 and 1. A figure with an interval is {value, low, high}, and null
stands for what is not known. docs/command-line.md lists the keys.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.foreign.compare_systems import Compared
from pipelines.foreign.metrics_page import metrics_as_json
from pipelines.foreign.question_tables import Questions
from pipelines.foreign.tune_from_files import Result
from pipelines.intervals import interval
from pipelines.pages.section import Row
from pipelines.pages.table_rows import is_known
from pipelines.pages.thresholds import POLICIES

PAIR_FIGURES = (*POLICIES, "gain", "retrieved")
RELATION_FIGURES = ("threshold", "closed_book", "augmented", "adaptive", "retrieved")
COUNTS = ("only_this", "only_that", "p")  # of a pair of systems
DECIDER_FIGURES = ("accuracy", "difference", "retrieved", "calls", "accuracy_area", "less")


def thresholds_as_json(
    questions: Questions, results: Sequence[Result], systems: Sequence[Row], notes: Sequence[str]
) -> dict[str, Any]:
    """Each pair of files, the best first: what its thresholds are worth, and the thresholds; and
    each file's accuracy, of `systems`, rows of the table `accuracy`.
    """
    best_rule = results[0].file
    accuracies = []
    for row in systems:
        accuracy = {"system": row["method"], "accuracy": row["substring"].as_json()}
        accuracies.append(accuracy | metrics_as_json(row))
    return {
        "questions": best_rule.questions,
        "signal": questions.signal_name,
        "notes": list(notes),
        "pairs": [_pair(result) for result in results],
        "systems": accuracies,
    }


def comparison_as_json(
    questions: Questions, compared: Compared, notes: Sequence[str]
) -> dict[str, Any]:
    """The systems, the best first, each less each that is better, and all by relation."""
    systems = []
    for row in compared.accuracy:
        system: dict[str, Any] = {"system": row["method"]}
        system["answers"] = compared.counts[row["method"]]
        system["accuracy"] = row["substring"].as_json()
        system["correlation"] = row["correlation"].as_json()
        systems.append(system | metrics_as_json(row))

    pairs = []
    for row in compared.pairs:
        pair: dict[str, Any] = {"system": row["method"], "against": row["against"]}
        pair["gain"] = row["gain"].as_json()
        for name in COUNTS:
            pair[name] = row[name]
        pairs.append(pair)

    relations = []
    for row in compared.by_relation:
        key = row["relation"]
        relation: dict[str, Any] = {"id": key, "name": questions.names[key]}
        relation["questions"] = row["questions"]
        relation["system"] = row["method"]
        relation["accuracy"] = row["substring"].as_json()
        relations.append(relation)

    return {
        "questions": compared.questions,
        "signal": questions.signal_name,
        "notes": list(notes),
        "systems": systems,
        "pairs": pairs,
        "relations": relations,
    }


def _pair(result: Result) -> dict[str, Any]:
    rule = result.file
    pair: dict[str, Any] = {
        "below": rule.below,
        "above": rule.above,
        "policy": rule.policy,
        "verdict": rule.verdict,
    }
    for name in PAIR_FIGURES:
        figure = interval(result.figures[name])
        pair[name] = figure.as_json()
    pair["relations"] = [_relation(row, rule.names) for row in result.relations]
    pair["deciders"] = []
    if result.decided:
        pair["deciders"] = [_decider(row) for row in result.decided.rows]
    return pair


def _relation(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    key = row["relation"]
    relation: dict[str, Any] = {"id": key, "name": names[key]}
    relation["questions"] = row["questions"]
    relation["own_threshold"] = not row["pooled"]
    for name in RELATION_FIGURES:
        relation[name] = None
        if is_known(row[name]):
            relation[name] = row[name].as_json()
    return relation


def _decider(row: Mapping[str, Any]) -> dict[str, Any]:
    decider: dict[str, Any] = {"system": row["system"]}
    for name in DECIDER_FIGURES:
        decider[name] = None
        if name in row:
            decider[name] = row[name].as_json()
    return decider
