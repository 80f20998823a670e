"""The ensemble's controls are compared with ensembles of the same documents."""

import math
from functools import partial
from types import SimpleNamespace

import logprob_tables
import numpy as np
import pytest

from pipelines.evaluation import control_figures, evaluate_lm
from pipelines.params import params


def test_controls_are_compared_on_the_same_documents(tmp_path):
    """With none, one or all documents in the prompt; a longer context is compared with each
    retriever's best one."""
    replug = params.Replug(top_k=3, temperature=1.0, mixture="token_mixture", vote=False)
    chosen = SimpleNamespace(seed=0, replug=replug, report=SimpleNamespace(bootstrap=40))
    n = logprob_tables.QUERIES
    logprob_tables.write(tmp_path / "tables")
    logprob_tables.write_queries(tmp_path / "queries.parquet")
    measured = evaluate_lm.measure(tmp_path / "tables", tmp_path / "queries.parquet", replug)
    counts = np.arange(n) % 4
    nats = np.linspace(3, 9, n)
    of_both = enumerate(("dense", "lsr"))
    concatenated = [
        control_figures.Control("concatenated", name, nats + i, counts, counts)
        for i, name in of_both
    ]
    longer = control_figures.Control("longer_context", "", nats + 2, 0 * counts, 7 + 0 * counts)
    intervals_of = partial(evaluate_lm.over_documents, measured.source_documents, chosen)
    ensembles = {}
    for name in ("dense", "lsr"):
        under = [measured.nats["none", 0], *(measured.nats[name, k] for k in (1, 2, 3))]
        ensembles[name] = np.stack(under)
    rows = control_figures.compare_controls(
        [*concatenated, longer], ensembles, measured.bytes, intervals_of
    )
    named = [
        (control, name)
        for control in ("concatenated", "longer_context")
        for name in ("dense", "lsr")
    ]
    assert [(row["control"], row["retriever"]) for row in rows] == named
    for row, control in zip(rows, (*concatenated, longer, longer), strict=True):
        under = ensembles[row["retriever"]]
        sizes = counts if row["control"] == "concatenated" else np.ones(n, int)
        same = sum(under[k][i] for i, k in enumerate(sizes))
        against = {
            "saved": under[0].sum(),
            "saved_over_same": same,
            "saved_over_ensemble": under[3].sum(),
        }
        for name, other in against.items():
            assert row[name]["value"] == pytest.approx(100 * (1 - control.nats.sum() / other))
            assert row[name]["low"] <= row[name]["value"] <= row[name]["high"]
        assert row["bits_per_byte"]["value"] == pytest.approx(
            control.nats.sum() / math.log(2) / measured.bytes.sum()
        )
        assert (row["k"], row["documents"]) == (
            3,
            np.mean([1, 2, 3] * 2 + [1]) if control is not longer else 0,
        )
        assert row["added_bytes"] == control.added_bytes.mean()
