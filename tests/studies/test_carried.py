"""Thresholds of another model: judged on this one's held-out questions, beside thresholds of its
own."""

from types import SimpleNamespace

import numpy as np
import pytest
from adaptive_pairs import CHOSEN, made_pairs, splits

from pipelines.adaptive import held_out
from pipelines.studies import carried


@pytest.fixture(scope="module")
def small():
    """Both answers of 300 questions, and their thresholds."""
    pairs = made_pairs(300)
    return pairs, fitted(pairs)


def fitted(pairs):
    return held_out.fit_all(pairs, *held_out.sides(pairs, CHOSEN, 0, 50), CHOSEN.search, CHOSEN)


def accuracies(pairs, cuts):
    """Each question's accuracy over the splits that hold its subject out, question by question."""
    right = []
    for i, train in enumerate(splits(pairs)):
        cut = cuts[pairs.relations[i]][~train]
        right.append(
            np.where(pairs.signal[i] < cut, pairs.right_below[i], pairs.right_above[i]).mean()
            if len(cut)
            else np.nan
        )
    return np.array(right)


def test_a_model_is_judged_by_anothers_thresholds(small):
    pairs = made_pairs(300, crossing=100.0)
    large = pairs.take(pairs.relations != "P3"), fitted(pairs)
    named = {("small", "dense"): small, ("large", "dense"): large, ("large", "bm25"): large}
    tables = {
        ("popqa", *name): (of, SimpleNamespace(fitted=cuts)) for name, (of, cuts) in named.items()
    }
    chosen = SimpleNamespace(thresholds=CHOSEN, seed=0, report=SimpleNamespace(bootstrap=50))
    rows = carried.rows_of_rules(tables, chosen)["carried"]
    judged = [(row["fitted"], row["lm"], row["method"]) for row in rows]
    assert judged == [("large", "small", "dense"), ("small", "large", "dense")]
    own, brought = (accuracies(small[0], thresholds.splits) for _, thresholds in (small, large))
    assert rows[0]["own"] == pytest.approx(np.nanmean(own))
    assert rows[0]["carried"] == pytest.approx(np.nanmean(brought))
    assert rows[0]["difference"] == pytest.approx(np.nanmean(brought - own))
    assert rows[0]["difference_high"] < 0
    assert rows[0]["retrieved_carried"] < rows[0]["retrieved_own"]


def test_a_relation_without_a_threshold_retrieves(small):
    pairs, known = small

    def zeros(cuts):
        return {relation: np.zeros_like(cut) for relation, cut in cuts.items()}

    never = held_out.Fitted(zeros(known.splits), zeros(known.whole), tuple(map(zeros, known.parts)))
    row = carried.compare_carried(
        pairs, never, held_out.Fitted({}, {}, ({},) * len(known.parts)), CHOSEN, 0, 50
    )
    assert (row["retrieved_own"], row["retrieved_carried"]) == (0, 1)
