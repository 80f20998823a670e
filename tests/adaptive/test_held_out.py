"""Splits by subject, thresholds fitted on one side, and accuracies on the other as they are defined."""

import statistics
from dataclasses import replace

import notebook
import numpy as np
import pandas as pd
import pytest
from adaptive_pairs import CHOSEN, made_pairs, summary
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import draws, intervals
from pipelines.adaptive import held_out
from pipelines.adaptive.searches import SEARCHES


def test_a_subject_is_on_one_side_of_each_split_and_splits_differ():
    pairs = made_pairs()
    train = held_out.split_train(0, pairs.subjects, 20, 0.75)
    for subject in np.unique(pairs.subjects)[:50]:
        own = train[pairs.subjects == subject]
        assert (own == own[:1]).all()
    assert train.mean() == pytest.approx(0.75, abs=0.03)
    assert len({column.tobytes() for column in train.T}) == 20
    fewer = held_out.split_train(0, pairs.subjects[:100], 10, 0.75)
    assert (fewer == train[:100, :10]).all()  # a subject's side depends on nothing but itself


def test_splits_draw_subjects_or_questions_as_the_params_say():
    pairs = made_pairs()
    sides = {}
    for split_by in ("subject", "question"):
        train = held_out.split_train(0, pairs.units(split_by), 5, 0.75)
        of_subject = [train[pairs.subjects == subject] for subject in np.unique(pairs.subjects)]
        sides[split_by] = all((rows == rows[:1]).all() for rows in of_subject)
    assert sides == {"subject": True, "question": False}


@pytest.mark.parametrize("search", SEARCHES)
def test_held_out_figures_are_the_definitions(search):
    pairs = made_pairs(300)
    train = held_out.split_train(0, pairs.subjects, 5, 0.75)
    judged = held_out.judge(pairs, train, held_out.fit(pairs, train, search, CHOSEN))
    retrieves = np.array([pairs.signal < [judged.cuts[r][split] for r in pairs.relations] for split in range(5)])
    right = np.where(retrieves, pairs.augmented, pairs.closed)
    for split, held in enumerate(~train.T):
        one = {name: values[split] for name, values in judged.table.items()}
        assert one["adaptive"] == pytest.approx(right[split][held].mean())
        assert one["train_adaptive"] == pytest.approx(right[split][~held].mean())
        assert one["retrieved"] == pytest.approx(retrieves[split][held].mean())
        assert one["always"] == pytest.approx(pairs.augmented[held].mean())
        assert one["never"] == pytest.approx(pairs.closed[held].mean())
        assert one["oracle"] == pytest.approx((pairs.closed | pairs.augmented)[held].mean())
        assert one["test_questions"] == held.sum()
        own = held & (pairs.relations == "P1")
        assert judged.relations["P1"]["adaptive"][split] == pytest.approx(right[split][own].mean())
        assert judged.relations["P1"]["retrieved"][split] == pytest.approx(retrieves[split][own].mean())
    times = (~train).sum(axis=1)
    known = times > 0
    scores = held_out.scores(pairs, judged.retrieved)["adaptive"]
    expected = (right * ~train.T).sum(axis=0)[known] / times[known]
    np.testing.assert_allclose(scores[known], expected)
    assert np.isnan(scores[~known]).all()
    assert known.any()
    assert not known.all()


def test_a_question_at_the_threshold_does_not_retrieve():
    signal = np.array([1.0, 2.0, 2.0, 3.0])
    pairs = made_pairs(4, relations=np.array(["P1"] * 4, dtype=object), signal=signal)
    judged = held_out.judge(pairs, np.zeros((4, 2), dtype=bool), {"P1": np.array([2.0, 0.0])})
    assert judged.retrieved.tolist() == [0.5, 0, 0, 0]
    assert judged.table["retrieved"].tolist() == [0.25, 0]


def test_intervals_draw_subjects_and_not_questions():
    subjects = np.repeat(np.array(["a", "b", "c", "d"], dtype=object), 25)
    values = np.repeat([0.0, 0.0, 1.0, 1.0], 25)
    found = held_out.means({"x": values}, subjects, 3, 400)["x"]
    assert found == intervals.mean(values, draws.generator(3, "adaptive bootstrap"), 400, subjects)
    assert (found.low, found.high) == (0, 1)


def test_the_deviation_over_splits_is_a_samples():
    pairs = made_pairs(200)
    train = held_out.split_train(0, pairs.subjects, 3, 0.75)
    judged = held_out.judge(pairs, train, held_out.fit(pairs, train, "exact", CHOSEN))
    figures = summary(pairs, "exact", CHOSEN.model_copy(update={"splits": 3}), 20)
    splits = judged.table["adaptive"].tolist()
    assert figures["adaptive"]["sd"] == pytest.approx(statistics.stdev(splits))
    assert statistics.stdev(splits) > 0


def test_the_params_say_how_strong_the_prior_is_and_how_many_cuts_there_are():
    pairs, everything = made_pairs(), np.ones((600, 1), dtype=bool)

    def fit(**changes):
        cuts = held_out.fit(pairs, everything, "shrunk", CHOSEN.model_copy(update=changes))
        return [float(cut[0]) for cut in cuts.values()]

    assert len(set(fit(pseudo_questions=1e9))) == 1 < len(set(fit(pseudo_questions=0.0)))
    median = np.sort(pairs.signal)[299]
    assert set(fit(quantiles=2)) <= {0.0, median, np.inf} < set(fit(quantiles=300)) | {0.0, median, np.inf}


def test_the_notebooks_accuracies_over_relations_come_out_of_bins():
    pairs = made_pairs(800)
    train = held_out.split_train(0, pairs.subjects, 8, 0.75)
    own = CHOSEN.model_copy(update={"min_questions": 1})
    judged = held_out.judge(pairs, train, held_out.fit(pairs, train, "bins", own))
    columns = {name: getattr(pairs, name) for name in ("popularity", "closed", "augmented")}
    _, expected = notebook.run(pd.DataFrame(columns | {"relation": pairs.relations}), train.T)
    for name in ("adaptive", "always", "never", "retrieved", "train_adaptive"):
        np.testing.assert_allclose(judged.table[name], expected[name], err_msg=name)


@given(st.integers(0, 1000), st.integers(1, 30), st.floats(0.01, 1.0))
@settings(max_examples=40, deadline=None)
def test_where_retrieving_costs_the_best_cut_is_that_of_accuracy_less_cost(seed, n, weight):
    rng = np.random.default_rng(seed)
    costs = {"closed_cost": rng.integers(0, 3, n) / 1.0, "augmented_cost": rng.integers(0, 9, n) / 1.0}
    pairs = made_pairs(n, seed, relations=np.full(n, "P0", dtype=object), **costs)
    train = rng.random((n, 2)) < 0.75
    chosen = CHOSEN.model_copy(update={"cost_weight": weight, "min_questions": 1})
    cuts = held_out.fit(pairs, train, "exact", chosen)["P0"]

    def objective(cut, own):
        right = np.where(pairs.signal < cut, pairs.augmented, pairs.closed)
        cost = np.where(pairs.signal < cut, pairs.augmented_cost, pairs.closed_cost)
        return (right - weight * cost)[own].sum()

    for cut, own in zip(cuts, train.T, strict=True):
        best = max(objective(one, own) for one in (0, *pairs.signal[own], np.inf))
        assert objective(cut, own) == pytest.approx(best)


@pytest.mark.parametrize(("search", "crossing"), [("exact", 600.0), ("bins", 1000.0), ("shrunk", 1500.0)])
def test_where_there_is_a_crossing_adaptive_beats_always_and_never(search, crossing):
    pairs = made_pairs(crossing=crossing)
    train = held_out.split_train(0, pairs.subjects, 20, 0.75)
    judged = held_out.judge(pairs, train, held_out.fit(pairs, train, search, CHOSEN))
    figures = summary(pairs, search, resamples=300)
    assert figures["gain"]["low"] > 0.1
    assert figures["oracle"]["value"] >= figures["adaptive"]["value"]
    assert figures["gain"]["value"] == pytest.approx(
        figures["adaptive"]["value"] - max(figures["always"]["value"], figures["never"]["value"])
    )
    assert all(300 < np.median(judged.cuts[f"P{i}"]) < 3000 for i in range(4))


@pytest.mark.parametrize("search", SEARCHES)
def test_where_there_is_nothing_to_learn_the_interval_touches_zero(search):
    rng = np.random.default_rng(0)
    pairs = made_pairs(closed=rng.random(600) < 0.5, augmented=rng.random(600) < 0.5)
    assert summary(pairs, search, resamples=300)["gain"]["low"] < 0


@pytest.mark.parametrize("search", SEARCHES)
def test_rare_relations_take_the_threshold_of_all_together(search):
    pairs = made_pairs()
    train = np.ones((600, 1), dtype=bool)
    together = replace(pairs, relations=np.full(600, "all", dtype=object))
    together = together.take(np.argsort(pairs.signal, kind="stable"))
    rare = held_out.fit(pairs, train, search, CHOSEN)["rare"]
    assert rare == held_out.fit(together, train, search, CHOSEN)["all"]


@pytest.mark.parametrize("search", SEARCHES)
def test_one_question_of_one_relation_is_judged_where_it_is_held_out(search):
    pairs = made_pairs(1, closed=np.array([False]), augmented=np.array([True]))
    train = np.array([[True, False]])
    judged = held_out.judge(pairs, train, held_out.fit(pairs, train, search, CHOSEN))
    assert judged.table["test_questions"].tolist() == [0, 1]
    assert np.isnan(judged.table["adaptive"][0])
    assert judged.table["adaptive"][1] == 0.0  # nothing was learned: never retrieve
