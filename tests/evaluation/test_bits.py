"""Nats per query are those of the ensemble (REPLUG §3.2) over the table, for every k."""

from types import SimpleNamespace

import logprob_tables
import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.evaluation import evaluate_lm
from pipelines.params import params
from pipelines.replug import attribution_figures, ensemble
from pipelines.scoring.bits_per_byte import bits_per_byte_of_sums, percent_saved


def replug(mixture: str, **changes) -> params.Replug:
    return params.Replug(
        **{"mixture": mixture, "top_k": 3, "temperature": 0.5, "vote": False} | changes
    )


def test_an_interval_stays_within_what_its_figure_can_be():
    """Of two documents it is far wider than what lies between them."""
    documents = np.array(["a", "b"])
    settings = SimpleNamespace(seed=0, report=SimpleNamespace(bootstrap=100))
    nats = np.array([0.1, 5.0])
    ones = np.ones(2)
    statistics = [
        ("bits", bits_per_byte_of_sums, [nats, ones]),
        ("perplexity", evaluate_lm._perplexity, [nats, ones]),
        ("saved", percent_saved, [nats, np.array([5.0, 5.1])]),
    ]
    figures = evaluate_lm.over_documents(documents, settings, statistics)
    assert (figures["bits"]["low"], figures["perplexity"]["low"]) == (0, 1)
    assert figures["saved"]["high"] == 100

    sums = attribution_figures.TokenSums(2)
    memory = np.array([0.5, 1.0])
    sums.add(nats, nats, memory, np.array([5, 5]), np.array([0, 1]))
    found = sums.figures(seed=0, resamples=100)
    for figure in (found["memory"], found["by_frequency"][0]["memory"]):
        assert 0 <= figure["low"] < figure["value"] < figure["high"] <= 1
    assert found["by_frequency"][0]["none"]["low"] == 0


@pytest.fixture
def folder(tmp_path):
    logprob_tables.write(tmp_path / "tables")
    logprob_tables.write_queries(tmp_path / "tables/queries.parquet")
    return tmp_path / "tables"


def by_the_ensemble(
    rows, query: str, retriever: str, k: int, temperature: float, mixture: str
) -> float:
    """Nats of one query with its first k documents; of none, nats without documents."""
    said = {r["doc_id"]: r["log_probs"] for r in rows["logprobs"] if r["query_id"] == query}
    found = [r for r in rows["retrieved"] if (r["query_id"], r["retriever"]) == (query, retriever)]
    top = [r for r in found if r["rank"] <= k and r["doc_id"]]
    if not top:
        return -sum(said[""])
    weights = ensemble.log_weights(np.array([[r["similarity"] for r in top]]), temperature)
    return -ensemble.MIXTURES[mixture](np.array([[said[r["doc_id"]] for r in top]]), weights).sum()


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.004), (2, 40.0), (3, 0.5)])
@pytest.mark.parametrize("mixture", ["token_mixture", "sequence_mixture"])
def test_nats_are_the_ensembles_for_any_k_and_temperature(folder, k, temperature, mixture):
    chosen = replug(mixture, top_k=k, temperature=temperature)
    measured = evaluate_lm.measure(folder, folder / "queries.parquet", chosen)
    assert measured.ids.tolist() == [f"q{i:02}" for i in range(logprob_tables.QUERIES)]
    wanted = {(name, n) for name in ("bm25", "dense", "lsr", "random") for n in (1, 2, 3)}
    wanted |= {("none", 0), ("dense@0.5", k), ("dense@1", k)}
    assert set(measured.nats) == wanted
    rows = {
        name: pq.read_table(folder / f"{name}.parquet").to_pylist()
        for name in ("logprobs", "retrieved")
    }
    for (name, n), nats in measured.nats.items():
        asked = logprob_tables.DRAWN if "@" in name else logprob_tables.QUERIES
        expected = [
            by_the_ensemble(rows, query, name, n, temperature, mixture)
            for query in measured.ids[:asked]
        ]
        np.testing.assert_allclose(nats[:asked], expected, rtol=1e-6)
        assert np.isnan(nats[asked:]).all()
    alone = [row for row in rows["logprobs"] if row["doc_id"] == ""]
    assert measured.bytes.tolist() == [sum(row["bytes"]) for row in alone]
    assert measured.tokens.tolist() == [len(row["log_probs"]) for row in alone]
