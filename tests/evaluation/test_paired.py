"""Methods and language models compared question by question, on small tables worked out by hand."""

import math
from pathlib import Path

import answer_tables
import numpy as np
import pytest
from scipy.stats import binomtest

from pipelines import intervals
from pipelines.evaluation import answer_sets, paired

N = 20
NUMBER = np.arange(N)


def read(folder: Path, asked: np.ndarray, **right: np.ndarray) -> answer_sets.Answers:
    """One model's answers to the questions `asked` of 20, right where each method's array (20,)
    says."""
    questions = folder.parent / "questions.parquet"
    answer_tables.write_questions(
        questions, [10 * (i + 1) for i in range(N)], [f"P{i % 3}" for i in range(N)]
    )
    files = {}
    for method, correct in right.items():
        files[method] = folder / f"{method}.parquet"
        rows = {"question_id": [f"q{i:03}" for i in asked], "doc_has_answer": NUMBER[asked] < 8}
        answer_tables.write_answers(files[method], correct[asked], **rows)
    return answer_sets.read_answered(questions, files, seed=0, resamples=100)


@pytest.fixture
def models(tmp_path) -> dict[str, answer_sets.Answers]:
    """tiny was asked all but the last four, big all but the first four.

    On the 12 questions that both were asked, 4 to 15, tiny is right on 4, 5 and 6, big on 6 to 11.
    """
    dense = (NUMBER < 4) | (NUMBER > 6)
    tiny = read(
        tmp_path / "tiny", NUMBER[:16], closed_book=NUMBER < 7, bm25=NUMBER < 10, dense=dense
    )
    big = read(
        tmp_path / "big", NUMBER[4:], closed_book=(NUMBER > 5) & (NUMBER < 12), dense=NUMBER < 9
    )
    return {"tiny": tiny, "big": big}


def test_methods_of_one_model_are_compared(models):
    rows = [row for row in paired.comparisons(models) if row["lm"] == row["against_lm"] == "tiny"]
    named = [("bm25", "closed_book"), ("dense", "closed_book"), ("dense", "bm25")]
    assert [(row["method"], row["against"]) for row in rows] == named
    dense = rows[1]
    # 7 to 15; 4 to 6
    assert (dense["questions"], dense["only_this"], dense["only_that"]) == (16, 9, 3)
    assert dense["gain"].value == dense["gain_word"].value == pytest.approx(6 / 16)
    assert dense["gain"].low < 6 / 16 < dense["gain"].high
    assert dense["p"] == pytest.approx(binomtest(3, 12).pvalue)


def test_models_are_compared_by_the_same_method(models):
    def of(lm, models):
        return [row for row in paired.comparisons(models) if row["lm"] == lm != row["against_lm"]]

    closed, dense = of("big", models)
    for row, method in ((closed, "closed_book"), (dense, "dense")):
        expected = ("tiny", method, method, 12)
        assert (row["against_lm"], row["method"], row["against"], row["questions"]) == expected
    assert (closed["only_this"], closed["only_that"]) == (5, 2)  # 7 to 11; 4 and 5
    assert closed["gain"].value == pytest.approx(3 / 12), "each alone: 6/16 less 7/16"
    assert closed["recall_gain"].value == 0
    assert closed["p"] == pytest.approx(binomtest(2, 7).pvalue)
    back = of("tiny", dict(reversed(models.items())))[1]
    assert (back["only_this"], back["only_that"]) == (7, 3)  # 9 to 15; 4 to 6
    assert back["gain"].value == -dense["gain"].value == pytest.approx(4 / 12)
    assert back["p"] == dense["p"]


def test_answers_are_paired_by_question(models, tmp_path):
    first, second = paired.in_common(list(models.values()))
    assert first.ids.tolist() == second.ids.tolist() == [f"q{i:03}" for i in range(4, 16)]
    assert first.popularity.tolist() == [10 * (i + 1) for i in range(4, 16)]
    assert first.by_method["closed_book"].correct.tolist() == [1] * 3 + [0] * 9
    assert second.by_method["closed_book"].correct.tolist() == [0] * 2 + [1] * 6 + [0] * 4
    third = read(tmp_path / "third", NUMBER[[2, 5, 15, 18]], closed_book=NUMBER > 5)
    common = paired.in_common([*models.values(), third])
    assert {tuple(answers.ids) for answers in common} == {("q005", "q015")}
    rows = [row for row in paired.comparisons(models | {"third": third}) if row["lm"] == "third"]
    assert [(row["against_lm"], row["questions"]) for row in rows] == [("tiny", 3), ("big", 3)]
    apart = {
        "third": third,
        "fourth": read(tmp_path / "fourth", NUMBER[6:9], closed_book=NUMBER > 5),
    }
    (row,) = paired.comparisons(apart)
    assert (row["questions"], row["only_this"], row["only_that"]) == (0, 0, 0)
    assert math.isnan(row["gain"].value)
    assert (row["p"], intervals.mcnemar(7, 7)) == (1, 1)
