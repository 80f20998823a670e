"""The area under accuracy by the share of the questions that retrieve."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs

from pipelines.adaptive import tuning
from pipelines.foreign import deciders
from pipelines.foreign.deciders import area


def test_the_area_by_hand_on_five_questions():
    """Two of five are right without retrieval; retrieving gains the two of which the signal is
    surest, then loses one.

    Accuracies after 0 to 5 retrievals: 2/5, 3/5, 4/5, 3/5, 3/5, 3/5; the area is that of five
    trapezoids.
    """
    right, gains = np.array([0, 1, 0, 1, 0], bool), np.array([1, 0, 1, -1, 0])
    signal = np.array([5.0, 2.0, 4.0, 3.0, 1.0])
    expected = (0.5 + 0.7 + 0.7 + 0.6 + 0.6) / 5
    assert area(signal, right, gains, np.ones(5)) == pytest.approx(expected)
    straight = area(np.zeros(5), right, gains, np.ones(5))  # there is no order
    assert straight == pytest.approx(0.5)
    twice = np.array([1, 1, 2, 1, 0], np.int8)  # how often a resample has each
    again = np.repeat(np.arange(5), twice)
    expected = area(signal[again], right[again], gains[again], np.ones(5))
    assert area(signal, right, gains, twice) == pytest.approx(expected)


def test_shifted_thresholds_are_worth_more_than_one_threshold():
    pairs = made_pairs(400)
    # a relation of its own
    pairs = replace(pairs, signal=pairs.signal * np.where(pairs.relations == "P1", 1000, 1))
    tuned = tuning.tune_pairs(pairs, CHOSEN, 0, 40, ("shrunk",))
    held = np.isfinite(tuned.fitted.policy.retrieved)
    by_popularity = area(-pairs.signal, pairs.right_above, pairs.gains, held)
    assert deciders.areas_of_thresholds(tuned)[0] > by_popularity + 0.02
