"""Thresholds of another model or month: judged on this one's held-out questions, beside thresholds of its own."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adaptive_pairs import CHOSEN, made_pairs, splits

from pipelines.adaptive import held_out
from pipelines.errors import LongtailError
from pipelines.studies import carried


@pytest.fixture(scope="module")
def small():
    """Both answers of 300 questions, and their thresholds."""
    pairs = made_pairs(300)
    return pairs, carried.fit_brought(pairs, CHOSEN, 0, 50)


def accuracies(pairs, cuts):
    """Each question's accuracy over the splits that hold its subject out, question by question."""
    right = []
    for i, train in enumerate(splits(pairs)):
        cut = cuts[pairs.relations[i]][~train]
        right.append(
            np.where(pairs.signal[i] < cut, pairs.right_below[i], pairs.right_above[i]).mean() if len(cut) else np.nan
        )
    return np.array(right)


def test_a_model_is_judged_by_the_thresholds_of_another_on_the_same_splits(small):
    pairs = made_pairs(300, crossing=100.0)
    large = pairs.take(pairs.relations != "P3"), carried.fit_brought(pairs, CHOSEN, 0, 50)
    tables = {("popqa", "small", "dense"): small, ("popqa", "large", "dense"): large, ("popqa", "large", "bm25"): large}
    rows = carried.between_models(tables, CHOSEN, 0, 50)
    assert [(row["fitted"], row["judged"], row["lm"], row["method"]) for row in rows] == [
        ("large", "small", "small", "dense"),
        ("small", "large", "large", "dense"),
    ]
    own, brought = (accuracies(small[0], fitted.splits) for _, fitted in (small, large))
    assert rows[0]["own"] == pytest.approx(np.nanmean(own))
    assert rows[0]["carried"] == pytest.approx(np.nanmean(brought))
    assert rows[0]["difference"] == pytest.approx(np.nanmean(brought - own))
    assert rows[0]["difference_high"] < 0
    assert rows[0]["difference_splits_low"] <= rows[0]["difference"] <= rows[0]["difference_splits_high"]
    assert rows[0]["retrieved_carried"] < rows[0]["retrieved_own"]


def test_a_relation_that_the_other_model_has_no_threshold_for_retrieves(small):
    pairs, fitted = small
    nothing = fitted.each(lambda cuts: {relation: np.zeros_like(cut) for relation, cut in cuts.items()})
    row = carried.compare_carried(pairs, nothing, fitted.each(lambda cuts: {}), CHOSEN, 0, 20)
    assert (row["retrieved_own"], row["retrieved_carried"]) == (0, 1)


def between_months(small, folder, values, search="shrunk"):
    """(fitted, judged, scale) -> row, with those page views in the other month."""
    file = folder / "imported/popularity/popqa/2025-10.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"question_id": small[0].ids, "s_pop": pa.array(values, from_pandas=True)}), file)
    chosen = CHOSEN.model_copy(update={"search": search})
    rows = carried.between_months({("popqa", "tiny", "dense"): small}, folder, chosen, 0, 50)
    return {(row["fitted"], row["judged"], row["scale"]): row for row in rows}


def test_a_month_with_ten_times_the_views_costs_by_views_and_nothing_by_rank(small, tmp_path):
    found = between_months(small, tmp_path, small[0].popularity * 10, "exact")
    assert set(found) == {
        (*months, scale) for months in (("this run", "2025-10"), ("2025-10", "this run")) for scale in carried.SCALES
    }
    for (*_, scale), row in found.items():
        assert row["questions"] == 300
        assert (row["difference"] == 0) if scale == "rank" else (row["difference_high"] < 0)
    later, earlier = found["this run", "2025-10", "views"], found["2025-10", "this run", "views"]
    assert later["retrieved_carried"] < 0.3  # most have more views than the thresholds
    assert earlier["retrieved_carried"] > 0.7
    assert later["own"] == pytest.approx(earlier["own"])


def test_questions_of_unknown_popularity_in_the_other_month_are_left_out(small, tmp_path):
    pairs, rng = small[0], np.random.default_rng(1)
    others = np.where(rng.random(300) < 0.2, np.nan, pairs.popularity * np.exp(rng.normal(0, 0.5, 300)))
    row = between_months(small, tmp_path, others)["this run", "2025-10", "views"]
    known = np.isfinite(others)
    here = pairs.take(known)
    there = replace(here, signal=others[known], popularity=others[known])
    there = there.take(np.lexsort((there.ids, there.signal, there.relations)))
    brought, own = (held_out.fit(of_month, splits(of_month), "shrunk", CHOSEN) for of_month in (here, there))
    assert row["questions"] == known.sum()
    assert row["own"] == pytest.approx(np.nanmean(accuracies(there, own)))
    assert row["carried"] == pytest.approx(np.nanmean(accuracies(there, brought)))


def test_by_rank_as_many_questions_are_below_the_threshold():
    here = made_pairs(200)
    there = replace(here, signal=np.random.default_rng(2).permutation(np.arange(1.0, 201)))
    there = there.take(np.lexsort((there.signal, there.relations)))
    cuts = {r: np.array([0.0, np.inf, 1e9, *here.signal[rows][[0, 3, -1]]]) for r, rows in here.members().items()}
    for relation, moved in carried.by_rank(cuts, here, there).items():
        before, after = (
            [int((pairs.signal[pairs.relations == relation] < cut).sum()) for cut in cuts_of_month]
            for pairs, cuts_of_month in ((here, cuts[relation]), (there, moved))
        )
        assert before == after
        assert (moved[0], moved[1]) == (0.0, np.inf)


def test_a_table_without_page_views_is_named(tmp_path):
    pq.write_table(pa.table({"id": ["q1"]}), tmp_path / "2025-10.parquet")
    with pytest.raises(LongtailError, match=r"2025-10\.parquet: .*expected the columns question_id and s_pop") as error:
        carried.read_views(tmp_path / "2025-10.parquet")
    assert "\n" not in str(error.value)
