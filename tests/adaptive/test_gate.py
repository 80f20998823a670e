"""The learned gate: the regression's minimum, what it reads, and the popularity rule on the same held-out questions."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, summary
from scipy.optimize import minimize

from pipelines.adaptive import gate, held_out, refits


def splits(pairs):
    return held_out.split_train(0, pairs.units(CHOSEN.split_by), CHOSEN.splits, CHOSEN.train_share)


def rule_of(pairs):
    known = pairs.known()
    train = splits(known)
    return held_out.judge(known, train, held_out.fit(known, train, CHOSEN.search, CHOSEN))


@pytest.mark.parametrize("seed", range(3))
def test_the_weights_are_the_minimum(seed):
    rng = np.random.default_rng(seed)
    x = np.hstack([np.ones((80, 1)), rng.normal(size=(80, 3)), rng.random((80, 1)) < 0.1])
    y, counts = rng.random(80) < 1 / (1 + np.exp(-2 * x[:, 1])), rng.integers(1, 4, 80)

    def loss(w):
        wrong = [
            count * np.log1p(np.exp(-row @ w if right else row @ w))
            for row, right, count in zip(x, y, counts, strict=True)
        ]
        return sum(wrong) + 0.5 * gate.PENALTY * (w[1:] ** 2).sum()

    found = gate.fit(x, y, counts)
    assert found == pytest.approx(minimize(loss, np.zeros(5), tol=1e-12).x, abs=1e-4)


def test_answers_that_a_number_tells_apart_have_weights_all_the_same():
    x = np.stack([np.ones(40), np.arange(40) - 19.5], axis=1)
    weights = gate.fit(x, np.arange(40) >= 20, np.ones(40))
    assert np.isfinite(weights).all()
    assert ((x @ weights > 0) == (np.arange(40) >= 20)).all()


def test_the_gate_reads_the_margin_where_popularity_says_nothing():
    rng = np.random.default_rng(0)
    margin = rng.random(600)
    pairs = made_pairs(closed=margin < 0.5, augmented=margin >= 0.5, margin=margin, confidence=rng.random(600))
    figures = gate.evaluate(pairs, rule_of(pairs), CHOSEN, 0, 100)
    assert figures["gate"]["value"] > 0.95
    assert figures["difference"]["low"] > 0.3
    assert figures["difference"]["splits_low"] > 0.2
    assert figures["retrieved_gate"]["value"] == pytest.approx((margin >= 0.5).mean(), abs=0.05)


def test_the_rule_is_judged_as_it_is_alone_and_the_difference_is_of_the_same_questions():
    pairs = made_pairs()
    figures = gate.evaluate(pairs, rule_of(pairs), CHOSEN, 0, 100)
    alone = summary(pairs, resamples=refits.FEWEST)
    assert figures["popularity"] == pytest.approx({end: alone["adaptive"][end] for end in ("value", "low", "high")})
    assert figures["retrieved_popularity"]["value"] == pytest.approx(alone["retrieved"]["value"])
    decisions, train = gate.decide(pairs, splits(pairs)), splits(pairs)
    right = np.where(decisions, pairs.augmented[:, None], pairs.closed[:, None])
    held = [right[i, ~train[i]].mean() for i in range(600) if not train[i].all()]
    assert figures["gate"]["value"] == pytest.approx(np.mean(held))
    assert figures["difference"]["value"] == pytest.approx(np.mean(held) - figures["popularity"]["value"])
    assert figures["gate"]["value"] > 0.7  # popularity and log-probability say it all here


def test_of_very_many_questions_some_are_drawn(monkeypatch):
    monkeypatch.setattr(gate, "MOST", 200)
    pairs = made_pairs()
    figures = gate.evaluate(pairs, rule_of(pairs), CHOSEN, 0, 40)
    assert figures["questions"] == 200
    assert figures["gate"]["value"] > 0.6


def test_the_gate_of_a_split_does_not_see_what_it_is_judged_on():
    pairs = made_pairs(300)
    train = splits(pairs)
    decisions = gate.decide(pairs, train)
    for split in range(3):
        held = ~train[:, split]
        swapped = replace(
            pairs,
            closed=np.where(held, pairs.augmented, pairs.closed),
            augmented=np.where(held, pairs.closed, pairs.augmented),
        )
        assert (gate.decide(swapped, train)[:, split] == decisions[:, split]).all()
    assert (gate.decide(replace(pairs, closed=pairs.augmented, augmented=pairs.closed), train) != decisions).any()


def test_questions_of_unknown_popularity_retrieve_by_the_rule_and_are_learnt_from():
    unknown = np.arange(600) % 4 == 0
    popularity = np.where(unknown, np.nan, 500.0)
    signals = {"signal": popularity, "popularity": popularity, "confidence": np.full(600, 0.5)}
    pairs = made_pairs(closed=unknown, augmented=~unknown, **signals)
    assert pairs.known().excluded == 150
    figures = gate.evaluate(pairs, rule_of(pairs), CHOSEN, 0, 50)
    assert figures["questions"] == 600
    assert figures["gate"]["value"] == 1.0
    assert figures["popularity"]["value"] == pytest.approx(0.75, abs=0.02)
    assert figures["retrieved_popularity"]["value"] == 1.0


def test_numbers_are_standardised_over_the_known_ones_of_the_training_side():
    numbers = {"score": np.array([1.0, 3.0, np.nan, 100.0]), "P1": np.array([True, False, True, True])}
    made = gate.standardised(numbers | {"margin": np.full(4, np.nan)}, np.array([True, True, True, False]))
    assert made.tolist() == [[1, -1, 0, 1], [1, 1, 0, 0], [1, 0, 1, 1], [1, 98, 0, 1]]


def test_an_empty_answer_is_as_doubtful_as_the_most_doubtful():
    pairs = made_pairs(4, confidence=np.array([0.0, 0.5, 0.25, np.nan]))
    doubt = gate.features(pairs)["log_prob"]
    assert sorted(doubt[np.isfinite(doubt)]) == pytest.approx(np.log([0.25, 0.25, 0.5]))
    assert np.isnan(doubt).sum() == 1


def test_where_one_answer_is_always_the_better_one_it_is_taken():
    for closed, retrieves in ((False, True), (True, False)):
        pairs = made_pairs(60, closed=np.full(60, closed), augmented=np.full(60, not closed))
        assert (gate.decide(pairs, splits(pairs)) == retrieves).all()
    same = made_pairs(60, closed=np.full(60, True), augmented=np.full(60, True))
    assert not gate.decide(same, splits(same)).any()


def test_a_price_makes_the_gate_retrieve_less():
    pairs = made_pairs()
    free, dear = (gate.decide(pairs, splits(pairs), weight).mean() for weight in (0.0, 0.3))
    assert dear < free
