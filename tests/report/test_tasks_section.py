"""Benchmarks: a table of all, one by category for those with categories, and only the methods that were run."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import small_results

from pipelines.report import tasks_section
from pipelines.report.page import NONE, Table


def figure(value: float, questions: int) -> dict:
    accuracy = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return accuracy | {"questions": questions, "gain": accuracy | {"value": 0.05}}


def solved(value: float, by: str | None = None) -> dict:
    whole = figure(value, 9)
    categories = {"STEM": figure(value - 0.2, 4), "Humanities": figure(value + 0.2, 5)}
    of_benchmark = {"accuracy": whole, "questions": 9, "gain": whole["gain"], "answered_by": by}
    return of_benchmark | {"categories": categories, "mean_of_categories": value}


def inputs(metrics: dict, parts=small_results.PARTS, data: Path = Path("none")) -> SimpleNamespace:
    """The figures by benchmark and language model, of a run with two."""
    return SimpleNamespace(metrics={"tasks": metrics}, models=["tiny", "second"], parts=parts, data=data)


def test_a_benchmark_with_categories_has_a_table_of_its_own_without_lsr_where_none_was_tuned():
    of_lm = {"closed_book": solved(0.4), "replug": solved(0.5, "mixture"), "rejects": {}}
    section = tasks_section.tasks(inputs({"mmlu": {"tiny": of_lm}}))
    everything, by_category = (block for block in section.blocks if isinstance(block, Table))
    assert [row[:5] for row in everything.rows] == [
        ["MMLU", "tiny", "closed-book", NONE, 9],
        ["MMLU", "tiny", "REPLUG", "mixture", 9],
    ]
    assert everything.rows[1][5].interval.value == 0.5
    assert (by_category.name, by_category.head) == ("mmlu", ["language model", "method", "STEM", "Humanities", "mean"])
    assert [(row[1], round(row[2].interval.value, 3), row[-1]) for row in by_category.rows] == [
        ("closed-book", 0.2, 0.4),
        ("REPLUG", 0.3, 0.5),
    ]
    assert section.missing == "There were no questions of Natural Questions or TriviaQA."


def test_each_language_model_has_its_rows_and_what_it_could_not_be_asked_is_said():
    of_nq = {"closed_book": figure(0.3, 9) | {"accuracy": figure(0.3, 9), "answered_by": None}}
    of_nq["replug_random"] = of_nq["closed_book"] | {"answered_by": "vote"}
    blocks = tasks_section.tasks(
        inputs({"nq": {"second": {"closed_book": of_nq["closed_book"], "too_long": {"": 2}}, "tiny": of_nq}})
    ).blocks
    rows = [["tiny", "closed-book", NONE], ["tiny", "REPLUG, random documents", "vote"]]
    assert [row[1:4] for row in blocks[2].rows] == [*rows, ["second", "closed-book", NONE]]
    assert blocks[3:] == [
        "second shows no log-probabilities of its answers to Natural Questions, so REPLUG was left out.",
        "Natural Questions, second: prompts too long for the language model are left out: questions (2).",
    ]


def test_benchmarks_of_an_earlier_run_are_not_shown():
    of_lm = {"closed_book": solved(0.4)}
    assert not tasks_section.tasks(inputs({"mmlu": {"tiny": of_lm}}, small_results.PILE.parts)).blocks
    assert not tasks_section.tasks(inputs({"mmlu": {"gone": of_lm}})).blocks


@pytest.mark.parametrize(("second", "said"), [("A", True), ("B", False)])
def test_a_model_that_gives_one_letter_to_every_question_is_said_to(tmp_path, second, said):
    of_lm = {name: solved(0.4, "mixture") for name in ("closed_book", "replug", "replug_lsr")}
    answers = {"method": ["closed_book", "replug"], "prediction": ["A", second]}
    small_results.write(tmp_path / "tasks/mmlu/tiny/predictions.parquet", pa.table(answers))
    sentence = tasks_section.tasks(inputs({"mmlu": {"tiny": of_lm}}, data=tmp_path)).says
    assert ", with LSR's documents by +5.0 [" in sentence
    assert ("tiny answers A to every question of MMLU" in sentence) == said
