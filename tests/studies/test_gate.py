"""Beside the popularity rule: a learned gate, and the language model's own doubt."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, resampled, splits, summary
from scipy.optimize import minimize

from pipelines.adaptive import refits, tune_thresholds, tuning
from pipelines.studies import gate


def evaluate(pairs, resamples):
    tuned = tuning.tune_pairs(pairs, CHOSEN, 0, resamples, (CHOSEN.search,))
    return gate.of_pairs(pairs, tuned, CHOSEN, 0, resamples)["gate"]


def test_the_weights_are_the_minimum():
    rng = np.random.default_rng(0)
    x = np.hstack([np.ones((80, 1)), rng.normal(size=(80, 3)), rng.random((80, 1)) < 0.1])
    y, counts = rng.random(80) < 1 / (1 + np.exp(-2 * x[:, 1])), rng.integers(1, 4, 80)

    def loss(w):
        signs = np.where(y, -1, 1)
        return (counts * np.log1p(np.exp(signs * (x @ w)))).sum() + 0.5 * gate.PENALTY * (w[1:] ** 2).sum()

    assert gate.fit_logistic(x, y, counts) == pytest.approx(minimize(loss, np.zeros(5), tol=1e-12).x, abs=1e-4)


def test_the_gate_reads_the_margin_where_popularity_says_nothing_of_some_of_very_many_questions(monkeypatch):
    monkeypatch.setattr(gate, "MOST", 400)
    rng = np.random.default_rng(0)
    margin = rng.random(600)
    pairs = made_pairs(right_above=margin < 0.5, right_below=margin >= 0.5, margin=margin, confidence=rng.random(600))
    figures = evaluate(pairs, 100)
    assert figures["questions"] == 400
    assert figures["gate"]["value"] > 0.95
    assert figures["difference"]["low"] > 0.3
    assert figures["difference"]["splits_low"] > 0.2
    assert figures["retrieved_gate"]["value"] == pytest.approx((margin >= 0.5).mean(), abs=0.05)


def test_the_rule_is_judged_as_it_is_alone_and_the_difference_is_of_the_same_questions():
    pairs = made_pairs()
    figures, alone = evaluate(pairs, refits.FEWEST), summary(pairs, resamples=refits.FEWEST)
    assert figures["popularity"] == pytest.approx({end: alone["adaptive"][end] for end in ("value", "low", "high")})
    assert figures["retrieved_popularity"]["value"] == pytest.approx(alone["retrieved"]["value"])
    train = splits(pairs)
    right = np.where(gate.gate_retrieves(pairs, train), pairs.right_below[:, None], pairs.right_above[:, None])
    held = [right[i, ~train[i]].mean() for i in range(600) if not train[i].all()]
    assert figures["gate"]["value"] == pytest.approx(np.mean(held))
    assert figures["difference"]["value"] == pytest.approx(np.mean(held) - figures["popularity"]["value"])
    assert figures["gate"]["value"] > 0.7  # popularity and log-probability say it all here


def test_the_gate_of_a_split_does_not_see_what_it_is_judged_on():
    pairs = made_pairs(300)
    train = splits(pairs)
    decisions = gate.gate_retrieves(pairs, train)
    for split in range(3):
        held = ~train[:, split]
        closed = np.where(held, pairs.right_below, pairs.right_above)
        augmented = np.where(held, pairs.right_above, pairs.right_below)
        swapped = gate.gate_retrieves(replace(pairs, right_above=closed, right_below=augmented), train)
        assert (swapped[:, split] == decisions[:, split]).all()
    swapped = replace(pairs, right_above=pairs.right_below, right_below=pairs.right_above)
    assert (gate.gate_retrieves(swapped, train) != decisions).any()
    unseen = replace(pairs, right_above=np.zeros(300, bool), right_below=~train[:, 0])
    assert not gate.gate_retrieves(unseen, train)[:, 0].any(), "only questions that are held out gain"


def test_numbers_are_standardised_over_the_known_ones_of_the_training_side():
    numbers = {"score": np.array([1.0, 3.0, np.nan, 100.0]), "P1": np.array([True, False, True, True])}
    made = gate.standardised(numbers | {"margin": np.full(4, np.nan)}, np.array([True, True, True, False]))
    assert made.tolist() == [[1, -1, 0, 1], [1, 1, 0, 0], [1, 0, 1, 1], [1, 98, 0, 1]]


def test_an_empty_answer_is_as_doubtful_as_the_most_doubtful():
    doubt = gate.features(made_pairs(4, confidence=np.array([0.0, 0.5, 0.25, np.nan])))["log_prob"]
    assert sorted(doubt[np.isfinite(doubt)]) == pytest.approx(np.log([0.25, 0.25, 0.5]))
    assert np.isnan(doubt).sum() == 1


def test_where_one_answer_is_always_the_better_one_the_gate_takes_it():
    for closed in (True, False):
        pairs = made_pairs(60, right_above=np.full(60, closed), right_below=np.full(60, not closed))
        assert (gate.gate_retrieves(pairs, splits(pairs)) != closed).all()


ENDS = ("value", "low", "high")


def uncertainty(pairs, chosen=CHOSEN, resamples=50):
    drawn = resampled(pairs, chosen, resamples)
    return tune_thresholds.uncertainty(pairs, splits(pairs), drawn, chosen, 0, resamples)


def test_the_signal_that_knows_decides_better():
    rng = np.random.default_rng(1)
    blind = uncertainty(made_pairs(confidence=rng.random(600)), CHOSEN, 200)["uncertainty"]
    assert blind["difference"]["high"] < -0.05
    assert blind["popularity"]["value"] > blind["uncertainty"]["value"]
    seeing = uncertainty(made_pairs(popularity=rng.integers(1, 99, 600).astype(float)), CHOSEN, 200)["uncertainty"]
    assert seeing["difference"]["low"] > 0.05
    assert seeing["questions"] == 600


def test_each_signal_decides_there_as_it_does_alone():
    rng = np.random.default_rng(2)
    pairs = made_pairs()
    pairs = replace(pairs, confidence=pairs.popularity * np.exp(rng.normal(0, 1, 600)) / 1e9)
    figures = uncertainty(pairs)["uncertainty"]
    for name, signal in (("popularity", pairs.popularity), ("uncertainty", pairs.confidence)):
        own = replace(pairs, signal=signal).take(np.lexsort((signal, pairs.relations)))
        alone = summary(own, resamples=50)
        for key, other in ((name, "adaptive"), (f"retrieved_{name}", "retrieved"), ("always", "always")):
            assert figures[key] == pytest.approx({end: alone[other][end] for end in ENDS})


def test_answers_without_probabilities_are_left_out_and_too_few_compared_not_at_all():
    half = np.where(np.arange(600) < 300, np.nan, 0.5)
    assert uncertainty(made_pairs(confidence=half), CHOSEN, 10)["uncertainty"]["questions"] == 300
    assert uncertainty(made_pairs(confidence=np.full(600, np.nan)), CHOSEN, 10) == {}
