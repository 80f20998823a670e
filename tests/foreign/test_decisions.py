"""Accuracy by the share of the questions that retrieve, and the area under it."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs

from pipelines.adaptive import tuning
from pipelines.foreign import deciders
from pipelines.foreign.deciders import BUDGETS, curve


def test_the_curve_and_its_area_by_hand_on_five_questions():
    """Two of five are right without retrieval; retrieving gains the two of which the signal is
    surest, then loses one.

    Accuracies after 0 to 5 retrievals: 2/5, 3/5, 4/5, 3/5, 3/5, 3/5; the area is that of five
    trapezoids.
    """
    right, gains = np.array([0, 1, 0, 1, 0], bool), np.array([1, 0, 1, -1, 0])
    signal = np.array([5.0, 2.0, 4.0, 3.0, 1.0])
    *accuracies, area = curve(signal, right, gains, np.ones(5))
    np.testing.assert_allclose(
        accuracies[::10], [0.4, 0.5, 0.6, 0.7, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6]
    )
    assert area == pytest.approx((0.5 + 0.7 + 0.7 + 0.6 + 0.6) / 5)
    assert curve(np.zeros(5), right, gains, np.ones(5))[-1] == pytest.approx(
        0.5
    )  # no order: a straight line
    twice = np.array([1, 1, 2, 1, 0], np.int8)  # how often a resample has each
    again = np.repeat(np.arange(5), twice)
    expected = curve(signal[again], right[again], gains[again], np.ones(5))
    np.testing.assert_allclose(curve(signal, right, gains, twice), expected)


def test_shifted_thresholds_go_through_never_and_always():
    pairs = made_pairs(400)
    pairs = replace(
        pairs, signal=pairs.signal * np.where(pairs.relations == "P1", 1000, 1)
    )  # a relation of its own
    tuned = tuning.tune_pairs(pairs, CHOSEN, 0, 40, ("shrunk",))
    found = deciders.curves_of_thresholds(tuned)[:, 0]
    held = np.isfinite(tuned.fitted.policy.retrieved)
    assert found[[0, -2]] == pytest.approx(
        [pairs.right_above[held].mean(), pairs.right_below[held].mean()]
    )
    figures = tuned.figures["shrunk"]
    at_its_share = np.interp(figures["retrieved"]["value"], BUDGETS, found[:-1])
    assert at_its_share == pytest.approx(figures["adaptive"]["value"], abs=0.005)
    by_popularity = curve(-pairs.signal, pairs.right_above, pairs.gains, held)[-1]
    assert found[-1] > by_popularity + 0.02
