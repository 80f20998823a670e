"""Benchmarks: a table of all, one by category for those with categories, and only the methods that were run."""

from types import SimpleNamespace

import small_results

from pipelines.report import tasks_section
from pipelines.report.page import Table


def figure(value: float, questions: int) -> dict:
    accuracy = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return accuracy | {"questions": questions, "gain": accuracy | {"value": 0.05}}


def solved(value: float) -> dict:
    whole = figure(value, 9)
    categories = {"STEM": figure(value - 0.2, 4), "Humanities": figure(value + 0.2, 5)}
    of_benchmark = {"accuracy": whole, "questions": 9, "gain": whole["gain"]}
    return of_benchmark | {"categories": categories, "mean_of_categories": value}


def test_a_benchmark_with_categories_has_a_table_of_its_own_without_lsr_where_none_was_tuned():
    metrics = {"tasks": {"mmlu": {"closed_book": solved(0.4), "replug": solved(0.5), "rejects": {}}}}
    section = tasks_section.tasks(SimpleNamespace(metrics=metrics, parts=small_results.PARTS))
    everything, by_category = (block for block in section.blocks if isinstance(block, Table))
    assert [row[:3] for row in everything.rows] == [["MMLU", "closed-book", 9], ["MMLU", "REPLUG", 9]]
    assert everything.rows[1][3].interval.value == 0.5
    assert (by_category.name, by_category.head) == ("mmlu", ["method", "STEM", "Humanities", "mean"])
    assert [(row[0], round(row[1].interval.value, 3), row[-1]) for row in by_category.rows] == [
        ("closed-book", 0.2, 40.0),
        ("REPLUG", 0.3, 50.0),
    ]
    assert section.missing == "There were no questions of Natural Questions or TriviaQA."


def test_benchmarks_of_an_earlier_run_are_not_shown():
    metrics = {"tasks": {"mmlu": {"closed_book": solved(0.4)}}}
    assert not tasks_section.tasks(SimpleNamespace(metrics=metrics, parts=small_results.PILE.parts)).blocks
