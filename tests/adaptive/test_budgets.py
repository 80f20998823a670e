"""Thresholds that keep a budget, beside every factor tried one by one."""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, splits

from pipelines.adaptive import budgets, held_out, rule, tuning
from pipelines.adaptive.pairs import Pairs


def several_kinds() -> Pairs:
    """Of P0 retrieving is always better, of P1 never; some subjects have no views."""
    pairs = made_pairs(300)
    signal = pairs.signal.copy()
    signal[::25] = 0
    pairs = replace(
        pairs,
        signal=signal,
        right_below=(pairs.relations == "P0") | pairs.right_below & (pairs.relations != "P1"),
        right_above=(pairs.relations == "P1") | pairs.right_above & (pairs.relations != "P0"),
    )
    return pairs.take(np.lexsort((pairs.signal, pairs.relations)))


def most_by_brute_force(pairs: Pairs, train: np.ndarray, cuts: np.ndarray, budget: float) -> int:
    """The most training questions that any factor from 0 to 1 lets retrieve within the budget.

    `cuts` (n,) are the thresholds of each question's relation, in logarithms.
    """
    signal = np.log(np.maximum(pairs.signal, budgets.LEAST))
    ratios = cuts - signal
    counts = []
    for shift in (0.0, *ratios[ratios > 0]):
        counts.append(int((train & (ratios > shift)).sum()))
    return max(count for count in [0, *counts] if count <= budget * train.sum() + 1e-9)


@pytest.mark.parametrize("search", ["exact", "bins", "shrunk"])
@pytest.mark.parametrize("budget", [0.01, 0.1, 0.3, 0.5, 0.95])
def test_as_many_retrieve_as_the_best_of_all_factors_lets(search, budget):
    pairs = several_kinds()
    train = splits(pairs)
    free = held_out.fit(pairs, train, search, CHOSEN)
    shifts = budgets.shifts(pairs, train, free, budget)
    kept = {relation: budgets.shifted(cut, shifts) for relation, cut in free.items()}
    assert {0.0, np.inf} <= {cut for cuts in free.values() for cut in cuts}

    free_decisions = held_out.below(pairs, free)
    decisions = held_out.below(pairs, kept)
    assert not (decisions & ~free_decisions).any()
    for split in range(train.shape[1]):
        cuts = np.array([free[relation][split] for relation in pairs.relations])
        log_cuts = np.log(np.clip(cuts, budgets.LEAST**2, budgets.MOST))
        expected = most_by_brute_force(pairs, train[:, split], log_cuts, budget)
        assert (train & decisions)[:, split].sum() == expected
        if shifts[split] == 0:
            assert all(kept[relation][split] == free[relation][split] for relation in free)


def test_of_one_relation_the_threshold_is_the_largest_that_keeps_the_budget():
    """Always retrieving is best, so every cut is tried by itself."""
    pairs = made_pairs(200, relations=np.full(200, "P1", dtype=object), crossing=1e9)
    train = splits(pairs)
    tuned = tuning.tune_pairs(pairs, CHOSEN.model_copy(update={"budget": 0.3}), 0, 10)
    for split, cut in enumerate(tuned.fitted.splits["P1"]):
        signal = pairs.signal[train[:, split]]
        shares = np.array([(signal < value).mean() for value in np.unique(signal)])
        assert (signal < cut).mean() == shares[shares <= 0.3].max()
    assert (pairs.signal < tuned.rule.thresholds["P1"]).mean() <= 0.3


def test_what_is_held_out_is_counted_split_by_split():
    pairs = several_kinds()
    settings = CHOSEN.model_copy(update={"budget": 0.3})
    tuned = tuning.tune_pairs(pairs, settings, 0, 40, ("shrunk",))
    pairs = replace(pairs, subjects=tuned.pairs.subjects)
    retrieves = held_out.below(pairs, tuned.fitted.splits)
    shares = []
    for split in range(settings.splits):
        shares.append(retrieves[~tuned.train[:, split], split].mean())

    figures = tuned.figures["shrunk"]
    assert figures["over_budget"] == np.mean(np.array(shares) > 0.3)
    assert 0 < figures["over_budget"] < 1
    assert figures["retrieved_most"] == max(shares)
    assert figures["retrieved"]["low"] < 0.3 < figures["retrieved"]["high"]


def test_the_verdict_within_a_budget_is_against_not_retrieving():
    """Always retrieving is best by far, and keeps no budget."""
    pairs = made_pairs(400, crossing=1e9)
    free = tuning.tune_pairs(pairs, CHOSEN, 0, 40, ("shrunk",))
    assert free.rule.policy == rule.ALWAYS
    assert not {"over_budget", "gain_over_never"} & free.figures["shrunk"].keys()
    assert "budget" not in rule.as_json(free.rule)

    tuned = tuning.tune_pairs(pairs, CHOSEN.model_copy(update={"budget": 0.3}), 0, 40, ("shrunk",))
    figures = tuned.figures["shrunk"]
    assert tuned.rule.policy == rule.THRESHOLDS
    assert tuned.rule.verdict.startswith(
        "adaptive retrieval: clearly more accurate than without retrieval (+"
    )
    assert figures["gain"]["high"] < 0 < figures["gain_over_never"]["low"]
    decided = [
        tuned.rule.decide(relation, signal).retrieve
        for relation, signal in zip(pairs.relations, pairs.signal, strict=True)
    ]
    assert 0.25 < np.mean(decided) <= 0.3
    assert {tuned.rule.thresholds[relation] for relation in tuned.rule.shared} == {
        tuned.rule.together
    }
    assert rule.parse(rule.as_json(tuned.rule), "here") == tuned.rule
