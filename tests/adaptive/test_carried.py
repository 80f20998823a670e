"""Thresholds of another model or month: judged on this one's held-out questions, beside thresholds of its own."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adaptive_pairs import CHOSEN, made_pairs

from pipelines.adaptive import carried, held_out
from pipelines.errors import LongtailError


def tuned(pairs):
    return pairs, carried.fit(pairs, CHOSEN, 0, 50)


def accuracies(pairs, cuts):
    """Each question's accuracy over the splits that hold its subject out, question by question."""
    train = held_out.split_train(0, pairs.subjects, CHOSEN.splits, CHOSEN.train_share)
    right = []
    for i, relation in enumerate(pairs.relations):
        held = [split for split in range(CHOSEN.splits) if not train[i, split]]
        answers = [pairs.augmented[i] if pairs.signal[i] < cuts[relation][s] else pairs.closed[i] for s in held]
        right.append(np.mean(answers) if held else np.nan)
    return np.array(right)


def test_a_model_is_judged_by_the_thresholds_of_another_on_the_same_splits():
    small, large = tuned(made_pairs(300)), tuned(made_pairs(300, crossing=100.0))
    large = (large[0].take(large[0].relations != "P3"), large[1])
    tables = {("popqa", "small", "dense"): small, ("popqa", "large", "dense"): large}
    rows = carried.between_models(tables | {("popqa", "large", "bm25"): large}, CHOSEN, 0, 50)
    assert [(row["fitted"], row["judged"], row["lm"], row["method"]) for row in rows] == [
        ("large", "small", "small", "dense"),
        ("small", "large", "large", "dense"),
    ]
    own, brought = (accuracies(small[0], cuts) for cuts in (small[1].splits, large[1].splits))
    assert rows[0]["own"] == pytest.approx(np.nanmean(own))
    assert rows[0]["carried"] == pytest.approx(np.nanmean(brought))
    assert rows[0]["difference"] == pytest.approx(np.nanmean(brought - own))
    assert rows[0]["difference_high"] < 0
    assert rows[0]["difference_splits_low"] <= rows[0]["difference"] <= rows[0]["difference_splits_high"]
    assert rows[0]["retrieved_carried"] < rows[0]["retrieved_own"]


def test_a_relation_that_the_other_model_has_no_threshold_for_retrieves():
    pairs, fitted = tuned(made_pairs(300))
    nothing = fitted.each(lambda cuts: {relation: np.zeros_like(cut) for relation, cut in cuts.items()})
    row = carried.compare(pairs, nothing, fitted.each(lambda cuts: {}), CHOSEN, 0, 20)
    assert (row["retrieved_own"], row["retrieved_carried"]) == (0, 1)


def views(pairs, folder, month, values):
    path = folder / f"imported/popularity/popqa/{month}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"question_id": pairs.ids, "s_pop": pa.array(values, from_pandas=True)}), path)
    return path


def test_a_month_with_ten_times_the_views_costs_by_views_and_nothing_by_rank(tmp_path):
    pairs, fitted = tuned(made_pairs(300))
    views(pairs, tmp_path, "2025-10", pairs.popularity * 10)
    exact = CHOSEN.model_copy(update={"search": "exact"})
    rows = carried.between_months({("popqa", "tiny", "dense"): (pairs, fitted)}, tmp_path, exact, 0, 50)
    found = {(row["fitted"], row["judged"], row["scale"]): row for row in rows}
    assert set(found) == {
        (*months, scale) for months in (("this run", "2025-10"), ("2025-10", "this run")) for scale in carried.SCALES
    }
    for (*_, scale), row in found.items():
        assert row["questions"] == 300
        assert (row["difference"] == 0) if scale == "rank" else (row["difference_high"] < 0)
    assert found["this run", "2025-10", "views"]["retrieved_carried"] < 0.3  # most have more views than the thresholds
    assert found["2025-10", "this run", "views"]["retrieved_carried"] > 0.7
    assert found["this run", "2025-10", "views"]["own"] == pytest.approx(found["2025-10", "this run", "views"]["own"])


def test_questions_of_unknown_popularity_in_the_other_month_are_left_out(tmp_path):
    pairs, fitted = tuned(made_pairs(300))
    rng = np.random.default_rng(1)
    others = np.where(rng.random(300) < 0.2, np.nan, pairs.popularity * np.exp(rng.normal(0, 0.5, 300)))
    views(pairs, tmp_path, "2025-10", others)
    rows = carried.between_months({("popqa", "tiny", "dense"): (pairs, fitted)}, tmp_path, CHOSEN, 0, 50)
    known = np.isfinite(others)
    (row,) = [row for row in rows if (row["judged"], row["scale"]) == ("2025-10", "views")]
    here = pairs.take(known)
    there = replace(here, signal=others[known], popularity=others[known])
    there = there.take(np.lexsort((there.ids, there.signal, there.relations)))
    cuts = {
        name: held_out.fit(
            of_month, held_out.split_train(0, of_month.subjects, CHOSEN.splits, CHOSEN.train_share), "shrunk", CHOSEN
        )
        for name, of_month in (("here", here), ("there", there))
    }
    assert row["questions"] == known.sum()
    assert row["own"] == pytest.approx(np.nanmean(accuracies(there, cuts["there"])))
    assert row["carried"] == pytest.approx(np.nanmean(accuracies(there, cuts["here"])))


def test_by_rank_as_many_questions_are_below_the_threshold():
    here = made_pairs(200)
    rng = np.random.default_rng(2)
    there = replace(here, signal=rng.permutation(np.arange(1.0, 201)))
    there = there.take(np.lexsort((there.signal, there.relations)))
    cuts = {r: np.array([0.0, np.inf, 1e9, *here.signal[rows][[0, 3, -1]]]) for r, rows in here.members().items()}
    for relation, moved in carried.by_rank(cuts, here, there).items():
        below = [
            [int((pairs.signal[pairs.relations == relation] < cut).sum()) for cut in cuts_of_month]
            for pairs, cuts_of_month in ((here, cuts[relation]), (there, moved))
        ]
        assert below[0] == below[1]
        assert (moved[0], moved[1]) == (0.0, np.inf)


def test_a_table_without_page_views_is_named(tmp_path):
    path = tmp_path / "2025-10.parquet"
    pq.write_table(pa.table({"id": ["q1"]}), path)
    with pytest.raises(LongtailError, match=r"2025-10\.parquet: .*expected the columns question_id and s_pop") as error:
        carried.read_views(path)
    assert "\n" not in str(error.value)
