"""Splits by subject, accuracies where thresholds were not fitted, and intervals of thresholds
fitted again.
"""

from dataclasses import replace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, resampled, splits, summary
from scipy import stats

from pipelines import intervals
from pipelines.adaptive import held_out, refits
from pipelines.adaptive.searches import SEARCHES


def fit_everything(pairs, search):
    """Each relation's threshold, fitted on all questions."""
    cuts = held_out.fit(pairs, np.ones((len(pairs.ids), 1), bool), search, CHOSEN)
    return {relation: float(cut[0]) for relation, cut in cuts.items()}


def test_a_subject_is_on_one_side_of_each_split():
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
    # questions of several subjects
    tied = np.random.default_rng(1).integers(1, 30, 300).astype(float)
    pairs, five = made_pairs(300, signal=tied), CHOSEN.model_copy(update={"splits": 5})
    train = splits(pairs, five)
    fitted = held_out.fit(pairs, train, search, five)
    cuts = np.array([fitted[relation] for relation in pairs.relations]).T
    retrieves = pairs.signal < cuts
    right = np.where(retrieves, pairs.right_below, pairs.right_above)
    held = ~train.all(axis=1)
    assert not held.all()
    expected = [
        (retrieves[~train[i], i].mean(), right[~train[i], i].mean()) if held[i] else (np.nan,) * 2
        for i in range(300)
    ]
    retrieved, adaptive = np.array(expected).T
    np.testing.assert_allclose(held_out.judge(pairs, train, fitted), retrieved)
    figures = summary(pairs, search, five, 5)
    assert figures["questions"] == held.sum()
    names = ("adaptive", "always", "never", "oracle", "retrieved")
    assert {name: figures[name]["value"] for name in names} == pytest.approx(
        {
            "adaptive": np.nanmean(adaptive),
            "always": pairs.right_below[held].mean(),
            "never": pairs.right_above[held].mean(),
            "oracle": (pairs.right_above | pairs.right_below)[held].mean(),
            "retrieved": np.nanmean(retrieved),
        }
    )
    # A question at the threshold does not retrieve.
    assert search != "exact" or (~train.T & (pairs.signal == cuts)).any()


def test_intervals_draw_subjects_and_not_questions():
    subjects = np.repeat(np.array(["a", "b", "c", "d"], dtype=object), 25)
    values = np.repeat([0.0, 0.0, 1.0, 1.0], 25)
    pairs = made_pairs(
        100, subjects=subjects, relations=subjects, signal=np.ones(100), right_below=values == 1
    )
    found = held_out.fixed_shares(pairs, np.ones(100))["always"]
    assert found == intervals.share(values == 1, subjects)
    assert found.high - found.low > 0.8, "four subjects say little"


@pytest.mark.parametrize(
    ("search", "crossing"), [("exact", 600.0), ("bins", 1000.0), ("shrunk", 1500.0)]
)
def test_adaptive_wins_where_there_is_a_crossing(search, crossing):
    pairs = made_pairs(crossing=crossing)
    figures = summary(pairs, search, resamples=300)
    assert figures["gain"]["low"] > 0.1
    assert figures["oracle"]["value"] >= figures["adaptive"]["value"]
    better = max(figures["always"]["value"], figures["never"]["value"])
    assert figures["gain"]["value"] == pytest.approx(figures["adaptive"]["value"] - better)
    cuts = held_out.fit(pairs, splits(pairs), search, CHOSEN)
    assert all(300 < np.median(cuts[f"P{i}"]) < 3000 for i in range(4))


@pytest.mark.parametrize("seed", [7, 15])
def test_the_gain_is_over_the_better_of_the_accuracies_shown(seed):
    """Of equally good policies the other one may be better in the mean over splits."""
    rng = np.random.default_rng(seed)
    right = rng.random((2, 60)) < 0.5
    pairs = made_pairs(60, right_above=right[0], right_below=right[1])
    of_splits = [pairs.gains[held].mean() for held in ~splits(pairs).T if held.any()]
    figures = summary(pairs)
    always, never = (figures[policy]["value"] for policy in ("always", "never"))
    assert (always - never) * np.mean(of_splits) < 0
    gain = figures["adaptive"]["value"] - max(always, never)
    assert figures["gain"]["value"] == pytest.approx(gain)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_gain_holds_the_truth_where_retrieving_is_best_for_every_question(search):
    """60 data sets of 150 questions that retrieving never harms: thresholds that are judged where
    they were fitted lose nothing, and held out they lose something.
    """
    gains = []
    for seed in range(60):
        luck = np.random.default_rng([seed, 1]).random(150)
        pairs = made_pairs(150, seed, right_above=luck < 0.4, right_below=luck < 0.6)
        figures = summary(pairs, search, resamples=20)
        gains.append(intervals.interval(figures["gain"]))
        assert figures["policy"] == "always"
        assert "150 questions are right, and an oracle would win 0 more" in figures["verdict"]
    truth = np.mean([gain.value for gain in gains])
    assert truth < -0.001
    assert np.mean([gain.low <= truth <= gain.high for gain in gains]) > 0.92
    assert np.mean([gain.high - gain.low for gain in gains]) < 0.09


@pytest.mark.parametrize("search", SEARCHES)
def test_rare_relations_take_the_threshold_of_all_together(search):
    pairs = made_pairs()
    together = replace(pairs, relations=np.full(600, "all", dtype=object))
    together = together.take(np.argsort(pairs.signal, kind="stable"))
    assert fit_everything(pairs, search)["rare"] == fit_everything(together, search)["all"]


@pytest.mark.parametrize("search", SEARCHES)
def test_one_question_of_a_relation_is_judged_held_out(search):
    pairs = made_pairs(1, right_above=np.array([False]), right_below=np.array([True]))
    train = np.array([[True, False]])
    found = held_out.judge(pairs, train, held_out.fit(pairs, train, search, CHOSEN))
    assert found.tolist() == [0.0], "nothing was learned: never retrieve"


def test_a_resample_draws_as_many_subjects_as_there_are():
    """It cuts them into parts whole."""
    pairs = made_pairs(300)
    drawn = resampled(pairs, resamples=30)
    for of_question in (drawn.times, drawn.parts):
        for subject in np.unique(pairs.subjects):
            rows = of_question[pairs.subjects == subject]
            assert (rows == rows[:1]).all()
    once = np.unique(pairs.subjects, return_index=True)[1]
    assert (drawn.times[once].sum(axis=0) == 100).all()
    assert drawn.n_parts == 4
    assert np.bincount(drawn.parts[once].ravel()) / (100 * 30) == pytest.approx(
        np.full(4, 0.25), abs=0.03
    )
    assert (resampled(pairs, resamples=10).times == drawn.times[:, :10]).all()


def test_shares_are_counted_on_the_held_out_part():
    pairs = made_pairs(200)
    train, drawn = splits(pairs), resampled(pairs, resamples=3)
    policy = held_out.fit_all(pairs, train, drawn, "exact", CHOSEN).policy
    for resample in range(3):
        times, parts = drawn.times[:, [resample]], drawn.parts[:, resample]
        whole = held_out.below(pairs, held_out.fit(pairs, times, "exact", CHOSEN))
        assert (policy.fitted[:, [resample]] == whole).all()
        for part in range(4):
            others = times * (parts != part)[:, None]
            retrieves = held_out.below(pairs, held_out.fit(pairs, others, "exact", CHOSEN))[:, 0]
            assert (policy.counted[parts == part, resample] == retrieves[parts == part]).all()


def test_a_mean_is_the_held_out_figure():
    """Its interval is from the deviation of the resamples."""
    pairs = made_pairs(300)
    drawn, train = resampled(pairs, resamples=50), splits(pairs)
    policy = held_out.fit_all(pairs, train, drawn, "exact", CHOSEN).policy
    retrieved = policy.retrieved
    gains, held = pairs.gains, np.isfinite(retrieved)
    columns = {
        "adaptive": refits.Column(pairs.right_above, {"": gains}),
        "retrieved": refits.Column(0.0, {"": 1.0}, apart=True),
    }
    expected = {
        "adaptive": (
            pairs.right_above + retrieved * gains,
            pairs.right_above[:, None] + policy.fitted * gains[:, None],
        ),
        "retrieved": (retrieved, policy.fitted * 1.0, policy.counted * 1.0),
    }
    made = refits.refitted_means(columns, {"": policy}, drawn)
    for name, (of_questions, *ways) in expected.items():
        value, times = of_questions[held].mean(), drawn.times[held]
        of_resamples = [(times * again[held]).sum(axis=0) / times.sum(axis=0) for again in ways]
        half = (
            stats.t.ppf(0.975, 99)
            * np.sqrt(100 / 99)
            * np.mean([values.std(ddof=1) for values in of_resamples])
        )
        assert (made[name].value, made[name].low, made[name].high) == pytest.approx(
            (value, value - half, value + half)
        )


def test_a_share_stays_between_nothing_and_everything():
    pairs = made_pairs(100)
    drawn = resampled(pairs, resamples=20)
    rng = np.random.default_rng(0)
    policy = refits.Policy(
        np.full(100, 0.99), rng.random((100, 20)) < 0.5, np.tile(rng.random(20) < 0.8, (100, 1))
    )
    columns = {
        "share": refits.Column(0.0, {"": 1.0}, apart=True),
        "cost": refits.Column(1.0, {"": 3.0}, apart=True),
    }
    made = refits.refitted_means(columns, {"": policy}, drawn)
    assert (made["share"].high, made["cost"].high) == (1.0, 4.0)
    assert made["share"].low < 0.99
    # a relation's eleven questions, of which ten are right
    subjects = np.array([f"Q{n}" for n in range(11)], dtype=object)
    drawn = refits.resample(subjects, subjects, 0.8, 0, 200)
    policy = refits.Policy(np.ones(11), *np.ones((2, *drawn.times.shape), bool))
    column = refits.Column(np.zeros(11), {"": (np.arange(11) > 0).astype(float)})
    accuracy = refits.refitted_means({"": column}, {"": policy}, drawn)[""]
    assert accuracy.low < 0.8 < accuracy.value < accuracy.high == 1.0


def test_very_many_questions_have_fewer_resamples(monkeypatch):
    """Clusters are then drawn in groups."""
    pairs = made_pairs(300)
    monkeypatch.setattr(refits, "CELLS", 300 * 45)
    assert resampled(pairs, resamples=1000).times.shape == (300, 45)
    monkeypatch.setattr(intervals, "UNITS", 20)
    rng = np.random.default_rng(0)
    units = intervals.units(np.unique(pairs.subjects, return_inverse=True)[1], rng)
    assert np.bincount(units).tolist() == [15] * 20  # 5 of the 100 subjects, with 3 questions each
    found = intervals.mean(rng.random(4000), rng, 2000)
    assert found.high - found.low == pytest.approx(2 * 1.96 / np.sqrt(12 * 4000), rel=0.4)
