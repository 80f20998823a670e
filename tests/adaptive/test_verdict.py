"""Which rule is put to use: thresholds, or the constant policy where they lose; and what the rule does not know."""

import math

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs

from pipelines.adaptive import tuning, verdict
from pipelines.intervals import Interval

CUTS, OBSERVED = {"P1": math.inf, "P2": 3.5}, {"P1": (1.0, 9.0), "P2": (2.0, 8.0)}
RULE = verdict.Rule("thresholds", "why", CUTS, OBSERVED, ("P2",), 4.0)


@pytest.mark.parametrize(
    ("gain", "better", "policy"),
    [
        ((-0.0013, -0.0025, -0.0004), "always", "always"),  # loses by more than chance
        ((-0.0013, -0.0025, 0.0004), "always", "thresholds"),  # may lose nothing, and retrieves less
        ((-0.0013, -0.0025, 0.0004), "never", "never"),  # earns nothing, and retrieves more
        ((0.0, 0.0, 0.0), "never", "never"),
        ((0.0013, -0.0025, 0.005), "never", "thresholds"),
        ((0.02, 0.01, 0.03), "always", "thresholds"),
    ],
)
def test_thresholds_give_way_where_they_lose(gain, better, policy):
    chosen, words = verdict.choose(Interval(*gain), better, 0.4)
    assert chosen == policy
    assert words.startswith("thresholds: " if policy == "thresholds" else f"{policy} retrieve: thresholds lose ")
    if policy == "always":
        assert words == "always retrieve: thresholds lose 0.1 points here [-0.2, 0.0]"


def test_a_rule_comes_back_from_its_json():
    always = verdict.make(("always", "why"), {"P1": 3.0}, 4.0, {"P1": (1.0, 9.0)}, ())
    assert (always.thresholds, always.together) == ({"P1": math.inf}, math.inf)
    assert [verdict.Rule.from_json(rule.as_json()) for rule in (RULE, always)] == [RULE, always]


@pytest.mark.parametrize(
    ("relation", "signal", "retrieve", "remarks"),
    [
        ("P1", 9, True, ()),
        ("P1", 10, True, ("above",)),  # always was the best up to 9; beyond, nobody knows
        ("P2", 0, True, ("shared", "below")),
        ("P2", 4, False, ("shared",)),
        ("P3", 3, True, ("untuned",)),
        ("P3", 5, False, ("untuned",)),
        ("P2", math.nan, True, ("unknown",)),
    ],
)
def test_what_the_rule_does_not_know_is_said(relation, signal, retrieve, remarks):
    decided = RULE.decide(relation, signal)
    assert (decided.retrieve, decided.remarks) == (retrieve, remarks)


def test_where_thresholds_lose_accuracy_the_rule_is_the_constant_policy():
    """Retrieving helps one question in three whatever its popularity, and hurts one in twenty."""
    kind = np.random.default_rng(0).random(600)
    pairs = made_pairs(closed=kind < 0.05, augmented=kind > 0.67)
    tuned = tuning.tune_pairs(pairs, CHOSEN.model_copy(update={"search": "exact"}), 0, 200)
    figures = tuned.figures["exact"]
    assert figures["gain"]["high"] < 0
    assert (tuned.rule.policy, figures["policy"]) == ("always", "always")
    assert set(tuned.rule.thresholds.values()) == {math.inf} != set(tuned.cuts.values())
    assert tuned.rule.together == math.inf
    rows = [row for row in tuned.relations if row["search"] == "exact"]
    assert {row["deployed"] for row in rows} == {math.inf}
    assert {row["relation"]: row["threshold"] for row in rows} == tuned.cuts


def test_where_thresholds_gain_they_are_the_rule_and_small_relations_share_one():
    pairs = made_pairs()
    tuned = tuning.tune_pairs(pairs, CHOSEN, 0, 50)
    assert tuned.rule.policy == "thresholds"
    assert tuned.rule.thresholds == tuned.cuts
    assert tuned.rule.shared == ("rare",)
    assert tuned.rule.thresholds["rare"] == tuned.rule.together
    rows = pairs.members()["P1"]
    assert tuned.rule.observed["P1"] == (pairs.signal[rows].min(), pairs.signal[rows].max())


def test_a_price_decides_which_constant_policy_is_the_better_one():
    """Retrieving is right more often, but not by what it costs: by accuracy thresholds lose, by the objective not."""
    pairs = made_pairs()
    figures = tuning.tune_pairs(pairs, CHOSEN.model_copy(update={"cost_weight": 0.3}), 0, 50).figures["shrunk"]
    assert figures["net_gain"]["value"] == pytest.approx(0.0, abs=0.01)
    assert pairs.gains(0.3).mean() < 0
    assert figures["verdict"].startswith("never retrieve") or figures["policy"] == "thresholds"
