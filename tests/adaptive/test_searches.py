"""The threshold searches on data worked out by hand, and against plain loops over every cut."""

import numpy as np
import pytest

from pipelines.adaptive import searches

ALL = np.ones((1, 6), dtype=bool)


def adaptive_right(popularity, closed, augmented, chosen, cut):
    """The definition: below the cut the augmented answer counts, from it on the closed-book one."""
    return sum(a if p < cut else c for p, c, a, own in zip(popularity, closed, augmented, chosen, strict=True) if own)


@pytest.fixture
def world():
    """(popularity, closed, augmented, train) of 80 questions with tied popularities, 12 splits."""
    rng = np.random.default_rng(5)
    popularity = np.sort(rng.integers(1, 60, 80) ** 2)
    closed = rng.random(80) < np.linspace(0.2, 0.8, 80)
    return popularity, closed, rng.random(80) < 0.5, rng.random((12, 80)) < 0.75


def test_exact_finds_the_best_cut():
    popularity = np.array([1, 2, 3, 4, 5, 6])
    gains = np.array([1, 1, -1, 1, -1, -1])  # cumulated: 0 1 2 1 2 1 0; of the two best cuts the lower retrieves less
    assert searches.exact(popularity, gains, ALL).tolist() == [3.0]


def test_exact_never_and_always():
    popularity = np.array([1, 2, 3, 4, 5, 6])
    assert searches.exact(popularity, -np.ones(6, int), ALL).tolist() == [0.0]
    assert searches.exact(popularity, np.ones(6, int), ALL).tolist() == [np.inf]
    assert searches.exact(popularity, np.zeros(6, int), ALL).tolist() == [0.0]


def test_exact_does_not_cut_between_equal_popularities():
    popularity = np.array([1, 2, 2, 2, 3, 4])
    gains = np.array([0, 1, 1, -1, -1, 0])
    assert searches.exact(popularity, gains, ALL).tolist() == [3.0]


def test_exact_learns_from_training_questions_alone():
    popularity = np.array([1, 2, 3, 4, 5, 6])
    gains = np.array([1, -1, 1, 1, -1, -1])
    train = np.array([[True, False, True, False, True, False], [False] * 6])
    assert searches.exact(popularity, gains, train).tolist() == [5.0, 0.0]


def test_exact_is_as_good_as_trying_every_cut(world):
    popularity, closed, augmented, train = world
    cuts = searches.exact(popularity, augmented.astype(int) - closed, train)
    for cut, chosen in zip(cuts, train, strict=True):
        every = [0, *popularity[chosen], np.inf]
        best = max(adaptive_right(popularity, closed, augmented, chosen, one) for one in every)
        assert adaptive_right(popularity, closed, augmented, chosen, cut) == best
        assert cut in every


def test_bins_are_ten_equal_widths_of_log_popularity(world):
    popularity, closed, augmented, train = world
    cuts = searches.bins(popularity, augmented.astype(int) - closed, train)
    edges = 10 ** np.linspace(np.log10(popularity.min()), np.log10(popularity.max()), 11)
    candidates = [0.0, *edges[1:-1], np.inf]
    for cut, chosen in zip(cuts, train, strict=True):
        right = [adaptive_right(popularity, closed, augmented, chosen, one) for one in candidates]
        assert cut == pytest.approx(candidates[int(np.argmax(right))])


def test_quantile_cuts_split_the_training_questions_evenly():
    popularity = np.arange(1, 101)
    train = np.zeros((2, 100), dtype=bool)
    train[0], train[1, :40] = True, True
    cuts = searches.quantile_cuts(popularity, train, 4)
    assert cuts.tolist() == [[0, 25, 50, 75, np.inf], [0, 10, 20, 30, np.inf]]


def test_shrunk_with_no_pseudo_questions_is_exact_on_the_same_cuts(world):
    popularity, closed, augmented, train = world
    cuts = searches.quantile_cuts(popularity, train, 20)
    pooled = np.random.default_rng(0).normal(size=cuts.shape)
    found = searches.shrunk(popularity, augmented.astype(int) - closed, train, cuts, pooled, 0.0)
    for cut, chosen, candidates in zip(found, train, cuts, strict=True):
        right = [adaptive_right(popularity, closed, augmented, chosen, one) for one in candidates]
        assert cut == candidates[int(np.argmax(right))]


def test_shrunk_with_huge_pseudo_questions_is_the_pooled_curves_best(world):
    popularity, closed, augmented, train = world
    cuts = searches.quantile_cuts(popularity, train, 20)
    pooled = np.random.default_rng(0).normal(size=cuts.shape)
    found = searches.shrunk(popularity, augmented.astype(int) - closed, train, cuts, pooled, 1e12)
    assert found.tolist() == [row[i] for row, i in zip(cuts, pooled.argmax(axis=1), strict=True)]


def test_shrunk_weighs_its_own_and_the_pooled_accuracy_by_their_numbers():
    popularity, train = np.array([1, 2, 3, 4, 5, 6]), ALL
    gains = np.array([1, 1, 1, 0, 0, -1])
    cuts = np.array([[0.0, 2.0, 4.0, np.inf]])
    pooled = np.array([[0.0, 0.9, 0.0, 0.0]])  # 0 1 3 2 of its own against 0.9 pseudo_questions at the second cut
    assert searches.shrunk(popularity, gains, train, cuts, pooled, 2.0).tolist() == [4.0]
    assert searches.shrunk(popularity, gains, train, cuts, pooled, 3.0).tolist() == [2.0]
