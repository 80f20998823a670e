"""Nats per query are what the ensemble's formula (REPLUG §3.2) says of the table, for every k."""

import math
import sys

import logprob_tables
import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines import params
from pipelines.replug import bits

SETTINGS = {"top_k": 3, "temperature": 0.5, "vote": False}


@pytest.fixture
def folder(tmp_path):
    logprob_tables.write(tmp_path / "tables")
    return tmp_path / "tables"


def by_formula(
    rows: dict[str, list[dict]], query: str, retriever: str, k: int, temperature: float, mixture: str
) -> float:
    """-log of sum_d lambda_d p(y | d, x), by token or of the whole, with nothing but math."""
    said = {r["doc_id"]: r["log_probs"] for r in rows["logprobs"] if r["query_id"] == query}
    own = [r for r in rows["retrieved"] if (r["query_id"], r["retriever"]) == (query, retriever)]
    top = [r for r in own if r["rank"] <= k and r["doc_id"]]
    if not top:
        return -sum(said[""])
    exps = [math.exp(r["similarity"] / temperature) for r in top]
    weights = [e / sum(exps) for e in exps]
    each = [said[r["doc_id"]] for r in top]
    if mixture == "sequence_mixture":
        return -math.log(sum(w * math.exp(sum(own)) for w, own in zip(weights, each, strict=True)))
    return -sum(
        math.log(sum(w * math.exp(own[t]) for w, own in zip(weights, each, strict=True))) for t in range(len(each[0]))
    )


@pytest.mark.parametrize("mixture", ["token_mixture", "sequence_mixture"])
def test_nats_are_the_formulas(folder, mixture):
    measured = bits.measure(folder, params.Replug(mixture=mixture, **SETTINGS))
    assert measured.ids.tolist() == [f"q{i:02}" for i in range(logprob_tables.QUERIES)]
    wanted = {(name, k, 0.5) for name in ("bm25", "dense", "lsr", "random") for k in (1, 2, 3)} | {("none", 0, 0.5)}
    wanted |= {(name, 3, t) for name in ("bm25", "dense", "lsr", "random") for t in bits.TEMPERATURES}
    assert set(measured.nats) == wanted | {("dense@0.5", 3, 0.5), ("dense@1", 3, 0.5)}
    rows = {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("logprobs", "retrieved")}
    for (name, k, temperature), nats in measured.nats.items():
        asked = logprob_tables.DRAWN if "@" in name else logprob_tables.QUERIES
        expected = [by_formula(rows, query, name, k, temperature, mixture) for query in measured.ids[:asked]]
        np.testing.assert_allclose(nats[:asked], expected, rtol=1e-6)
        assert np.isnan(nats[asked:]).all()


@pytest.mark.parametrize("mixture", ["token_mixture", "sequence_mixture"])
def test_the_grid_mixes_in_the_model_without_documents_token_by_token(folder, mixture):
    replug = params.Replug(mixture=mixture, **SETTINGS | {"top_k": 2})
    measured, settings = bits.measure(folder, replug), bits.grid_settings(replug)
    assert settings[0] == (0.5, 0.0), "the setting in use comes first"
    assert set(measured.grid) == {"bm25", "dense", "lsr", "random"}
    assert {nats.shape for nats in measured.grid.values()} == {(logprob_tables.QUERIES, len(settings))}
    for place, (temperature, weight) in enumerate(settings):
        at_temperature = bits.measure(
            folder, params.Replug(mixture=mixture, **SETTINGS | {"top_k": 2, "temperature": temperature})
        )
        for name, nats in measured.grid.items():
            if weight == 0:
                np.testing.assert_allclose(nats[:, place], at_temperature.nats[name, 2, temperature], rtol=1e-12)
    table = pq.read_table(folder / "logprobs.parquet").to_pylist()
    found = pq.read_table(folder / "retrieved.parquet").to_pylist()
    said = {(r["query_id"], r["doc_id"]): r["log_probs"] for r in table}
    (top,) = ([r["doc_id"] for r in found if (r["query_id"], r["retriever"], r["rank"]) == ("q03", "dense", 1)],)
    alone, document = said["q03", ""], said["q03", top[0]]
    one = bits.measure(folder, params.Replug(mixture=mixture, **SETTINGS | {"top_k": 1}))
    nats = -sum(math.log(0.7 * math.exp(d) + 0.3 * math.exp(a)) for d, a in zip(document, alone, strict=True))
    assert one.grid["dense"][3, settings.index((0.5, 0.3))] == pytest.approx(nats)


def test_bytes_and_tokens_are_the_continuations(folder):
    measured = bits.measure(folder, params.Replug(mixture="token_mixture", **SETTINGS))
    alone = [r for r in pq.read_table(folder / "logprobs.parquet").to_pylist() if r["doc_id"] == ""]
    assert measured.bytes.tolist() == [sum(row["bytes"]) for row in alone]
    assert measured.tokens.tolist() == [len(row["log_probs"]) for row in alone]


def test_fewer_documents_than_scored_are_enough_for_what_is_measured_at_one_k(folder):
    measured = bits.measure(folder, params.Replug(mixture="token_mixture", top_k=2, temperature=1.0, vote=False))
    assert ("dense", 3, 1.0) in measured.nats
    assert ("dense", 2, 0.1) in measured.nats
    assert ("dense@1", 2, 1.0) in measured.nats


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.004), (2, 0.037), (3, 40.0)])
@pytest.mark.parametrize("mixture", ["token_mixture", "sequence_mixture"])
def test_any_k_and_temperature_are_queries_over_the_table_where_no_language_model_can_be_asked(
    folder, monkeypatch, k, temperature, mixture
):
    models = (f"pipelines.lm.{name}" for name in ("open_lm", "local", "http_model"))
    for name in ("torch", "transformers", "requests", *models):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    measured = bits.measure(folder, params.Replug(top_k=k, temperature=temperature, mixture=mixture, vote=False))
    rows = {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("logprobs", "retrieved")}
    for name in ("bm25", "dense", "lsr", "random"):
        found = measured.nats[name, k, temperature]
        expected = [by_formula(rows, query, name, k, temperature, mixture) for query in measured.ids]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
