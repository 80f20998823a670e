"""Splits by subject, thresholds fitted on one side, and accuracies on the other as they are defined."""

import statistics
from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, judged, made_pairs, splits, summary
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import draws, intervals
from pipelines.adaptive import held_out
from pipelines.adaptive.searches import SEARCHES


def fit_everything(pairs, search, **changes):
    """Each relation's threshold, fitted on all questions."""
    cuts = held_out.fit(pairs, np.ones((len(pairs.ids), 1), bool), search, CHOSEN.model_copy(update=changes))
    return {relation: float(cut[0]) for relation, cut in cuts.items()}


def test_a_subject_or_a_question_is_on_one_side_of_each_split_and_splits_differ():
    pairs = made_pairs()
    train = splits(pairs)
    together = {}
    for split_by in ("subject", "question"):
        sides = splits(pairs, CHOSEN.model_copy(update={"split_by": split_by}))
        of_subject = [sides[pairs.subjects == subject] for subject in np.unique(pairs.subjects)]
        together[split_by] = all((rows == rows[:1]).all() for rows in of_subject)
    assert together == {"subject": True, "question": False}
    assert train.mean() == pytest.approx(0.75, abs=0.03)
    assert len({column.tobytes() for column in train.T}) == 20
    fewer = held_out.split_train(0, pairs.subjects[:100], 10, 0.75)
    assert (fewer == train[:100, :10]).all()  # a subject's side depends on nothing but itself


@pytest.mark.parametrize("search", SEARCHES)
def test_held_out_figures_are_the_definitions(search):
    pairs, five = made_pairs(300), CHOSEN.model_copy(update={"splits": 5})
    train, found = splits(pairs, five), judged(pairs, search, five)
    cuts = np.array([found.cuts[relation] for relation in pairs.relations]).T
    retrieves = pairs.signal < cuts
    right = np.where(retrieves, pairs.augmented, pairs.closed)
    for split, held in enumerate(~train.T):
        one = {name: values[split] for name, values in found.table.items()}
        assert one == pytest.approx(
            {
                "adaptive": right[split][held].mean(),
                "train_adaptive": right[split][~held].mean(),
                "retrieved": retrieves[split][held].mean(),
                "always": pairs.augmented[held].mean(),
                "never": pairs.closed[held].mean(),
                "oracle": (pairs.closed | pairs.augmented)[held].mean(),
                "test_questions": held.sum(),
            }
        )
        own = held & (pairs.relations == "P1")
        assert found.relations["P1"]["adaptive"][split] == pytest.approx(right[split][own].mean())
        assert found.relations["P1"]["retrieved"][split] == pytest.approx(retrieves[split][own].mean())
    assert train.all(axis=1).any()
    expected = [right[~train[i], i].mean() if not train[i].all() else np.nan for i in range(300)]
    np.testing.assert_allclose(held_out.scores(pairs, found.retrieved)["adaptive"], expected)
    assert search != "exact" or (pairs.signal == cuts).any()  # a question at the threshold does not retrieve


def test_intervals_draw_subjects_and_not_questions():
    subjects = np.repeat(np.array(["a", "b", "c", "d"], dtype=object), 25)
    values = np.repeat([0.0, 0.0, 1.0, 1.0], 25)
    found = held_out.means({"x": values}, subjects, 3, 400)["x"]
    assert found == intervals.mean(values, draws.generator(3, "adaptive bootstrap"), 400, subjects)
    assert (found.low, found.high) == (0, 1)


def test_the_params_say_how_strong_the_prior_is_and_how_many_cuts_there_are():
    pairs = made_pairs()
    strong, none = (fit_everything(pairs, "shrunk", pseudo_questions=weight).values() for weight in (1e9, 0.0))
    assert len({*strong}) == 1 < len({*none})
    median = np.sort(pairs.signal)[299]
    few, many = ({*fit_everything(pairs, "shrunk", quantiles=n).values()} for n in (2, 300))
    assert few <= {0.0, median, np.inf} < many | {0.0, median, np.inf}


@given(st.integers(0, 1000), st.integers(1, 30), st.floats(0.01, 1.0))
@settings(max_examples=40, deadline=None)
def test_where_retrieving_costs_the_best_cut_is_that_of_accuracy_less_cost(seed, n, weight):
    rng = np.random.default_rng(seed)
    costs = {"closed_cost": rng.integers(0, 3, n) / 1.0, "augmented_cost": rng.integers(0, 9, n) / 1.0}
    pairs = made_pairs(n, seed, relations=np.full(n, "P0", dtype=object), **costs)
    train = rng.random((n, 2)) < 0.75
    chosen = CHOSEN.model_copy(update={"cost_weight": weight, "min_questions": 1})

    def objective(cut, own):
        right = np.where(pairs.signal < cut, pairs.augmented, pairs.closed)
        cost = np.where(pairs.signal < cut, pairs.augmented_cost, pairs.closed_cost)
        return (right - weight * cost)[own].sum()

    for cut, own in zip(held_out.fit(pairs, train, "exact", chosen)["P0"], train.T, strict=True):
        best = max(objective(one, own) for one in (0, *pairs.signal[own], np.inf))
        assert objective(cut, own) == pytest.approx(best)


@pytest.mark.parametrize(("search", "crossing"), [("exact", 600.0), ("bins", 1000.0), ("shrunk", 1500.0)])
def test_where_there_is_a_crossing_adaptive_beats_always_and_never(search, crossing):
    pairs = made_pairs(crossing=crossing)
    found, figures = judged(pairs, search), summary(pairs, search, resamples=300)
    assert figures["gain"]["low"] > 0.1
    assert figures["oracle"]["value"] >= figures["adaptive"]["value"]
    better = max(figures["always"]["value"], figures["never"]["value"])
    assert figures["gain"]["value"] == pytest.approx(figures["adaptive"]["value"] - better)
    assert all(300 < np.median(found.cuts[f"P{i}"]) < 3000 for i in range(4))
    deviation = statistics.stdev(found.table["adaptive"].tolist())  # a sample's
    assert figures["adaptive"]["sd"] == pytest.approx(deviation) != 0


@pytest.mark.parametrize("search", SEARCHES)
def test_where_there_is_nothing_to_learn_the_interval_touches_zero(search):
    right = np.random.default_rng(0).random((2, 600)) < 0.5
    assert summary(made_pairs(closed=right[0], augmented=right[1]), search, resamples=300)["gain"]["low"] < 0


@pytest.mark.parametrize("search", SEARCHES)
def test_rare_relations_take_the_threshold_of_all_together(search):
    pairs = made_pairs()
    together = replace(pairs, relations=np.full(600, "all", dtype=object))
    together = together.take(np.argsort(pairs.signal, kind="stable"))
    assert fit_everything(pairs, search)["rare"] == fit_everything(together, search)["all"]


@pytest.mark.parametrize("search", SEARCHES)
def test_one_question_of_one_relation_is_judged_where_it_is_held_out(search):
    pairs = made_pairs(1, closed=np.array([False]), augmented=np.array([True]))
    train = np.array([[True, False]])
    found = held_out.judge(pairs, train, held_out.fit(pairs, train, search, CHOSEN)).table
    assert found["test_questions"].tolist() == [0, 1]
    np.testing.assert_array_equal(found["adaptive"], [np.nan, 0.0])  # nothing was learned: never retrieve
