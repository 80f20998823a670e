"""Thresholds fitted again to resampled subjects: the decisions as they are defined, and what the intervals cover."""

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, resampled, splits
from scipy import stats

from benchmarks import coverage
from pipelines import intervals
from pipelines.adaptive import held_out, refits


def test_a_resample_draws_subjects_as_often_as_there_are_and_cuts_them_into_parts_whole():
    pairs = made_pairs(300)
    drawn = resampled(pairs, resamples=30)
    for of_question in (drawn.times, drawn.parts):
        for subject in np.unique(pairs.subjects):
            rows = of_question[pairs.subjects == subject]
            assert (rows == rows[:1]).all()
    once = np.unique(pairs.subjects, return_index=True)[1]
    assert (drawn.times[once].sum(axis=0) == 100).all()
    assert drawn.n_parts == 4
    assert np.bincount(drawn.parts[once].ravel()) / (100 * 30) == pytest.approx(np.full(4, 0.25), abs=0.03)
    assert (resampled(pairs, resamples=10).times == drawn.times[:, :10]).all()


def test_shares_are_counted_on_the_part_that_thresholds_were_not_fitted_to():
    pairs = made_pairs(200)
    drawn = resampled(pairs, resamples=3)
    fitted = held_out.fit_all(pairs, splits(pairs), drawn, "exact", CHOSEN)
    policy = held_out.policy(pairs, np.full(200, 0.5), drawn, fitted)
    for resample in range(3):
        times, parts = drawn.times[:, [resample]], drawn.parts[:, resample]
        whole = held_out.below(pairs, held_out.fit(pairs, times, "exact", CHOSEN))
        assert (policy.fitted[:, [resample]] == whole).all()
        for part in range(4):
            others = times * (parts != part)[:, None]
            retrieves = held_out.below(pairs, held_out.fit(pairs, others, "exact", CHOSEN))[:, 0]
            assert (policy.counted[parts == part, resample] == retrieves[parts == part]).all()


def test_a_mean_is_the_held_out_figure_and_its_interval_the_deviation_of_the_resamples():
    pairs = made_pairs(300)
    drawn, train = resampled(pairs, resamples=50), splits(pairs)
    fitted = held_out.fit_all(pairs, train, drawn, "exact", CHOSEN)
    retrieved = held_out.judge(pairs, train, dict(fitted.splits)).retrieved
    policy = held_out.policy(pairs, retrieved, drawn, fitted)
    gains, held = pairs.gains(0.0), np.isfinite(retrieved)
    columns = {
        "adaptive": refits.Column(pairs.closed, {"": gains}),
        "retrieved": refits.Column(0.0, {"": 1.0}, apart=True),
    }
    expected = {
        "adaptive": (pairs.closed + retrieved * gains, pairs.closed[:, None] + policy.fitted * gains[:, None]),
        "retrieved": (retrieved, policy.fitted * 1.0, policy.counted * 1.0),
    }
    made = refits.means(columns, {"": policy}, drawn)
    for name, (of_questions, *ways) in expected.items():
        value, times = of_questions[held].mean(), drawn.times[held]
        of_resamples = [(times * again[held]).sum(axis=0) / times.sum(axis=0) for again in ways]
        half = stats.t.ppf(0.975, 49) * np.mean([values.std(ddof=1) for values in of_resamples])
        assert (made[name].value, made[name].low, made[name].high) == pytest.approx((value, value - half, value + half))


def test_a_share_and_an_accuracy_stay_between_nothing_and_everything():
    pairs = made_pairs(100)
    drawn = resampled(pairs, resamples=20)
    rng = np.random.default_rng(0)
    policy = refits.Policy(np.full(100, 0.99), rng.random((100, 20)) < 0.5, np.tile(rng.random(20) < 0.8, (100, 1)))
    columns = {"share": refits.Column(0.0, {"": 1.0}, apart=True), "cost": refits.Column(1.0, {"": 3.0}, apart=True)}
    made = refits.means(columns, {"": policy}, drawn)
    assert (made["share"].high, made["cost"].high) == (1.0, 4.0)
    assert made["share"].low < 0.99
    # a relation's eleven questions, of which ten are right
    subjects = np.array([f"Q{n}" for n in range(11)], dtype=object)
    drawn = refits.resample(subjects, subjects, 0.8, 0, 200)
    policy = refits.Policy(np.ones(11), *np.ones((2, *drawn.times.shape), bool))
    column = refits.Column(np.zeros(11), {"": (np.arange(11) > 0).astype(float)})
    accuracy = refits.means({"": column}, {"": policy}, drawn)[""]
    assert accuracy.low < 0.8 < accuracy.value < accuracy.high == 1.0


def test_very_many_questions_have_fewer_resamples_and_clusters_are_drawn_in_groups(monkeypatch):
    pairs = made_pairs(300)
    monkeypatch.setattr(refits, "CELLS", 300 * 45)
    assert resampled(pairs, resamples=1000).n == 45
    monkeypatch.setattr(intervals, "UNITS", 20)
    rng = np.random.default_rng(0)
    units = intervals.units(np.unique(pairs.subjects, return_inverse=True)[1], rng)
    assert np.bincount(units).tolist() == [15] * 20  # 5 of the 100 subjects, with 3 questions each
    values, widths = rng.random(4000), []
    for most in (20, 4000):
        monkeypatch.setattr(intervals, "UNITS", most)
        found = intervals.mean(values, np.random.default_rng(1), 2000)
        widths.append(found.high - found.low)
    assert widths[0] == pytest.approx(widths[1], rel=0.4)


@pytest.mark.slow
def test_intervals_cover_where_those_of_fixed_thresholds_do_not(monkeypatch):
    """40 data sets of 400 questions."""
    monkeypatch.setattr(coverage, "RESAMPLES", 60)
    monkeypatch.setattr(coverage, "CHOSEN", coverage.CHOSEN.model_copy(update={"search": "exact"}))
    world = coverage.World("mixed")

    def make(seed):
        yield from coverage.thresholds(world, 400, seed, "exact")
        pairs = world.draw(400, seed)
        train = held_out.split_train(seed, pairs.subjects, coverage.SPLITS, coverage.CHOSEN.train_share)
        judged = held_out.judge(pairs, train, held_out.fit(pairs, train, "exact", coverage.CHOSEN))
        yield "fixed", held_out.means({"": judged.retrieved}, pairs.subjects, seed, 200)[""]

    covered = {row[0]: row[3] for row in coverage.cover(make, 40, {})}
    fixed = covered.pop("fixed")
    assert fixed < 65 < 85 <= min(share for kind, share in covered.items() if "relation" not in kind)
