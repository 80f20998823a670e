"""The calibration of closed-book answers is as it is defined."""

import numpy as np
import pytest
from adaptive_pairs import write_answers, write_questions
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
    rows, error = confidence.reliability(answers, 0, 20)
    by_hand = [(len(b), np.mean(said[b]), np.mean(right[b])) for b in bins_by_hand(said, answers.ids)]
    found = [(row["questions"], row["confidence"], row["accuracy"]) for row in rows]
    np.testing.assert_allclose(found, by_hand)
    assert error.value == pytest.approx(sum(count * abs(mean - right) for count, mean, right in by_hand) / n)


def test_what_says_too_much_is_found_out():
    honest, boasting = (confidence.reliability(made(1500, 3, far), 0, 200)[1] for far in (0.0, 0.3))
    assert boasting.low > 0.2 > 0.06 > honest.value
    assert honest.low <= honest.value <= honest.high


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
