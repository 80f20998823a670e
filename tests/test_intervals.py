"""Intervals: Wilson's against SciPy's and known values, the bootstrap against theory and against a plain loop."""

import numpy as np
import pytest
from scipy.stats import binomtest, pearsonr

from pipelines import draws, intervals
from pipelines.intervals import Interval


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (37, 411), (1, 1)])
def test_wilson_is_scipys(successes, n):
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    low, high = intervals.wilson(np.array([successes]), np.array([n]))
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_known_value():
    # Newcombe (1998), table I: 81 of 263
    low, high = intervals.wilson(np.array(81), np.array(263))
    assert (round(float(low), 4), round(float(high), 4)) == (0.2553, 0.3662)


def test_wilson_of_nothing_is_unknown():
    low, high = intervals.wilson(np.array([0, 3]), np.array([0, 4]))
    assert np.isnan([low[0], high[0]]).all()
    assert np.isfinite([low[1], high[1]]).all()
    assert np.isnan(intervals.share(np.array([], dtype=bool)).value)


def test_bootstrap_of_a_mean_has_the_standard_errors_width():
    values = np.random.default_rng(0).normal(5, 2, 400)
    found = intervals.mean(values, draws.generator(0, "test"), 4000)
    half = 1.96 * values.std() / np.sqrt(400)
    assert found.value == pytest.approx(values.mean())
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.1)


def test_bootstrap_over_clusters_is_wider_where_rows_of_a_cluster_are_alike():
    clusters = np.repeat(np.arange(40), 10)
    values = np.random.default_rng(0).normal(size=40)[clusters]
    rows = intervals.mean(values, draws.generator(0, "test"), 2000)
    own = intervals.mean(values, draws.generator(0, "test"), 2000, clusters)
    assert own.value == pytest.approx(rows.value)
    assert (own.high - own.low) / (rows.high - rows.low) == pytest.approx(np.sqrt(10), rel=0.2)


def test_bootstrap_is_a_plain_loop_over_resamples():
    sums = np.array([[1.0, 2.0], [3.0, 1.0], [5.0, 4.0], [0.0, 1.0]])
    picks = draws.generator(3, "test").integers(0, 4, (50, 4))
    loop = [sums[own].sum(axis=0) for own in picks]
    values = [numerator / denominator for numerator, denominator in loop]
    found = intervals.bootstrap(sums, intervals.ratio, draws.generator(3, "test"), 50)
    low, high = np.quantile(values, [0.025, 0.975])
    assert (found.value, found.low, found.high) == pytest.approx((9 / 8, low, high))


def test_blocks_change_nothing(monkeypatch):
    sums = np.random.default_rng(0).random((30, 2))
    whole = intervals.bootstrap(sums, intervals.ratio, draws.generator(0, "test"), 100)
    monkeypatch.setattr(intervals, "_BLOCK", 70)
    assert intervals.bootstrap(sums, intervals.ratio, draws.generator(0, "test"), 100) == whole


def test_cluster_sums():
    sums = intervals.cluster_sums(np.array([[1, 10], [2, 20], [3, 30]]), np.array(["b", "a", "b"], dtype=object))
    assert sums.tolist() == [[2, 20], [4, 40]]


def test_pearson_of_sums_is_the_correlation_and_unknown_for_a_constant():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    y = x + rng.normal(size=300)

    def found(x: np.ndarray, y: np.ndarray) -> Interval:
        sums = np.stack([np.ones(300), x, y, x * x, y * y, x * y], axis=1)
        return intervals.bootstrap(sums, intervals.pearson, draws.generator(0, "test"), 500)

    assert found(x, y).value == pytest.approx(pearsonr(x, y).statistic)
    assert found(x, y).low < found(x, y).value < found(x, y).high
    assert np.isnan(found(x, np.ones(300)).value)


def test_a_change_between_runs_is_within_its_interval_in_19_of_20_runs_on_other_questions_and_more_on_the_same():
    """2,000 pairs of runs of 300 questions that are right on 30 and 35 %, whose answers are independent or alike."""
    rng, held = np.random.default_rng(0), {}
    for alike in (False, True):
        luck = rng.random((2, 2000, 300))
        rights = (luck[0] < 0.3).sum(1), (luck[0 if alike else 1] < 0.35).sum(1)
        shares = [[Interval(n / 300, *bounds) for n, *bounds in zip(r, *wilson(r), strict=True)] for r in rights]
        changes = [intervals.difference(now, before) for before, now in zip(*shares, strict=True)]
        held[alike] = np.mean([change.low <= 0.05 <= change.high for change in changes])
    assert 0.94 < held[False] < 0.965
    assert held[True] > 0.99


def wilson(rights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return intervals.wilson(rights, np.full(len(rights), 300))


def test_an_interval_comes_back_from_json():
    assert intervals.interval(Interval(0.5, 0.1, 0.9).as_json()) == Interval(0.5, 0.1, 0.9)
    assert intervals.interval(intervals.NOTHING.as_json()) is intervals.interval(None) is intervals.NOTHING


def test_sign_is_zero_where_the_interval_touches_zero():
    assert [Interval(1, 0.2, 2).sign, Interval(-1, -2, -0.1).sign, Interval(1, 0.0, 2).sign] == [1, -1, 0]
    assert intervals.NOTHING.sign == 0
    assert intervals.NOTHING.as_json() == {"value": None, "low": None, "high": None}


def test_numbers_for_people_have_no_sign_of_zero_and_no_exponent_of_large_ones():
    assert [intervals.fixed(x, 1, signed=True) for x in (-0.04, 0.04, -0.06, 1234.5)] == [
        "0.0",
        "0.0",
        "-0.1",
        "+1,234.5",
    ]
    assert [intervals.plainly(x) for x in (-0.0, 1e9, 1234567.8, 0.25, -12.0)] == [
        "0",
        "1,000,000,000",
        "1,234,568",
        "0.25",
        "-12",
    ]
    assert [intervals.plainly(x, 3) for x in (3.14159, 99.97, 100.4, 1e15)] == [
        "3.14",
        "100",
        "100",
        "1,000,000,000,000,000",
    ]
