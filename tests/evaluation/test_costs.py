"""What answers cost and what thresholds save, worked out by hand."""

import math
from pathlib import Path

import answer_tables
import numpy as np
import pytest

from pipelines.evaluation import accuracy, costs

N = 10
WHOLE = np.ones(N, bool)


@pytest.fixture
def answers(tmp_path) -> accuracy.Answers:
    """Ten questions of two relations, popularity 1 to 9 and unknown; GenRead asks twice and costs ten times as much."""
    relations = ["P1"] * 5 + ["P2"] * 5
    answer_tables.write_questions(tmp_path / "questions.parquet", [*range(1, 10), None], relations)
    files: dict[str, Path] = {m: tmp_path / f"{m}.parquet" for m in ("closed_book", "genread", "dense")}
    spent = {"prompt_tokens": [8] * N, "new_tokens": [2] * N, "lm_calls": [1] * N, "cost": [0.1] * N}
    answer_tables.write_answers(files["closed_book"], WHOLE, **spent)
    more = {"prompt_tokens": [80] * N, "new_tokens": [20] * N, "lm_calls": [2] * N, "cost": [1.0] * N}
    answer_tables.write_answers(files["genread"], WHOLE, **more)
    answer_tables.write_answers(files["dense"], WHOLE)
    return accuracy.read(tmp_path / "questions.parquet", files)


def test_costs_are_means_of_a_question_and_unknown_where_not_said(answers):
    closed, genread, dense = costs.costs(answers)
    assert [genread[name] for name in ("calls", "prompt_tokens", "new_tokens")] == [2.0, 80.0, 20.0]
    assert (closed["cost_per_1000"], genread["cost_per_1000"]) == (pytest.approx(100), 1000)
    assert math.isnan(dense["calls"])


def test_what_thresholds_save(answers):
    """P1 retrieves below 3 (2 of 5), P2 always (4, its fifth has no popularity): 6 of 9 retrieve."""
    genread, dense = costs.savings(
        answers, {"lsr": {}, "dense": {"P1": 3.0}, "genread": {"P1": 3.0, "P2": None}}, 0, 100
    )
    assert (genread["questions"], genread["retrieved"]) == (9, pytest.approx(6 / 9))
    assert genread["tokens_saved"].value == pytest.approx(100 * (1 - (6 * 100 + 3 * 10) / 900))
    assert genread["calls_saved"].value == pytest.approx(100 * (1 - (6 * 2 + 3) / 18))
    assert genread["cost_saved"].value == pytest.approx(30.0)
    assert genread["tokens_saved"].low <= genread["tokens_saved"].value <= genread["tokens_saved"].high
    assert (dense["questions"], dense["retrieved"]) == (5, 0.4)
    assert math.isnan(dense["tokens_saved"].value)


def test_a_threshold_of_zero_never_retrieves(answers):
    (row,) = costs.savings(answers, {"genread": {"P1": 0.0, "P2": 0.0}}, 0, 10)
    assert (row["retrieved"], row["cost_saved"].value) == (0.0, pytest.approx(90.0))
