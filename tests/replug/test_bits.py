"""Nats per query are those of the ensemble (REPLUG §3.2) over the table, for every k."""

import math

import logprob_tables
import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.params import params
from pipelines.replug import bits, ensemble


def replug(mixture: str, **changes) -> params.Replug:
    return params.Replug(**{"mixture": mixture, "top_k": 3, "temperature": 0.5, "vote": False} | changes)


@pytest.fixture
def folder(tmp_path):
    logprob_tables.write(tmp_path / "tables")
    return tmp_path / "tables"


def by_the_ensemble(rows, query: str, retriever: str, k: int, temperature: float, mixture: str) -> float:
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
    measured = bits.measure(folder, replug(mixture, top_k=k, temperature=temperature))
    assert measured.ids.tolist() == [f"q{i:02}" for i in range(logprob_tables.QUERIES)]
    wanted = {(name, n, temperature) for name in ("bm25", "dense", "lsr", "random") for n in (1, 2, 3)}
    wanted |= {(name, k, t) for name in ("bm25", "dense", "lsr", "random") for t in bits.TEMPERATURES}
    wanted |= {("none", 0, temperature), ("dense@0.5", k, temperature), ("dense@1", k, temperature)}
    assert set(measured.nats) == wanted
    rows = {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("logprobs", "retrieved")}
    for (name, n, at), nats in measured.nats.items():
        asked = logprob_tables.DRAWN if "@" in name else logprob_tables.QUERIES
        expected = [by_the_ensemble(rows, query, name, n, at, mixture) for query in measured.ids[:asked]]
        np.testing.assert_allclose(nats[:asked], expected, rtol=1e-6)
        assert np.isnan(nats[asked:]).all()
    alone = [row for row in rows["logprobs"] if row["doc_id"] == ""]
    assert measured.bytes.tolist() == [sum(row["bytes"]) for row in alone]
    assert measured.tokens.tolist() == [len(row["log_probs"]) for row in alone]


@pytest.mark.parametrize("mixture", ["token_mixture", "sequence_mixture"])
def test_the_grid_mixes_in_the_model_without_documents_token_by_token(folder, mixture):
    measured, settings = bits.measure(folder, replug(mixture, top_k=2)), bits.grid_settings(replug(mixture))
    assert settings[0] == (0.5, 0.0), "the setting in use comes first"
    assert set(measured.grid) == {"bm25", "dense", "lsr", "random"}
    for temperature in bits.TEMPERATURES:
        for name, nats in measured.grid.items():
            own = nats[:, settings.index((temperature, 0.0))]
            np.testing.assert_allclose(own, measured.nats[name, 2, temperature], rtol=1e-12)
    table = pq.read_table(folder / "logprobs.parquet").to_pylist()
    found = pq.read_table(folder / "retrieved.parquet").to_pylist()
    said = {(r["query_id"], r["doc_id"]): r["log_probs"] for r in table}
    (top,) = (r["doc_id"] for r in found if (r["query_id"], r["retriever"], r["rank"]) == ("q03", "dense", 1))
    pairs = list(zip(said["q03", top], said["q03", ""], strict=True))
    one = bits.measure(folder, replug(mixture, top_k=1))
    nats = -sum(math.log(0.7 * math.exp(document) + 0.3 * math.exp(alone)) for document, alone in pairs)
    assert one.grid["dense"][3, settings.index((0.5, 0.3))] == pytest.approx(nats)
