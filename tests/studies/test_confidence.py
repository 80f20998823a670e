"""Calibration and coverage of closed-book answers are as they are defined."""

from types import SimpleNamespace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, write_answers, write_questions
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.studies import confidence


def made(n=400, seed=0, overconfident=0.0, levels=None):
    """Answers of three a subject, right as often as they say, less `overconfident`."""
    rng = np.random.default_rng(seed)
    said = rng.random(n) if levels is None else rng.integers(0, levels, n) / levels
    right = rng.random(n) < np.clip(said - overconfident, 0, 1)
    ids = np.array([f"q{i:04d}" for i in range(n)], object)
    return confidence.Answers(ids, np.array([f"s{i // 3}" for i in range(n)], object), said, right)


def bins_by_hand(said, ids):
    return np.array_split(sorted(range(len(said)), key=lambda i: (said[i], ids[i])), 10)


@given(st.integers(10, 40), st.integers(0, 99), st.sampled_from([None, 2, 5]))
@settings(max_examples=30)
def test_the_calibration_error_is_its_definition(n, seed, levels):
    answers = made(n, seed, levels=levels)
    said, right = answers.confidence, answers.right
    rows, error = confidence.reliability_of(answers, 0, 20)
    by_hand = [(len(b), np.mean(said[b]), np.mean(right[b])) for b in bins_by_hand(said, answers.ids)]
    found = [(row["questions"], row["confidence"], row["accuracy"]) for row in rows]
    np.testing.assert_allclose(found, by_hand)
    assert error.value == pytest.approx(sum(count * abs(mean - right) for count, mean, right in by_hand) / n)


def test_what_says_too_much_is_found_out():
    honest, boasting = (confidence.evaluate(made(1500, 3, far), CHOSEN, 0, 200)[0] for far in (0.0, 0.3))
    assert boasting["ece"]["low"] > 0.2 > 0.06 > honest["ece"]["value"]
    assert honest["ece"]["low"] <= honest["ece"]["value"] <= honest["ece"]["high"]


@pytest.mark.parametrize("levels", [None, 4])
def test_coverage_is_the_accuracy_of_the_most_confident(levels):
    answers = made(100, levels=levels)
    rows = confidence.coverage(answers)
    assert len(rows) == 20
    for asked, row in zip(confidence.COVERAGES, rows, strict=True):
        least = sorted(answers.confidence, reverse=True)[round(asked * 100) - 1]
        answered = answers.confidence >= least
        assert (row["least_confidence"], row["questions"]) == (least, answered.sum())
        assert row["coverage"] == pytest.approx(answered.mean())
        assert row["coverage"] >= asked - 1e-12
        assert row["accuracy"] == pytest.approx(answers.right[answered].mean())
    assert rows[-1]["accuracy"] == answers.right.mean()


def test_answers_are_read_with_their_probability_and_those_without_are_left_out(tmp_path):
    ids = ["q0", "q1", "q2", "q3"]
    questions = write_questions(tmp_path / "q.parquet", ids, [1, None, 3, 4])
    file = write_answers(
        tmp_path / "c.parquet", ids[::-1], [True, False, True, False], mean_log_prob=[None, -np.inf, -1.0, 0.0]
    )
    answers = confidence.read_confidence(questions, file)
    assert answers.ids.tolist() == ["q0", "q1", "q2"]  # of any popularity
    assert answers.confidence.tolist() == pytest.approx([1.0, np.exp(-1), 0.0])
    assert answers.right.tolist() == [False, True, False]
    assert confidence.evaluate(answers, CHOSEN, 0, 10) == ({}, {})


def test_the_report_has_no_accuracy_for_a_language_model_of_an_earlier_run():
    """Its metrics may lie beside this run's, and its coverage is not in this run's tables."""
    (entry,) = confidence.report_entries()
    (table,) = (part for part in entry.parts if getattr(part, "name", None) == "confidence")
    said = {"confidence": {"questions": 9, "ece": {"value": 0.1, "low": 0.0, "high": 0.2}}}
    covered = [
        {"dataset": "popqa", "lm": "now", "coverage": share, "accuracy": right}
        for share, right in ((0.2, 0.9), (1, 0.4))
    ]
    inputs = SimpleNamespace(metrics={"adaptive": {"popqa": {"before": said, "now": said}}})
    inputs.main, inputs.sizes, inputs.tables = "now", {}, {"coverage": covered}
    rows = [[row[name] for name in ("lm", "accuracy_20%", "accuracy_50%")] for row in table.rows(inputs)]
    np.testing.assert_equal(rows, [["now", 0.9, 0.4], ["before", np.nan, np.nan]])
