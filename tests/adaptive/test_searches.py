"""The threshold searches against definitions: every cut tried in a loop, the published notebook,
moments by hand.
"""

import notebook
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.adaptive import searches

ONCE = np.ones((6, 1), dtype=bool)
IN_ORDER = np.array([1.0, 2, 3, 4, 5, 6])


@st.composite
def questions(draw, lowest=0, most=25):
    """(popularity ascending, closed, augmented, train (n, 3)) of few questions with many ties;
    often only one class.
    """
    n = draw(st.integers(1, most))
    popularity = np.sort(draw(st.lists(st.integers(lowest, 12), min_size=n, max_size=n)))
    right = [
        draw(st.lists(st.booleans(), min_size=n, max_size=n) | st.just([False] * n))
        for _ in range(2)
    ]
    train = draw(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=n, max_size=n))
    return popularity.astype(float), np.array(right[0]), np.array(right[1]), np.array(train)


def adaptive_right(popularity, closed, augmented, times, cut):
    """The definition: below the cut the augmented answer counts, from it on the closed-book one."""
    return sum(
        n * (a if p < cut else c)
        for p, c, a, n in zip(popularity, closed, augmented, times, strict=True)
    )


@given(questions())
@example((np.array([0.0]), np.array([False]), np.array([True]), np.array([[True, False, True]])))
@example((np.full(4, 7.0), np.zeros(4, bool), np.ones(4, bool), np.ones((4, 3), bool)))
def test_exact_is_the_lowest_of_the_best_cuts(drawn):
    popularity, closed, augmented, train = drawn
    cuts = searches.exact(popularity, augmented.astype(int) - closed, train)
    for cut, chosen in zip(cuts, train.T, strict=True):
        every = np.unique([0, *np.unique(popularity[chosen])[1:], np.inf] if chosen.any() else [0])
        right = [adaptive_right(popularity, closed, augmented, chosen, one) for one in every]
        assert cut == every[int(np.argmax(right))]


@given(questions())
def test_a_question_counted_thrice_is_there_three_times(drawn):
    popularity, closed, augmented, train = drawn
    gains = augmented.astype(int) - closed
    times = train.sum(axis=1)
    repeated = np.repeat(np.arange(len(times)), times)
    cuts = np.array([[0.0], [3.0], [8.0], [np.inf]])
    for search in (searches.exact, lambda *own: searches.shrunk([own], cuts)[0][0]):
        counted = search(popularity, gains, times[:, None])
        once = search(popularity[repeated], gains[repeated], np.ones((len(repeated), 1), dtype=int))
        assert counted == once


@given(st.lists(questions(lowest=1, most=12), min_size=1, max_size=3))
@settings(max_examples=25)
def test_bins_are_the_notebooks_to_the_same_numbers(relations):
    names = ("relation", "popularity", "closed", "augmented")
    frames = [
        pd.DataFrame(dict(zip(names, (f"P{i}", *own[:3]), strict=True)))
        for i, own in enumerate(relations)
    ]
    train = np.concatenate([own[3] for own in relations])
    edges, _ = notebook.run(pd.concat(frames, ignore_index=True), train.T)
    for i, (popularity, closed, augmented, own) in enumerate(relations):
        cuts = searches.bins(popularity, augmented.astype(int) - closed, own)
        _, bounds = np.histogram(np.log(popularity))
        for cut, chosen in zip(cuts, edges, strict=True):
            edge = chosen[f"P{i}"]
            below = (
                np.log(popularity) < bounds[edge] if edge < 10 else np.full(len(popularity), True)
            )
            assert ((popularity < cut) == below).all()
            assert cut == pytest.approx(
                0 if edge == 0 else np.inf if edge == 10 else np.exp(bounds[edge])
            )


def test_bins_keep_unviewed_questions_in_the_lowest_bin():
    popularity = np.array([0.0, 0, 1, 10, 100, 1000])
    # with the views of 1
    assert 0 < searches.bins(popularity, np.array([1, 1, -1, -1, -1, -1]), ONCE)[0] <= 2
    assert searches.bins(popularity, np.array([1, 1, 1, -1, -1, -1]), ONCE)[0] == pytest.approx(
        10**0.3
    )


def test_quantile_cuts_split_the_training_questions_evenly(monkeypatch):
    monkeypatch.setattr(searches, "QUANTILES", 4)
    train = np.zeros((100, 2), dtype=bool)
    train[:, 0], train[:40, 1] = True, True
    cuts = searches.quantile_cuts(np.arange(1.0, 101), train)
    assert cuts.T.tolist() == [[0, 25, 50, 75, np.inf], [0, 10, 20, 30, np.inf]]


def test_shrunk_weighs_accuracies_by_their_numbers(monkeypatch):
    def shrunk(weight, *relations):
        monkeypatch.setattr(searches, "prior_weight", lambda *_: weight)
        return searches.shrunk(relations, cuts)

    cuts = np.array([[0.0], [2.0], [4.0], [np.inf]])
    own = IN_ORDER, np.array([1, 1, 1, 0, 0, -1]), ONCE  # 0 1 3 2 at the cuts
    # 0 3 1 1: together, per question, 0 4/12 4/12 3/12
    other = (IN_ORDER, np.array([3, -1, -1, 0, 0, 0]), ONCE)
    (first, second), pooled = shrunk(1.0, own, other)
    assert (first.tolist(), second.tolist(), pooled.tolist()) == ([4.0], [2.0], [2.0])
    many = IN_ORDER, np.array([8, -9, 0, 0, 0, 0]), ONCE  # 0 8 -1 -1: together 0 9/12 2/12 1/12
    assert [shrunk(weight, own, many)[0][0].tolist() for weight in (3.0, 4.0)] == [[4.0], [2.0]]


def test_prior_weight_is_the_method_of_moments():
    cuts = np.array([[np.inf]])
    gains = [np.array([1, 1, 1, 0]), np.array([0, 0, -1, 0, 0, 0])]
    n, means = np.array([4.0, 6.0]), np.array([0.75, -1 / 6])
    within = sum(((own - own.mean()) ** 2).sum() for own in gains) / (3 + 5)
    spread = (n * (means - 0.2) ** 2).sum() - within
    between = spread / (10 - (n**2).sum() / 10)
    relations = [(np.arange(float(len(own))), own, np.ones((len(own), 1), bool)) for own in gains]
    gained = np.stack([searches.gains_at(*own, cuts) for own in relations])
    squared = np.stack([searches.gains_at(s, g**2, t, cuts) for s, g, t in relations])
    assert searches.prior_weight(gained, squared, n[:, None])[0] == pytest.approx(within / between)
    # one relation is the pool
    assert searches.prior_weight(gained[:1], squared[:1], n[:1, None])[0] == 1e6
