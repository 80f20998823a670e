"""Dearer retrieving is done less, and the better of two signals decides better."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, resampled, splits, summary

from pipelines.adaptive import alternatives

ENDS = ("value", "low", "high")


def curve(pairs):
    return alternatives.cost_curve(pairs, splits(pairs), resampled(pairs), CHOSEN)


def uncertainty(pairs, chosen=CHOSEN, resamples=50):
    drawn = resampled(pairs, chosen, resamples)
    return alternatives.uncertainty(pairs, splits(pairs), drawn, chosen, 0, resamples)


def test_the_dearer_retrieving_is_the_less_it_is_done():
    """A price is what one retrieval, which costs 3 units more here, must earn."""
    pairs = made_pairs()
    rows = {row["price"]: row for row in curve(pairs)}
    assert [*rows] == list(alternatives.PRICES)
    shares = [row["retrieved"] for row in rows.values()]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.0 < 0.4 < shares[0]
    assert rows[0.0]["adaptive"] > rows[1.0]["adaptive"] == pytest.approx(pairs.closed.mean(), abs=0.02)
    for price, row in rows.items():
        assert row["cost_weight"] == pytest.approx(price / 3)
        assert row["cost"] == pytest.approx(1 + 3 * row["retrieved"])  # units of cost a question
        assert row["cost_low"] <= row["cost"] <= row["cost_high"]
    for price in (0.0, 0.3):
        judged = summary(pairs, chosen=CHOSEN.model_copy(update={"cost_weight": price / 3}))
        for name in ("adaptive", "retrieved"):
            found = [rows[price][name + end] for end in ("", "_low", "_high")]
            assert found == pytest.approx([judged[name][end] for end in ENDS])


def test_without_costs_there_is_no_curve():
    for cost in (np.nan, 1.0):
        assert curve(made_pairs(100, augmented_cost=np.full(100, cost))) == []


def test_the_signal_that_knows_decides_better_and_asking_the_model_first_is_paid_for():
    rng = np.random.default_rng(1)
    blind = uncertainty(made_pairs(confidence=rng.random(600)), CHOSEN, 200)["uncertainty"]
    assert blind["difference"]["high"] < -0.05
    assert blind["popularity"]["value"] > blind["both"]["value"] > blind["uncertainty"]["value"]
    for name, extra in (("popularity", 3), ("uncertainty", 4), ("both", 4)):
        assert blind[f"cost_{name}"]["value"] == pytest.approx(1 + extra * blind[f"retrieved_{name}"]["value"])
    seeing = uncertainty(made_pairs(popularity=rng.integers(1, 99, 600).astype(float)), CHOSEN, 200)["uncertainty"]
    assert seeing["difference"]["low"] > 0.05
    assert seeing["questions"] == 600


@pytest.mark.parametrize("weight", [0.0, 0.12])
def test_each_signal_decides_there_as_it_does_alone(weight):
    rng = np.random.default_rng(2)
    pairs = made_pairs(closed_cost=3 * rng.random(600))
    pairs = replace(pairs, confidence=pairs.popularity * np.exp(rng.normal(0, 1, 600)) / 1e9)
    chosen = CHOSEN.model_copy(update={"cost_weight": weight})
    figures = uncertainty(pairs, chosen)["uncertainty"]
    for name, signal, spared in (
        ("popularity", pairs.popularity, pairs.closed_cost),
        ("uncertainty", pairs.confidence, np.zeros(600)),  # retrieving spares no closed-book answer
    ):
        own = replace(pairs, signal=signal, closed_cost=spared).take(np.lexsort((signal, pairs.relations)))
        alone = summary(own, chosen=chosen, resamples=50)
        for key, other in ((name, "adaptive"), (f"retrieved_{name}", "retrieved"), ("always", "always")):
            assert figures[key] == pytest.approx({end: alone[other][end] for end in ENDS})


def test_answers_without_probabilities_are_left_out_and_too_few_compared_not_at_all():
    half = np.where(np.arange(600) < 300, np.nan, 0.5)
    assert uncertainty(made_pairs(confidence=half), CHOSEN, 10)["uncertainty"]["questions"] == 300
    assert uncertainty(made_pairs(confidence=np.full(600, np.nan)), CHOSEN, 10) == {}


def test_both_count_alike_within_a_relation():
    columns = {"popularity": np.array([1, 10, 100, 1000.0]), "confidence": np.array([0.8, 0.4, 0.2, 0.1])}
    pairs = made_pairs(4, relations=np.array(["P1"] * 4, dtype=object), **columns)
    assert alternatives.both(pairs) == pytest.approx([1, 1, 1, 1])  # one rises as the other falls
