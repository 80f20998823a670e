"""Dearer retrieving is done less, and the better of two signals decides better."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, resampled, summary

from pipelines.adaptive import alternatives, held_out


def splits(pairs):
    return held_out.split_train(0, pairs.subjects, CHOSEN.splits, CHOSEN.train_share)


def curve(pairs):
    return alternatives.cost_curve(pairs, splits(pairs), resampled(pairs), CHOSEN)


def uncertainty(pairs, chosen=CHOSEN, resamples=50):
    drawn = resampled(pairs, chosen, resamples)
    return alternatives.uncertainty(pairs, splits(pairs), drawn, chosen, 0, resamples)


def test_the_dearer_retrieving_is_the_less_it_is_done():
    pairs = made_pairs()
    rows = curve(pairs)
    assert [row["price"] for row in rows] == list(alternatives.PRICES)
    shares = [row["retrieved"] for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.0 < 0.4 < shares[0]
    assert rows[0]["adaptive"] > rows[-1]["adaptive"] == pytest.approx(pairs.closed.mean(), abs=0.02)
    for row in rows:
        assert row["cost_weight"] == pytest.approx(row["price"] / 3)
        assert row["cost"] == pytest.approx(1 + 3 * row["retrieved"])  # units of cost a question
        assert row["cost_low"] <= row["cost"] <= row["cost_high"]
    plain = summary(pairs)
    for name in ("adaptive", "retrieved"):
        assert [rows[0][name + end] for end in ("", "_low", "_high")] == pytest.approx(
            [plain[name][end] for end in ("value", "low", "high")]
        )


def test_without_costs_there_is_no_curve():
    for cost in (np.nan, 1.0):
        pairs = made_pairs(100, augmented_cost=np.full(100, cost))
        assert curve(pairs) == []


def test_a_price_is_what_one_retrieval_must_earn():
    pairs = made_pairs()  # retrieving costs 3 units more
    (row,) = [row for row in curve(pairs) if row["price"] == 0.3]
    judged = summary(pairs, chosen=CHOSEN.model_copy(update={"cost_weight": 0.1}))
    assert row["cost_weight"] == pytest.approx(0.1)
    assert (row["adaptive"], row["retrieved"]) == pytest.approx(
        (judged["adaptive"]["value"], judged["retrieved"]["value"])
    )


def test_the_signal_that_knows_decides_better():
    rng = np.random.default_rng(1)
    blind = made_pairs(confidence=rng.random(600))
    figures = uncertainty(blind, CHOSEN, 200)["uncertainty"]
    assert figures["difference"]["high"] < -0.05
    assert figures["popularity"]["value"] > figures["both"]["value"] > figures["uncertainty"]["value"]
    seeing = made_pairs(popularity=rng.integers(1, 99, 600).astype(float))
    figures = uncertainty(seeing, CHOSEN, 200)["uncertainty"]
    assert figures["difference"]["low"] > 0.05
    assert figures["questions"] == 600


@pytest.mark.parametrize("weight", [0.0, 0.12])
def test_each_signal_decides_there_as_it_does_alone(weight):
    rng = np.random.default_rng(2)
    pairs = made_pairs(closed_cost=3 * rng.random(600))
    pairs = replace(pairs, confidence=pairs.popularity * np.exp(rng.normal(0, 1, 600)) / 1e9)
    chosen = CHOSEN.model_copy(update={"cost_weight": weight})
    figures = uncertainty(pairs, chosen, 50)["uncertainty"]
    for name, signal, spared in (
        ("popularity", pairs.popularity, pairs.closed_cost),
        ("uncertainty", pairs.confidence, np.zeros(600)),  # retrieving spares no closed-book answer
    ):
        own = replace(pairs, signal=signal, closed_cost=spared).take(np.lexsort((signal, pairs.relations)))
        alone = summary(own, chosen=chosen, resamples=50)
        for key, other in ((name, "adaptive"), (f"retrieved_{name}", "retrieved"), ("always", "always")):
            assert figures[key] == pytest.approx({end: alone[other][end] for end in ("value", "low", "high")})


def test_asking_the_model_first_is_paid_for():
    pairs = made_pairs()
    figures = uncertainty(pairs, CHOSEN, 50)["uncertainty"]
    assert figures["cost_popularity"]["value"] == pytest.approx(1 + 3 * figures["retrieved_popularity"]["value"])
    for name in ("uncertainty", "both"):
        assert figures[f"cost_{name}"]["value"] == pytest.approx(1 + 4 * figures[f"retrieved_{name}"]["value"])


def test_answers_without_probabilities_are_left_out_and_too_few_compared_not_at_all():
    confidence = np.where(np.arange(600) < 300, np.nan, 0.5)
    pairs = made_pairs(confidence=confidence)
    assert uncertainty(pairs, CHOSEN, 10)["uncertainty"]["questions"] == 300
    unknown = made_pairs(confidence=np.full(600, np.nan))
    assert uncertainty(unknown, CHOSEN, 10) == {}


def test_both_count_alike_within_a_relation():
    pairs = made_pairs(
        4,
        relations=np.array(["P1"] * 4, dtype=object),
        popularity=np.array([1, 10, 100, 1000.0]),
        confidence=np.array([0.8, 0.4, 0.2, 0.1]),
    )
    assert alternatives.both(pairs) == pytest.approx([1, 1, 1, 1])  # one rises as the other falls
