"""The language model's own doubt decides, beside the popularity rule."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, resampled, splits, summary

from pipelines.adaptive import tune_thresholds

ENDS = ("value", "low", "high")


def uncertainty(pairs, chosen=CHOSEN, resamples=50):
    return tune_thresholds.uncertainty(
        pairs, splits(pairs), resampled(pairs, chosen, resamples), chosen
    )


def test_the_signal_that_knows_decides_better():
    rng = np.random.default_rng(1)
    blind = uncertainty(made_pairs(confidence=rng.random(600)), CHOSEN, 200)["uncertainty"]
    assert blind["difference"]["high"] < -0.05
    assert blind["popularity"]["value"] > blind["uncertainty"]["value"]
    seeing = uncertainty(made_pairs(signal=rng.integers(1, 99, 600).astype(float)), CHOSEN, 200)[
        "uncertainty"
    ]
    assert seeing["difference"]["low"] > 0.05
    assert seeing["questions"] == 600


def test_each_signal_decides_there_as_it_does_alone():
    rng = np.random.default_rng(2)
    pairs = made_pairs()
    pairs = replace(pairs, confidence=pairs.signal * np.exp(rng.normal(0, 1, 600)) / 1e9)
    figures = uncertainty(pairs)["uncertainty"]
    for name, signal in (("popularity", pairs.signal), ("uncertainty", pairs.confidence)):
        own = replace(pairs, signal=signal).take(np.lexsort((signal, pairs.relations)))
        alone = summary(own, resamples=50)
        for key, other in (
            (name, "adaptive"),
            (f"retrieved_{name}", "retrieved"),
            ("always", "always"),
        ):
            assert figures[key] == pytest.approx({end: alone[other][end] for end in ENDS})


def test_answers_without_probabilities_are_left_out():
    half = np.where(np.arange(600) < 300, np.nan, 0.5)
    assert uncertainty(made_pairs(confidence=half), CHOSEN, 10)["uncertainty"]["questions"] == 300
    assert uncertainty(made_pairs(confidence=np.full(600, np.nan)), CHOSEN, 10) == {}
