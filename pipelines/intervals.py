"""Confidence intervals: Wilson's for shares, a bootstrap for any function of sums; and McNemar's
test.

Questions about one subject, and windows of one document, go together. So both take such clusters,
and both are widened where clusters are few. `benchmarks/coverage.py` measures how often the
intervals hold the truth.

A mean, a ratio, a difference of ratios and a correlation are all functions of column sums, so one
vectorised bootstrap serves them all: sum the columns per cluster once, draw clusters, and evaluate
the function on all resamples' sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

LEVEL = 0.95
DIGITS_OF_FLOATS = 14  # significant digits that a computation leaves right
NORMAL = NormalDist().inv_cdf((1 + LEVEL) / 2)  # 1.96, the normal distribution's quantile
# units drawn at most; of more clusters several are drawn together, which costs an interval nothing
UNITS = 20_000
_BLOCK = 4_000_000  # drawn positions held at a time: bounds the memory of a bootstrap

Statistic = Callable[[np.ndarray], np.ndarray]  # (resamples, m) sums -> (resamples,) values


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % confidence interval; all three are NaN where there was nothing to
    measure.
    """

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval lies on one side of zero, 0 where it touches zero or is
        unknown.
        """
        if self.low > 0:
            return 1
        return -1 if self.high < 0 else 0

    def times(self, factor: float) -> Interval:
        """The figure and its bounds, multiplied; a negative factor swaps the bounds."""
        low, high = sorted((self.low * factor, self.high * factor))
        return Interval(self.value * factor, low, high)

    @property
    def rest(self) -> Interval:
        """What a share leaves of everything, such as the questions that do not retrieve."""
        return Interval(1 - self.value, 1 - self.high, 1 - self.low)

    def within(self, least: float, most: float) -> Interval:
        """The figure with its bounds cut to [least, most]; the figure stays between them."""
        low = max(self.low, min(least, self.value))
        high = min(self.high, max(most, self.value))
        return Interval(self.value, float(low), float(high))

    def as_json(self) -> dict[str, float | None]:
        """{"value", "low", "high"}, null for NaN, which JSON does not have."""
        return {
            "value": _finite(self.value),
            "low": _finite(self.low),
            "high": _finite(self.high),
        }

    def columns(self, name: str) -> dict[str, float | None]:
        """Columns of a table: <name>, <name>_low and <name>_high, None for NaN."""
        numbers = self.as_json()
        return {
            name: numbers["value"],
            f"{name}_low": numbers["low"],
            f"{name}_high": numbers["high"],
        }


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


NOTHING = Interval(math.nan, math.nan, math.nan)


def digits_beside_zero(figure: Interval, digits: int) -> int:
    """So many digits after the point, or as many as show that an interval beside zero does not
    touch it.
    """
    nearest = min(abs(figure.low), abs(figure.high))
    while figure.sign and not round(nearest, digits):
        digits += 1
    return digits


def fixed(number: float, digits: int, signed: bool = False) -> str:
    """A number with so many digits after the point; a number that rounds to zero has no sign."""
    sign = "+" if signed else ""
    text = f"{_exactly(number):{sign},.{digits}f}"
    is_zero = not text.strip("+-0.,")
    return text.lstrip("+-") if is_zero else _with_minus(text)


def plainly(number: float, digits: int = 6) -> str:
    """A number with so many significant digits, but all digits before the point; never as 1e+09."""
    if abs(number) >= 10 ** (digits - 1) or number == int(number):
        return fixed(number, 0)
    return _with_minus(f"{_exactly(number):.{digits}g}")


def _exactly(number: float) -> float:
    """A number without the error of its computation, so that it is rounded in one way wherever it
    is shown: 63.75 also where 100 * 0.6375 is 63.74999999999999.
    """
    return float(f"{number:.{DIGITS_OF_FLOATS}g}")


def _with_minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def with_bounds(figure: Interval, digits: int, unit: str = "", signed: bool = False) -> str:
    """A figure with its unit and its interval: `value unit [low, high]`."""
    value = fixed(figure.value, digits, signed)
    low = fixed(figure.low, digits, signed)
    high = fixed(figure.high, digits, signed)
    return f"{value}{unit} [{low}, {high}]"


def interval(figure: dict | None) -> Interval:
    """What `Interval.as_json` wrote; NOTHING where there is none, or it is null."""
    if not figure or figure["value"] is None:
        return NOTHING
    return Interval(figure["value"], figure["low"], figure["high"])


def difference(one: Interval, other: Interval) -> Interval:
    """One figure less another, from both intervals alone (MOVER of Zou and Donner; of shares,
    Newcombe's).

    It holds 95 % where the two are independent, and more where they rise and fall together, as two
    runs' figures do.
    """
    value = one.value - other.value
    down = math.hypot(one.value - one.low, other.high - other.value)
    up = math.hypot(one.high - one.value, other.value - other.low)
    return Interval(value, value - down, value + up)


@cache
def student(free: int, level: float = LEVEL) -> float:
    """The quantile t of Student's distribution: with probability `level`, T of `free` degrees of
    freedom has |T| < t.

    That probability is a finite sum in the angle arctan(t / sqrt(free)) (Abramowitz and Stegun,
    26.7.3 and 26.7.4), and halving finds the angle. Beyond a million degrees of freedom t no longer
    changes by more than 3e-6.
    """
    free = min(free, 1_000_000)
    odd = free % 2
    terms = free // 2
    steps = 2 * np.arange(1, max(terms, 1)) + odd

    low = 0.0
    high = math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        ratios = (1 - 1 / steps) * math.cos(angle) ** 2
        products = np.cumprod(np.append(1.0, ratios))
        inside = math.sin(angle) * float(products[:terms].sum())
        if odd:
            inside = 2 / math.pi * (angle + math.cos(angle) * inside)
        if inside < level:
            low = angle
        else:
            high = angle
    return math.sqrt(free) * math.tan(high)


def binomial(n: int, share: float) -> np.ndarray:
    """The binomial distribution function of n values that are true with probability `share`:
    (n + 1,), the probabilities that at most 0, 1, ... n of them are true.
    """
    k = np.arange(1, n + 1)
    log_odds = math.log(share / (1 - share))
    log_ratios = np.cumsum(np.log((n + 1 - k) / k) + log_odds)  # of k to none
    log_none = n * math.log1p(-share)
    probabilities = np.exp(np.append(0.0, log_ratios) + log_none)
    return np.cumsum(probabilities)


def reach(clusters: int, level: float = LEVEL) -> float:
    """How many deviations of a mean over so many clusters the bounds of its interval lie from it;
    infinite for one.

    Student's t, because the deviation is estimated from the clusters, times sqrt(clusters /
    (clusters - 1)), because resamples of few clusters vary less than clusters that are drawn anew
    (Hesterberg, 2015).
    """
    free = clusters - 1
    if not free:
        return math.inf
    return student(free, level) * math.sqrt(clusters / free)


def wilson(share: float, n: float, quantile: float = NORMAL) -> Interval:
    """A share of n independent values with Wilson's score interval; the normal quantile unless
    another is given.
    """
    z2 = quantile**2
    scale = 1 + z2 / n
    centre = (share + z2 / (2 * n)) / scale
    variance = share * (1 - share) / n + z2 / (4 * n * n)
    half = math.sqrt(z2 * variance) / scale
    # at 0 and 1 the bound is exactly that; rounding must not push it beyond
    low = 0.0 if share == 0 else centre - half
    high = 1.0 if share == 1 else centre + half
    return Interval(share, low, high)


def share(correct: np.ndarray, clusters: np.ndarray | None = None) -> Interval:
    """The share of true values (n,), with Wilson's interval for values that come in `clusters`,
    labels (n,).

    Answers about one subject are right or wrong together. So n counts as fewer independent values:
    as many as would vary as much as the clusters' shares do, but not more than n; where all values
    are the same, as many as clusters of equal size (Kish). Student's t of clusters - 1 degrees of
    freedom is the quantile (Korn and Graubard, 1998; Dean and Pagano, 2015). Without `clusters` the
    values are independent.
    """
    correct = np.asarray(correct, dtype=float)
    n = len(correct)
    if not n:
        return NOTHING
    value = float(correct.mean())
    if clusters is None:
        return wilson(value, n)

    sizes, variance = _of_mean(correct, clusters)
    if value in (0, 1) or len(sizes) == 1:
        independent = n * n / float((sizes * sizes).sum())
    else:
        independent = value * (1 - value) / variance if variance else n
    return wilson(value, min(n, independent), student(max(len(sizes) - 1, 1)))


def gain(gains: np.ndarray, clusters: np.ndarray) -> Interval:
    """The mean of what one answer gains over another on each question, from -1 to 1, (n,), with
    questions in `clusters`, labels (n,).

    Where hardly any question gains or loses, the deviation is hardly known, and none where none
    does. So the variance is that of the mean plus (t / 2n)^2, as in Wilson's interval: as if a
    further question had been gained or lost. It has no bounds if there is one cluster.
    """
    sizes, variance = _of_mean(gains, clusters)
    t = reach(len(sizes))
    half = t * math.sqrt(variance + (t / (2 * len(gains))) ** 2)
    value = float(gains.mean())
    return Interval(value, value - half, value + half)


def _of_mean(values: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, float]:
    """The number of values in each cluster, and the variance of the mean of all values."""
    n = len(values)
    columns = np.stack([values, np.ones(n)], axis=1)
    sums, sizes = cluster_sums(columns, clusters).T
    deviations = sums - values.mean() * sizes
    free = max(len(sizes) - 1, 1)
    return sizes, float((deviations**2).sum()) / n**2 * len(sizes) / free


def mcnemar(only_this: int, only_that: int) -> float:
    """McNemar's exact test, two-sided; the counts are of questions on which only one of two answers
    is right.
    """
    at_most = binomial(only_this + only_that, 0.5)
    one_sided = float(at_most[min(only_this, only_that)])
    return min(1.0, 2 * one_sided)


def quantile(values: np.ndarray, share: float) -> Interval:
    """The value below which this share of the values (n,) lies, between two of them that bound it
    whatever their law.

    The bounds are at most the largest and at least the smallest: of few values they may hold less
    often than LEVEL.
    """
    if not len(values):
        return NOTHING
    at_most = binomial(len(values), share)
    lower_tail = 0.5 - LEVEL / 2
    upper_tail = (1 + LEVEL) / 2
    low, high = np.searchsorted(at_most, [lower_tail, upper_tail])

    ordered = np.sort(values)
    value = np.quantile(ordered, share)
    lowest = ordered[max(low - 1, 0)]
    highest = ordered[min(high, len(values) - 1)]
    return Interval(float(value), float(lowest), float(highest))


def units(clusters: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The unit that each row is drawn with, (rows,): its cluster (from 0), or one of UNITS random
    groups of them.
    """
    n = int(clusters.max(initial=-1)) + 1
    if n <= UNITS:
        return clusters
    return (generator.permutation(n) % UNITS)[clusters]


def cluster_sums(columns: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Sum `columns` (rows, m) within each cluster label (rows,): (clusters, m), in the labels'
    sorted order.
    """
    columns = np.asarray(columns, dtype=float)
    _, numbers = np.unique(clusters, return_inverse=True)
    return np.stack([np.bincount(numbers, weights=column) for column in columns.T], axis=1)


def bootstrap(
    sums: np.ndarray, statistic: Statistic, generator: np.random.Generator, resamples: int
) -> Interval:
    """Bootstrap of a function of column sums: `sums` is (n, m), a row per independent unit or
    cluster.

    Resamples on which the statistic is undefined (NaN) are left out of the interval.
    """
    return bootstraps(sums, {"": (statistic, slice(None))}, generator, resamples)[""]


def bootstraps(
    sums: np.ndarray,
    statistics: Mapping[Any, tuple[Statistic, slice]],
    generator: np.random.Generator,
    resamples: int,
) -> dict[Any, Interval]:
    """`bootstrap` of many functions, each of some of the columns, over the same resamples.

    An interval is as wide as those clusters make it that have a value in a function's columns.
    """
    sums = np.asarray(sums, dtype=float)
    if not len(sums):
        return dict.fromkeys(statistics, NOTHING)
    if len(sums) > UNITS:
        sums = cluster_sums(sums, units(np.arange(len(sums)), generator))
    blocks = [counts @ sums for counts in resampled(len(sums), generator, resamples)]
    drawn = np.concatenate(blocks)

    intervals = {}
    for key, (statistic, place) in statistics.items():
        columns = sums[:, place]
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(statistic(columns.sum(axis=0, keepdims=True))[0])
            values = statistic(drawn[:, place])
        clusters = int(np.count_nonzero(columns.any(axis=1)))
        intervals[key] = percentiles(value, values, clusters)
    return intervals


def of_clusters(
    figures: Iterable[tuple[Any, Statistic, Sequence[np.ndarray]]],
    clusters: np.ndarray,
    generator: np.random.Generator,
    resamples: int,
) -> dict[Any, Interval]:
    """For each (key, statistic, columns) the statistic of the columns' sums, all over the same
    resamples of clusters.

    Columns and `clusters`, which are labels, are (n,). Columns are summed as they come, so those of
    one key are in memory at a time.
    """
    numbers = units(np.unique(clusters, return_inverse=True)[1], generator)
    sums: list[np.ndarray] = []
    statistics = {}
    for key, statistic, columns in figures:
        place = slice(len(sums), len(sums) + len(columns))
        statistics[key] = (statistic, place)
        sums += [np.bincount(numbers, weights=column) for column in columns]
    if not sums:
        return {}
    return bootstraps(np.stack(sums, axis=1), statistics, generator, resamples)


def resampled(n: int, generator: np.random.Generator, resamples: int) -> Iterator[np.ndarray]:
    """Yield how often each of n units is drawn in each resample, (some resamples, n) int64 at a
    time.
    """
    block = max(1, min(resamples, _BLOCK // n))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        picks = generator.integers(0, n, (size, n))
        cells = picks + np.arange(size)[:, None] * n
        counts = np.bincount(cells.ravel(), minlength=size * n)
        yield counts.reshape(size, n)


def percentiles(value: float, values: np.ndarray, clusters: int) -> Interval:
    """A figure with an interval from its `values` (resamples,) over resamples of so many clusters.

    The bounds lie where the percentiles do, but farther by `reach` over the normal quantile:
    percentiles alone are too near where clusters are few. A figure of one cluster has no interval,
    and is NOTHING. Values that are not defined (NaN) are left out.
    """
    values = values[np.isfinite(values)]
    if not math.isfinite(value) or not len(values) or clusters < 2:
        return NOTHING
    tail = (1 - LEVEL) / 2
    ends = np.quantile(values, [tail, (1 + LEVEL) / 2])
    low, high = value + (ends - value) * reach(clusters) / NORMAL
    return Interval(value, float(low), float(high))


def ratio(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 2) sums: the first column over the second (a mean, where the second
    counts rows).
    """
    return sums[:, 0] / sums[:, 1]


def mean(
    values: np.ndarray,
    generator: np.random.Generator,
    resamples: int,
    clusters: np.ndarray | None = None,
) -> Interval:
    """Mean of `values` (n,), bootstrap interval over rows, or over `clusters` (n,) of rows that
    belong together.
    """
    values = np.asarray(values, dtype=float)
    sums = np.stack([values, np.ones(len(values))], axis=1)
    if clusters is not None:
        sums = cluster_sums(sums, clusters)
    return bootstrap(sums, ratio, generator, resamples)


def pearson(sums: np.ndarray) -> np.ndarray:
    """Statistic of (resamples, 6) sums: Pearson's correlation of x and y, from sums of 1, x, y,
    x^2, y^2 and xy.
    """
    n, sx, sy, sxx, syy, sxy = sums.T
    covariance = sxy - sx * sy / n
    variance_x = sxx - sx * sx / n
    variance_y = syy - sy * sy / n
    return covariance / np.sqrt(variance_x * variance_y)
