"""Beside bits per byte: the ensemble's controls, and what settings chosen on other texts save."""

import math
from functools import partial
from types import SimpleNamespace

import logprob_tables
import numpy as np
import pytest

from pipelines import draws
from pipelines.evaluation import evaluate_lm
from pipelines.params import params
from pipelines.replug import bits
from pipelines.studies import controls, settings

REPLUG = params.Replug(top_k=3, temperature=1.0, mixture="token_mixture", vote=False)
PARAMS = SimpleNamespace(seed=0, replug=REPLUG, report=SimpleNamespace(bootstrap=40))
DOCUMENTS = np.array([f"s{i // 2}" for i in range(logprob_tables.QUERIES)], object)  # of the queries
HALF = np.array([draws.uniform(0, settings.HALVES, name) >= 0.5 for name in DOCUMENTS])  # the second
INTERVALS_OF = partial(evaluate_lm.bootstrap_rows, DOCUMENTS.astype(str), PARAMS)


@pytest.fixture
def measured(tmp_path):
    logprob_tables.write(tmp_path / "tables")
    return bits.measure(tmp_path / "tables", REPLUG)


def test_controls_are_compared_with_the_ensemble_of_the_same_documents(measured):
    """With none, one or all documents in the prompt; a longer context is compared with each retriever's best one."""
    n = logprob_tables.QUERIES
    counts, nats = np.arange(n) % 4, np.linspace(3, 9, n)
    of_both = enumerate(("dense", "lsr"))
    concatenated = [controls.Control("concatenated", name, nats + i, counts, counts) for i, name in of_both]
    longer = controls.Control("longer_context", "", nats + 2, 0 * counts, 7 + 0 * counts)
    rows = controls.compare_controls(measured, [*concatenated, longer], PARAMS, INTERVALS_OF)
    named = [(control, name) for control in ("concatenated", "longer_context") for name in ("dense", "lsr")]
    assert [(row["control"], row["retriever"]) for row in rows] == named
    for row, control in zip(rows, (*concatenated, longer, longer), strict=True):
        under = {k: measured.nats[row["retriever"], k, 1.0] for k in (1, 2, 3)} | {0: measured.nats["none", 0, 1.0]}
        sizes = counts if row["control"] == "concatenated" else np.ones(n, int)
        same = sum(under[k][i] for i, k in enumerate(sizes))
        against = {"saved": under[0].sum(), "saved_over_same": same, "saved_over_ensemble": under[3].sum()}
        for name, other in against.items():
            assert row[name]["value"] == pytest.approx(100 * (1 - control.nats.sum() / other))
            assert row[name]["low"] <= row[name]["value"] <= row[name]["high"]
        assert row["bits_per_byte"]["value"] == pytest.approx(control.nats.sum() / math.log(2) / measured.bytes.sum())
        assert (row["k"], row["documents"]) == (3, np.mean([1, 2, 3] * 2 + [1]) if control is not longer else 0)
        assert row["added_bytes"] == control.added_bytes.mean()


def test_every_document_is_judged_by_the_setting_that_is_best_on_the_other_half(measured):
    grid, half = bits.grid_settings(REPLUG), HALF.astype(int)
    assert set(half) == {0, 1}
    rows = {
        (row["retriever"], row["chosen"]): row
        for row in settings.choose_settings(measured, PARAMS, INTERVALS_OF, DOCUMENTS.astype(str))
    }
    assert len(rows) == 4 * 3
    none, fixed = (measured.nats[key].sum() for key in (("none", 0, 1.0), ("dense", 3, 1.0)))
    for chosen in ("temperature", "weight", "both"):
        row, nats = rows["dense", chosen], 0.0
        fixed_one = {"temperature": (1, 0), "weight": (0, 1.0)}.get(chosen)  # (place, value)
        allowed = [i for i, s in enumerate(grid) if fixed_one is None or s[fixed_one[0]] == fixed_one[1]]
        for judged in (0, 1):
            sums = measured.grid["dense"][half != judged].sum(0)
            best = min(allowed, key=sums.__getitem__)
            assert (row[f"temperature_{judged + 1}"], row[f"weight_{judged + 1}"]) == grid[best]
            nats += measured.grid["dense"][half == judged, best].sum()
        assert row["bits_per_byte"]["value"] == pytest.approx(nats / math.log(2) / measured.bytes.sum())
        assert row["saved"]["value"] == pytest.approx(100 * (1 - nats / none))
        assert row["saved_over_fixed"]["value"] == pytest.approx(100 * (1 - nats / fixed))
        assert row["k"] == 3


def test_every_resample_chooses_again(measured):
    """A loop over resamples: the interval is that of the whole procedure, not of the chosen setting."""
    names, numbers = np.unique(DOCUMENTS, return_inverse=True)
    values = []
    for picks in draws.generator(0, "language modelling").integers(0, len(names), (40, len(names))):
        times = np.bincount(picks, minlength=len(names))[numbers]
        nats = [(measured.grid["lsr"] * (times * (i == HALF))[:, None]).sum(0) for i in (0, 1)]
        chosen = nats[1][nats[0].argmin()] + nats[0][nats[1].argmin()]
        values.append(100 * (1 - chosen / (measured.nats["none", 0, 1.0] * times).sum()))
    rows = settings.choose_settings(measured, PARAMS, INTERVALS_OF, DOCUMENTS.astype(str))
    (row,) = (row for row in rows if (row["retriever"], row["chosen"]) == ("lsr", "both"))
    assert [row["saved"]["low"], row["saved"]["high"]] == pytest.approx(np.quantile(values, [0.025, 0.975]))
