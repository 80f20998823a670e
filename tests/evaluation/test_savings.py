"""What answers cost, and what thresholds save where they were not fitted, on small tables worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path

import adaptive_pairs
import answer_tables
import numpy as np
import pytest

from pipelines.adaptive import pairs, refits, tune_thresholds
from pipelines.adaptive.held_out import Fitted
from pipelines.evaluation import accuracy, savings

ALL_RIGHT = np.ones(10, bool)
ALWAYS, NEVER = math.inf, 0.0
EVERY = np.ones((10, 1), bool)


@pytest.fixture
def priced(tmp_path) -> accuracy.Answers:
    """Ten questions of two relations, popularity 1 to 9 and unknown; GenRead asks twice and costs ten times as much."""
    relations = ["P1"] * 5 + ["P2"] * 5
    answer_tables.write_questions(tmp_path / "questions.parquet", [*range(1, 10), None], relations)
    files: dict[str, Path] = {m: tmp_path / f"{m}.parquet" for m in ("closed_book", "genread", "dense")}
    spent = {"prompt_tokens": [8] * 10, "new_tokens": [2] * 10, "lm_calls": [1] * 10, "cost": [0.1] * 10}
    answer_tables.write_answers(files["closed_book"], ALL_RIGHT, **spent)
    more = {"prompt_tokens": [80] * 10, "new_tokens": [20] * 10, "lm_calls": [2] * 10, "cost": [1.0] * 10}
    answer_tables.write_answers(files["genread"], ALL_RIGHT, **more)
    answer_tables.write_answers(files["dense"], ALL_RIGHT)
    return accuracy.read(tmp_path / "questions.parquet", files)


def saved(answers: accuracy.Answers, cuts: dict[str, list[float]], test: np.ndarray = EVERY, method: str = "genread"):
    """By thresholds that are the same whatever they are fitted to."""
    splits = {relation: np.array(of) for relation, of in cuts.items()}
    drawn = refits.resample(answers.subjects.astype(str), answers.subjects.astype(str), 0.75, 0, 100)
    whole = {relation: np.full(100, of[0]) for relation, of in cuts.items()}
    return savings.saved(answers, method, Fitted(splits, whole, (whole,) * 4), test, drawn)


def test_costs_are_means_of_a_question_and_unknown_where_not_said(priced):
    closed, genread, dense = savings.costs(priced)
    assert [genread[name] for name in ("calls", "prompt_tokens", "new_tokens")] == [2.0, 80.0, 20.0]
    assert (closed["cost_per_1000"], genread["cost_per_1000"]) == (pytest.approx(100), 1000)
    assert math.isnan(dense["calls"])


def test_what_thresholds_save(priced):
    """P1 retrieves below 3 (2 of 5), P2 always (4, its fifth has no popularity): 6 of 9 retrieve."""
    row = saved(priced, {"P1": [3.0], "P2": [ALWAYS]})
    assert (row["questions"], row["retrieved"].value) == (9, pytest.approx(6 / 9))
    assert row["tokens_saved"].value == pytest.approx(100 * (1 - (6 * 100 + 3 * 10) / 900))
    assert row["calls_saved"].value == pytest.approx(100 * (1 - (6 * 2 + 3) / 18))
    assert row["cost_saved"].value == pytest.approx(30.0)
    assert row["tokens_saved"].low < row["tokens_saved"].value < row["tokens_saved"].high
    assert row["tokens_saved_splits"].value == pytest.approx(row["tokens_saved"].value)
    assert row["retrieved_splits"].low == row["retrieved_splits"].high == pytest.approx(6 / 9)
    unknown = saved(priced, {"P1": [3.0]}, method="dense")
    assert (unknown["questions"], unknown["retrieved"].value) == (5, 0.4)
    assert math.isnan(unknown["tokens_saved"].value)
    assert math.isnan(unknown["tokens_saved_splits"].value)


def test_a_threshold_of_zero_never_retrieves_and_infinity_always(priced):
    never, always = (saved(priced, {"P1": [cut], "P2": [cut]}) for cut in (NEVER, ALWAYS))
    assert (never["retrieved"].value, never["cost_saved"].value) == (0.0, pytest.approx(90.0))
    assert (always["retrieved"].value, always["cost_saved"].value) == (1.0, 0.0)


def test_a_question_counts_with_the_thresholds_of_the_splits_that_hold_it_out(priced):
    """The first split holds questions 0 and 1 out and always retrieves, the second 1 and 2 and never does.

    Question 0 retrieves, 1 in half of the splits, 2 does not.
    """
    test = np.zeros((10, 2), bool)
    test[[0, 1], 0] = test[[1, 2], 1] = True
    row = saved(priced, {"P1": [ALWAYS, NEVER], "P2": [NEVER, NEVER]}, test)
    assert (row["questions"], row["retrieved"].value) == (3, 0.5)
    assert row["cost_saved"].value == pytest.approx(45.0)
    over = row["cost_saved_splits"]
    assert (over.value, over.low, over.high) == pytest.approx((45, 90 * 0.025, 90 * 0.975))


def test_a_question_at_its_threshold_does_not_retrieve(priced):
    assert saved(priced, {"P1": [1.0]})["retrieved"].value == 0
    assert saved(priced, {"P1": [1.1]})["retrieved"].value == pytest.approx(1 / 5)


def test_intervals_draw_subjects(priced):
    """Of two subjects the first always retrieves and the second never does."""
    two = replace(priced, subjects=np.where(np.arange(10) < 5, "s", "t").astype(object))
    row = saved(two, {"P1": [ALWAYS], "P2": [NEVER]})
    assert (row["retrieved"].low, row["retrieved"].high) == (0, 1)


@pytest.fixture
def tuned(tmp_path) -> tuple[accuracy.Answers, Path, dict[str, Path]]:
    """200 questions of two relations: closed-book right from the 100th on, dense below it, but for 1 in 5."""
    n = 200
    number = np.arange(n)
    noise = (np.arange(n) * 7) % 5 == 0
    relations = [f"P{i % 2}" for i in range(n)]
    answer_tables.write_questions(tmp_path / "q.parquet", [10 * (i + 1) for i in range(n)], relations)
    files = {method: tmp_path / f"{method}.parquet" for method in ("closed_book", "dense", "bm25")}
    cheap, dear = ({"prompt_tokens": [t] * n, "new_tokens": [0] * n, "lm_calls": [1] * n} for t in (10, 100))
    answer_tables.write_answers(files["closed_book"], (number >= 100) ^ noise, **cheap)
    answer_tables.write_answers(files["dense"], (number < 100) ^ noise, **dear)
    answer_tables.write_answers(files["bm25"], np.ones(n, bool), **dear)
    return accuracy.read(tmp_path / "q.parquet", files), tmp_path / "q.parquet", files


@pytest.mark.parametrize("split_by", ["subject", "question"])
def test_thresholds_are_fitted_and_judged_on_the_splits_of_the_stage_that_tunes_them(tuned, split_by):
    answers, questions, files = tuned
    chosen = adaptive_pairs.CHOSEN.model_copy(update={"split_by": split_by})
    rows = {row["method"]: row for row in savings.savings(answers, questions, files, chosen, 3, 50)}
    assert list(rows) == ["dense", "bm25"]
    for method, row in rows.items():
        of_method = pairs.read_pairs(questions, files["closed_book"], files[method], chosen.cost)
        expected = tune_thresholds.evaluate(of_method, chosen, 3, 50).figures[chosen.search]["retrieved"]
        for end in ("value", "low", "high"):
            assert getattr(row["retrieved"], end) == pytest.approx(expected[end]), (method, end)
        assert row["retrieved_splits"].value == pytest.approx(expected["mean_over_splits"]), method
        assert row["retrieved_splits"].low == pytest.approx(expected["splits_low"]), method
    assert 0.3 < rows["dense"]["retrieved"].value < 0.7
    assert rows["bm25"]["retrieved"].value > rows["dense"]["retrieved"].value
    share = rows["dense"]["retrieved"].value
    assert rows["dense"]["tokens_saved"].value == pytest.approx(90 * (1 - share))


def test_few_questions_have_no_thresholds_and_so_no_savings(tuned):
    answers, questions, files = tuned
    few = adaptive_pairs.CHOSEN.model_copy(update={"min_questions": 101})
    assert savings.savings(answers, questions, files, few, 0, 10) == []
    alone = {"dense": files["dense"]}
    assert savings.savings(accuracy.read(questions, alone), questions, alone, adaptive_pairs.CHOSEN, 0, 10) == []
