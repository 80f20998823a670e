"""The learned gate: the regression's minimum, what it reads, and the popularity rule on the same held-out questions."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, judged, made_pairs, splits, summary
from scipy.optimize import minimize

from pipelines.adaptive import gate, refits


def evaluate(pairs, resamples):
    return gate.evaluate(pairs, judged(pairs.known()), CHOSEN, 0, resamples)


def test_the_weights_are_the_minimum():
    rng = np.random.default_rng(0)
    x = np.hstack([np.ones((80, 1)), rng.normal(size=(80, 3)), rng.random((80, 1)) < 0.1])
    y, counts = rng.random(80) < 1 / (1 + np.exp(-2 * x[:, 1])), rng.integers(1, 4, 80)

    def loss(w):
        signs = np.where(y, -1, 1)
        return (counts * np.log1p(np.exp(signs * (x @ w)))).sum() + 0.5 * gate.PENALTY * (w[1:] ** 2).sum()

    assert gate.fit(x, y, counts) == pytest.approx(minimize(loss, np.zeros(5), tol=1e-12).x, abs=1e-4)


def test_the_gate_reads_the_margin_where_popularity_says_nothing():
    rng = np.random.default_rng(0)
    margin = rng.random(600)
    pairs = made_pairs(closed=margin < 0.5, augmented=margin >= 0.5, margin=margin, confidence=rng.random(600))
    figures = evaluate(pairs, 100)
    assert figures["gate"]["value"] > 0.95
    assert figures["difference"]["low"] > 0.3
    assert figures["difference"]["splits_low"] > 0.2
    assert figures["retrieved_gate"]["value"] == pytest.approx((margin >= 0.5).mean(), abs=0.05)


def test_the_rule_is_judged_as_it_is_alone_and_the_difference_is_of_the_same_questions():
    pairs = made_pairs()
    figures, alone = evaluate(pairs, 100), summary(pairs, resamples=refits.FEWEST)
    assert figures["popularity"] == pytest.approx({end: alone["adaptive"][end] for end in ("value", "low", "high")})
    assert figures["retrieved_popularity"]["value"] == pytest.approx(alone["retrieved"]["value"])
    train = splits(pairs)
    right = np.where(gate.decide(pairs, train), pairs.augmented[:, None], pairs.closed[:, None])
    held = [right[i, ~train[i]].mean() for i in range(600) if not train[i].all()]
    assert figures["gate"]["value"] == pytest.approx(np.mean(held))
    assert figures["difference"]["value"] == pytest.approx(np.mean(held) - figures["popularity"]["value"])
    assert figures["gate"]["value"] > 0.7  # popularity and log-probability say it all here


def test_of_very_many_questions_some_are_drawn(monkeypatch):
    monkeypatch.setattr(gate, "MOST", 200)
    figures = evaluate(made_pairs(), 40)
    assert figures["questions"] == 200
    assert figures["gate"]["value"] > 0.6


def test_the_gate_of_a_split_does_not_see_what_it_is_judged_on():
    pairs = made_pairs(300)
    train = splits(pairs)
    decisions = gate.decide(pairs, train)
    for split in range(3):
        held = ~train[:, split]
        closed = np.where(held, pairs.augmented, pairs.closed)
        augmented = np.where(held, pairs.closed, pairs.augmented)
        swapped = gate.decide(replace(pairs, closed=closed, augmented=augmented), train)
        assert (swapped[:, split] == decisions[:, split]).all()
    assert (gate.decide(replace(pairs, closed=pairs.augmented, augmented=pairs.closed), train) != decisions).any()


def test_questions_of_unknown_popularity_retrieve_by_the_rule_and_are_learnt_from():
    unknown = np.arange(600) % 4 == 0
    popularity = np.where(unknown, np.nan, 500.0)
    signals = {"signal": popularity, "popularity": popularity, "confidence": np.full(600, 0.5)}
    pairs = made_pairs(closed=unknown, augmented=~unknown, **signals)
    assert pairs.known().excluded == 150
    figures = evaluate(pairs, 50)
    assert figures["questions"] == 600
    assert figures["gate"]["value"] == figures["retrieved_popularity"]["value"] == 1.0
    assert figures["popularity"]["value"] == pytest.approx(0.75, abs=0.02)


def test_numbers_are_standardised_over_the_known_ones_of_the_training_side():
    numbers = {"score": np.array([1.0, 3.0, np.nan, 100.0]), "P1": np.array([True, False, True, True])}
    made = gate.standardised(numbers | {"margin": np.full(4, np.nan)}, np.array([True, True, True, False]))
    assert made.tolist() == [[1, -1, 0, 1], [1, 1, 0, 0], [1, 0, 1, 1], [1, 98, 0, 1]]


def test_an_empty_answer_is_as_doubtful_as_the_most_doubtful():
    doubt = gate.features(made_pairs(4, confidence=np.array([0.0, 0.5, 0.25, np.nan])))["log_prob"]
    assert sorted(doubt[np.isfinite(doubt)]) == pytest.approx(np.log([0.25, 0.25, 0.5]))
    assert np.isnan(doubt).sum() == 1


@pytest.mark.parametrize(("closed", "augmented", "retrieves"), [(0, 1, True), (1, 0, False), (1, 1, False)])
def test_where_one_answer_is_always_the_better_one_it_is_taken(closed, augmented, retrieves):
    pairs = made_pairs(60, closed=np.full(60, bool(closed)), augmented=np.full(60, bool(augmented)))
    assert (gate.decide(pairs, splits(pairs)) == retrieves).all()


def test_a_price_makes_the_gate_retrieve_less():
    pairs = made_pairs()
    free, dear = (gate.decide(pairs, splits(pairs), weight).mean() for weight in (0.0, 0.3))
    assert dear < free
