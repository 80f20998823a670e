"""What answers cost, and what thresholds save where they were not fitted, on small tables worked
out by hand."""

import math
from dataclasses import replace
from pathlib import Path

import adaptive_pairs
import answer_tables
import numpy as np
import pytest

from pipelines.adaptive import held_out, pairs, refits, tune_thresholds
from pipelines.evaluation import answer_sets, savings

ALL_RIGHT = np.ones(10, bool)
ALWAYS, NEVER = math.inf, 0.0
EVERY = np.ones((10, 1), bool)


@pytest.fixture
def priced(tmp_path) -> answer_sets.Answers:
    """Ten questions of two relations, popularity 1 to 9 and unknown; GenRead asks twice and costs
    ten times as much."""
    relations = ["P1"] * 5 + ["P2"] * 5
    answer_tables.write_questions(tmp_path / "questions.parquet", [*range(1, 10), None], relations)
    files: dict[str, Path] = {
        m: tmp_path / f"{m}.parquet" for m in ("closed_book", "genread", "dense")
    }
    for method, of_question in (("closed_book", (8, 2, 1, 0.1)), ("genread", (80, 20, 2, 1.0))):
        names = ("prompt_tokens", "new_tokens", "lm_calls", "cost")
        spent = {name: [value] * 10 for name, value in zip(names, of_question, strict=True)}
        answer_tables.write_answers(files[method], ALL_RIGHT, **spent)
    answer_tables.write_answers(files["dense"], ALL_RIGHT)
    return answer_sets.read_answered(tmp_path / "questions.parquet", files, seed=0, resamples=50)


def saved(
    answers: answer_sets.Answers,
    cuts: dict[str, list[float]],
    test: np.ndarray = EVERY,
    method: str = "genread",
):
    """By thresholds that are the same whatever they are fitted to."""
    splits = {relation: np.array(of) for relation, of in cuts.items()}
    whole = {relation: np.full(100, of[0]) for relation, of in cuts.items()}
    rows = np.flatnonzero(np.isfinite(answers.popularity) & np.isin(answers.relations, [*cuts]))
    rows = rows[np.lexsort((answers.popularity[rows], answers.relations[rows].astype(str)))]
    answers, nothing = answers.take(rows), np.full(len(rows), np.nan)
    columns = answers.ids, answers.subjects, answers.relations, answers.popularity, nothing
    right = [answers.by_method[name].correct == 1 for name in ("closed_book", method)]
    asked = pairs.Pairs(*columns, *right)
    drawn = refits.resample(
        answers.subjects.astype(str), answers.subjects.astype(str), 0.75, 0, 100
    )
    spent = savings.spent(answers, method)
    retrieves = held_out.below(asked, splits) & test[rows]
    with np.errstate(invalid="ignore"):
        retrieved = retrieves.sum(axis=1) / test[rows].sum(axis=1)
    decisions = held_out.below(asked, whole)
    policy = refits.make_policy(retrieved, drawn, decisions, [decisions] * 4)
    return savings.saved(spent, policy, drawn)


def test_costs_are_means_of_a_question(priced):
    closed, genread, dense = savings.costs(priced)
    assert [genread[name] for name in ("calls", "prompt_tokens", "new_tokens")] == [2.0, 80.0, 20.0]
    assert (closed["cost_per_1000"], genread["cost_per_1000"]) == (pytest.approx(100), 1000)
    assert math.isnan(dense["calls"])


def test_what_thresholds_save(priced):
    """P1 retrieves below 3 (2 of 5), P2 always (4, its fifth has no popularity): 6 of 9
    retrieve."""
    row = saved(priced, {"P1": [3.0], "P2": [ALWAYS]})
    assert (row["questions"], row["retrieved"].value) == (9, pytest.approx(6 / 9))
    assert row["tokens_saved"].value == pytest.approx(100 * (1 - (6 * 100 + 3 * 10) / 900))
    assert row["calls_saved"].value == pytest.approx(100 * (1 - (6 * 2 + 3) / 18))
    assert row["cost_saved"].value == pytest.approx(30.0)
    assert row["tokens_saved"].low < row["tokens_saved"].value < row["tokens_saved"].high
    unknown = saved(priced, {"P1": [3.0]}, method="dense")
    assert (unknown["questions"], unknown["retrieved"].value) == (5, 0.4)
    assert math.isnan(unknown["tokens_saved"].value)
    # a threshold of zero never retrieves, one of infinity always, and a question at its threshold
    # does not
    for cut, share, saving in ((NEVER, 0, 90), (ALWAYS, 1, 0)):
        row = saved(priced, {"P1": [cut], "P2": [cut]})
        assert (row["retrieved"].value, row["cost_saved"].value) == (share, pytest.approx(saving))
    assert [saved(priced, {"P1": [cut]})["retrieved"].value for cut in (1.0, 1.1)] == [
        0,
        pytest.approx(1 / 5),
    ]


def test_a_question_counts_with_held_out_thresholds(priced):
    """The first split holds questions 0 and 1 out and always retrieves, the second 1 and 2 and
    never does.

    Question 0 retrieves, 1 in half of the splits, 2 does not.
    """
    test = np.zeros((10, 2), bool)
    test[[0, 1], 0] = test[[1, 2], 1] = True
    row = saved(priced, {"P1": [ALWAYS, NEVER], "P2": [NEVER, NEVER]}, test)
    assert (row["questions"], row["retrieved"].value) == (3, 0.5)
    assert row["cost_saved"].value == pytest.approx(45.0)
    # of two subjects the first always retrieves and the second never does: intervals draw subjects
    two = replace(priced, subjects=np.where(np.arange(10) < 5, "s", "t").astype(object))
    retrieved = saved(two, {"P1": [ALWAYS], "P2": [NEVER]})["retrieved"]
    assert (retrieved.low, retrieved.high) == (0, 1)


def test_thresholds_are_judged_on_the_tuning_stages_splits(tmp_path):
    """200 questions of two relations: closed-book right from the 100th on, dense below it, but for
    1 in 5."""
    n, questions = 200, tmp_path / "q.parquet"
    number = np.arange(n)
    noise = number * 7 % 5 == 0
    answer_tables.write_questions(
        questions, [10 * (i + 1) for i in range(n)], [f"P{i % 2}" for i in range(n)]
    )
    files = {method: tmp_path / f"{method}.parquet" for method in ("closed_book", "dense", "bm25")}
    cheap, dear = (
        {"prompt_tokens": [t] * n, "new_tokens": [0] * n, "lm_calls": [1] * n} for t in (10, 100)
    )
    answer_tables.write_answers(files["closed_book"], (number >= 100) ^ noise, **cheap)
    answer_tables.write_answers(files["dense"], (number < 100) ^ noise, **dear)
    answer_tables.write_answers(files["bm25"], np.ones(n, bool), **dear)
    answers = answer_sets.read_answered(questions, files, seed=3, resamples=50)
    for split_by in ("subject", "question"):
        chosen = adaptive_pairs.CHOSEN.model_copy(update={"split_by": split_by})
        rows = {row["method"]: row for row in savings.savings(answers, questions, files, chosen)}
        assert list(rows) == ["dense", "bm25"]
        for method, row in rows.items():
            of_method = pairs.read_pairs(questions, files["closed_book"], files[method])
            expected = tune_thresholds.evaluate_thresholds(of_method, chosen, 3, 50).figures[
                chosen.search
            ]["retrieved"]
            for end in ("value", "low", "high"):
                assert getattr(row["retrieved"], end) == pytest.approx(expected[end]), (method, end)
        share = rows["dense"]["retrieved"].value
        assert 0.3 < share < 0.7
        assert rows["bm25"]["retrieved"].value > share
        assert rows["dense"]["tokens_saved"].value == pytest.approx(90 * (1 - share))
        for row in rows.values():
            assert 0 <= row["tokens_saved"].low <= row["tokens_saved"].high <= 90
    # few questions have no thresholds, and so no savings
    few = adaptive_pairs.CHOSEN.model_copy(update={"min_questions": 101})
    assert savings.savings(answers, questions, files, few) == []
    alone = {"dense": files["dense"]}
    answered = answer_sets.read_answered(questions, alone, seed=0, resamples=10)
    assert savings.savings(answered, questions, alone, adaptive_pairs.CHOSEN) == []
