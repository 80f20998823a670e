"""Intervals: Wilson's against SciPy's and known values, the bootstrap against theory and against a
plain loop.
"""

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm, pearsonr, t

from pipelines import draws, intervals
from pipelines.intervals import Interval


def test_wilson_is_scipys():
    """It has a known value, and that of nothing is unknown."""
    for right, n in ((0, 10), (1, 10), (5, 10), (10, 10), (37, 411), (1, 1)):
        expected = binomtest(right, n).proportion_ci(method="wilson")
        found = intervals.share(np.arange(n) < right)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    found = intervals.wilson(81 / 263, 263)  # Newcombe (1998), table I
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    assert np.isnan(intervals.share(np.array([], dtype=bool)).value)


def test_quantiles_of_student_and_shares_of_draws_are_scipys():
    for free in (1, 2, 3, 4, 7, 119, 1000, 99_999):
        found = [intervals.student(free, level) for level in (0.9, 0.95, 0.99)]
        assert found == pytest.approx(t.ppf([0.95, 0.975, 0.995], free), rel=1e-10), free
    for n in (0, 1, 2, 9, 411, 5000):
        for share in (0.1, 0.5, 0.9):
            assert intervals.binomial(n, share) == pytest.approx(
                binom.cdf(range(n + 1), n, share), rel=1e-8
            ), n


def test_a_clustered_share_is_wilsons_of_as_many_values():
    """Sudaan's form of the variance, by hand: subjects of sizes 2, 2 and 3 with 2, 0 and 1
    right.
    """
    right, subjects = np.array([1, 1, 0, 0, 1, 0, 0], bool), np.array(list("aabbccc"))
    share = 3 / 7
    variance = ((2 - 2 * share) ** 2 + (2 * share) ** 2 + (1 - 3 * share) ** 2) / 49 * 3 / 2
    expected = intervals.wilson(share, share * (1 - share) / variance, intervals.student(2))
    found = intervals.share(right, subjects)
    assert (found.value, found.low, found.high) == pytest.approx(
        (expected.value, expected.low, expected.high)
    )
    order = np.array([3, 0, 6, 1, 4, 2, 5])
    assert intervals.share(right[order], subjects[order]) == found
    # all right: as many values as there are clusters of equal size; never more values than there
    # are
    assert intervals.share(np.ones(7, bool), subjects) == intervals.wilson(
        1.0, 49 / 17, intervals.student(2)
    )
    mixed = intervals.share(np.array([1, 0] * 50, bool), np.repeat(np.arange(50), 2))
    assert mixed == intervals.wilson(0.5, 100, intervals.student(49))
    alone = intervals.share(np.ones(5, bool), np.zeros(5))
    assert alone.low < 0.02, "one subject says next to nothing"


def test_a_gain_is_never_without_a_width():
    """Its variance is that of the clusters, by hand, and that of half a t more questions."""
    gains, subjects = np.array([1, 0, -1, 1, 0.5, 0, 0]), np.array(list("aabbccc"))
    mean = 1.5 / 7
    variance = ((1 - 2 * mean) ** 2 + (2 * mean) ** 2 + (0.5 - 3 * mean) ** 2) / 49 * 3 / 2
    reach = t.ppf(0.975, 2) * np.sqrt(3 / 2)
    half = reach * np.sqrt(variance + (reach / 14) ** 2)
    found = intervals.gain(gains, subjects)
    assert (found.value, found.low, found.high) == pytest.approx((mean, mean - half, mean + half))
    found = intervals.gain(np.zeros(400), np.arange(400))
    assert found.high == -found.low == pytest.approx(1.97**2 / 800, rel=0.01)
    expected = {"value": 0.0, "low": None, "high": None}
    assert intervals.gain(np.zeros(4), np.zeros(4)).as_json() == expected


@pytest.mark.parametrize("size", [1, 3, 10])
def test_clustered_intervals_hold_the_truth_19_times_in_20(size):
    """600 data sets of 120 questions, a fifth of the variance of which is between subjects of so
    many questions.
    """
    rng, n, held = np.random.default_rng(size), 120, []
    subjects = np.repeat(np.arange(n // size), size)
    for _ in range(600):
        right = rng.random(n) < rng.beta(1.2, 2.8, n // size)[subjects]
        share = intervals.share(right, subjects)
        mean = intervals.mean(right, rng, 200, subjects)
        held.append([one.low <= 0.3 <= one.high for one in (share, mean)])
    assert ((np.mean(held, axis=0) >= 0.92) & (np.mean(held, axis=0) <= 0.98)).all()


def test_a_bootstrap_has_the_standard_errors_width():
    """Clusters widen it."""
    values = np.random.default_rng(0).normal(5, 2, 400)
    found = intervals.mean(values, draws.generator(0, "test"), 4000)
    assert found.value == pytest.approx(values.mean())
    assert (found.high - found.low) / 2 == pytest.approx(
        1.96 * values.std() / np.sqrt(400), rel=0.1
    )
    clusters = np.repeat(np.arange(40), 10)
    rows, whole = (
        intervals.mean(values[clusters], draws.generator(0, "test"), 2000, of)
        for of in (None, clusters)
    )
    assert whole.value == pytest.approx(rows.value)
    assert (whole.high - whole.low) / (rows.high - rows.low) == pytest.approx(np.sqrt(10), rel=0.2)
    sums = intervals.cluster_sums(
        np.array([[1, 10], [2, 20], [3, 30]]), np.array(["b", "a", "b"], dtype=object)
    )
    assert sums.tolist() == [[2, 20], [4, 40]]


def test_bootstrap_is_a_plain_loop_over_resamples(monkeypatch):
    sums = np.array([[1.0, 2.0], [3.0, 1.0], [5.0, 4.0], [0.0, 1.0]])
    resamples = [
        sums[picks].sum(axis=0) for picks in draws.generator(3, "test").integers(0, 4, (50, 4))
    ]
    ends = np.quantile(
        [numerator / denominator for numerator, denominator in resamples], [0.025, 0.975]
    )
    low, high = 9 / 8 + (ends - 9 / 8) * t.ppf(0.975, 3) * np.sqrt(4 / 3) / norm.ppf(0.975)
    for block in (intervals._BLOCK, 10):
        monkeypatch.setattr(intervals, "_BLOCK", block)
        found = intervals.bootstrap(sums, intervals.ratio, draws.generator(3, "test"), 50)
        assert (found.value, found.low, found.high) == pytest.approx((9 / 8, low, high))


def test_pearson_of_sums_is_the_correlation():
    x, noise = np.random.default_rng(0).normal(size=(2, 300))

    def found(x: np.ndarray, y: np.ndarray) -> Interval:
        sums = np.stack([np.ones(300), x, y, x * x, y * y, x * y], axis=1)
        return intervals.bootstrap(sums, intervals.pearson, draws.generator(0, "test"), 500)

    correlation = found(x, x + noise)
    assert correlation.value == pytest.approx(pearsonr(x, x + noise).statistic)
    assert correlation.low < correlation.value < correlation.high
    assert np.isnan(found(x, np.ones(300)).value)


def test_a_change_is_within_its_interval_19_times_in_20():
    """2,000 pairs of runs of 300 questions that are right on 30 and 35 %, whose answers are
    independent or alike.
    """
    luck, held = np.random.default_rng(0).random((2, 2000, 300)), {}
    for alike in (False, True):
        rights = (luck[0] < 0.3).sum(1), (luck[0 if alike else 1] < 0.35).sum(1)
        before, now = ([intervals.wilson(n / 300, 300) for n in run] for run in rights)
        changes = [intervals.difference(*pair) for pair in zip(now, before, strict=True)]
        held[alike] = np.mean([change.low <= 0.05 <= change.high for change in changes])
    assert 0.94 < held[False] < 0.965
    assert held[True] > 0.99


def test_an_interval_comes_back_from_json():
    """It has a sign unless it touches zero."""
    assert intervals.interval(Interval(0.5, 0.1, 0.9).as_json()) == Interval(0.5, 0.1, 0.9)
    assert (
        intervals.interval(intervals.NOTHING.as_json())
        is intervals.interval(None)
        is intervals.NOTHING
    )
    assert intervals.NOTHING.as_json() == {"value": None, "low": None, "high": None}
    several = [Interval(1, 0.2, 2), Interval(-1, -2, -0.1), Interval(1, 0.0, 2), intervals.NOTHING]
    assert [one.sign for one in several] == [1, -1, 0, 0]


def test_numbers_for_people_have_no_sign_of_zero():
    """Large ones have no exponent."""
    fixed = [intervals.fixed(x, 1, signed=True) for x in (-0.04, 0.04, -0.06, 1234.5, 100 * 0.6375)]
    assert fixed == ["0.0", "0.0", "\N{MINUS SIGN}0.1", "+1,234.5", "+63.8"]
    plain = [intervals.plainly(x) for x in (-0.0, 1e9, 1234567.8, -0.25, -12.0)]
    assert plain == ["0", "1,000,000,000", "1,234,568", "\N{MINUS SIGN}0.25", "\N{MINUS SIGN}12"]
    rounded = [intervals.plainly(x, 3) for x in (3.14159, 99.97, 100.4, 1e15, 100 * 0.6375)]
    assert rounded == ["3.14", "100", "100", "1,000,000,000,000,000", "63.8"]
