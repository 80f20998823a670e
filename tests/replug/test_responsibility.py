"""Shares of a token's probability: they add up, equal their definition, and are written for
every scored token.
"""

import json
import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
import scored_texts
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipelines.replug import attribution, ensemble, responsibility
from pipelines.scoring.logprob_files import ScoredTexts

METRICS = attribution.METRICS / "attribution_pile.json"


@st.composite
def texts(draw):
    """Texts of unequal lengths, some with empty places."""
    n, k, tokens = (draw(st.integers(1, most)) for most in (3, 5, 6))
    lengths = draw(arrays.arrays(np.int64, n, elements=st.integers(0, tokens)))
    real = np.arange(tokens) < lengths[:, None]
    closed = np.where(
        real, draw(arrays.arrays(np.float64, (n, tokens), elements=st.floats(-15, -5))), 0.0
    )
    more = draw(arrays.arrays(np.float64, (n, k, tokens), elements=st.floats(-15, 10)))
    similarities = draw(
        arrays.arrays(np.float64, (n, k), elements=st.floats(-1, 1) | st.just(-math.inf))
    )
    empty = np.isneginf(similarities)[:, :, None]
    log_probs = np.where(
        real[:, None] & ~empty, np.minimum(closed[:, None] + more, 0.0), closed[:, None]
    )
    ids, names = np.array(list("abc")[:n], object), np.full((n, k), "d", object)
    return ScoredTexts(ids, real * 2, lengths, closed, log_probs, similarities, names)


@given(
    made=texts(),
    mixture=st.sampled_from(list(ensemble.MIXTURES)),
    temperature=st.sampled_from([1.0, 0.1]),
)
def test_responsibility_is_its_definition(made, mixture, temperature):
    found = responsibility.attribute_tokens(made, temperature, mixture)
    log_weights = ensemble.log_weights(made.similarities, temperature)
    np.testing.assert_allclose(
        found.mixed, ensemble.MIXTURES[mixture](made.log_probs, log_weights), atol=1e-9
    )
    np.testing.assert_allclose(found.weights, np.exp(log_weights))
    for i, weights in enumerate(np.exp(log_weights).tolist()):
        for t in range(made.lengths[i]):
            p = [math.exp(x) for x in made.log_probs[i, :, t]]
            none = math.exp(made.log_probs_alone[i, t])
            pairs = list(zip(weights, p, strict=True))
            total = sum(w * x for w, x in pairs)
            assert found.memory[i, t] == pytest.approx(
                sum(w * min(x, none) for w, x in pairs) / total
            )
            own = [w * max(0.0, x - none) / total for w, x in pairs]
            np.testing.assert_allclose(found.documents[i, :, t], own, rtol=1e-6, atol=1e-9)
            posterior = [w * x / total for w, x in pairs]
            np.testing.assert_allclose(found.responsibilities[i, :, t], posterior, rtol=1e-6)
            if mixture == "sequence_mixture":  # the token's posterior is the next token's prior
                weights = posterior
    whole = responsibility.means_over_tokens(found.memory, made) + responsibility.means_over_tokens(
        found.documents, made
    ).sum(1)
    np.testing.assert_allclose(whole, made.lengths > 0, atol=1e-9)


def test_a_tokens_text_is_its_bytes():
    # of several tokens inside one character the first has all its bytes
    expected = [" né", " 東🙂", "", "", "東"]
    assert responsibility.token_texts(" né 東🙂東", np.array([4, 8, 0, 0, 3])) == expected
    assert responsibility.token_texts("", np.array([], np.int64)) == []


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The scored texts of scored_texts.py, a row group for each query, and what the stage wrote."""
    monkeypatch.chdir(tmp_path)
    params, scored = scored_texts.write(tmp_path)
    for file in (tmp_path / "data/logprobs/pile/tiny").iterdir():
        rows = pq.read_table(file)
        with pq.ParquetWriter(file, rows.schema) as writer:
            for query in scored_texts.CONTINUATIONS:
                writer.write_table(rows.filter(pa.compute.equal(rows["query_id"], query)))
    log_probs = {(row["query_id"], row["doc_id"]): row["log_probs"].tolist() for row in scored}
    return SimpleNamespace(
        params=params, log_probs=log_probs, returned=attribution.attribute_corpus(params, "pile")
    )


def table(name):
    return pq.read_table(attribution.OUT / f"pile/{name}.parquet").to_pylist()


@pytest.mark.parametrize(
    ("block", "temperature", "mixture"), [(2, 1.0, "token_mixture"), (1, 0.3, "sequence_mixture")]
)
def test_every_token_is_written_with_its_shares(
    project, monkeypatch, capsys, block, temperature, mixture
):
    monkeypatch.setattr(attribution, "TEXTS_AT_ONCE", block)
    project.params.replug = SimpleNamespace(top_k=2, temperature=temperature, mixture=mixture)
    attribution.attribute_corpus(project.params, "pile")
    assert "attribute@pile: 100%|██████████| 6/6 " in capsys.readouterr().err
    tokens, texts = table("tokens"), table("texts")
    keys = [(text["retriever"], text["query_id"]) for text in texts]
    assert keys == [
        (retriever, query) for retriever in ("dense", "lsr") for query in scored_texts.CONTINUATIONS
    ]
    lighter = math.exp(-0.45 / temperature)  # similarities 0.9 and 0.45
    for key, text in zip(keys, texts, strict=True):
        retriever, query = key
        own = [row for row in tokens if (row["retriever"], row["query_id"]) == key]
        assert "".join(row["text"] for row in own) == scored_texts.CONTINUATIONS[query]
        assert [row["token"] for row in own] == list(range(text["tokens"]))
        weights = [1 / (1 + lighter), lighter / (1 + lighter)]
        ids = ["d1", "d0"] if retriever == "dense" else ["d0", "d2"]
        if key == ("lsr", "q1"):  # found one document less
            weights, ids = [1, 0], ["d0", ""]
        assert (text["doc_ids"], text["weights"]) == (ids, pytest.approx(weights))
        each = [[math.exp(x) for x in project.log_probs[query, id_]] for id_ in ids]
        if mixture == "token_mixture":
            mixed = [
                math.log(sum(w * p for w, p in zip(weights, of, strict=True)))
                for of in zip(*each, strict=True)
            ]
            assert [row["log_prob"] for row in own] == pytest.approx(mixed, abs=1e-5)
            assert text["nats"] == pytest.approx(-sum(mixed), abs=1e-4)
        else:
            whole = sum(w * math.prod(p) for w, p in zip(weights, each, strict=True))
            assert text["nats"] == pytest.approx(-math.log(whole), abs=1e-4)
        assert [row["log_prob_none"] for row in own] == pytest.approx(project.log_probs[query, ""])
        shares = np.array([[row["memory"], *row["documents"]] for row in own])
        np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose([text["memory"], *text["documents"]], shares.mean(0), atol=1e-5)


def test_gains_are_told_by_how_rare_the_word_is(project):
    """Resamples are of source documents."""
    frequencies = {(r["query_id"], r["text"]): r["frequency"] for r in table("tokens")}
    # a text's last word may go on
    assert frequencies == {
        ("q0", " Velm"): 3, ("q0", " is"): 0, ("q0", " in"): 1, ("q0", " Norland."): 0,
        ("q1", " Oslo,"): 3, ("q1", " they"): 0, ("q1", " say"): None,
        ("q2", " the"): 6, ("q2", " "): None,
    }  # fmt: skip
    found = json.loads(METRICS.read_text())["lsr"]
    own = [r for r in table("tokens") if r["retriever"] == "lsr"]
    never, some = found["by_frequency"]
    assert [(row["least"], row["most"], row["tokens"]) for row in (never, some)] == [
        (0, 0, 3),
        (1, 9, 5),
    ]
    rare = np.array(
        [(r["log_prob"], r["log_prob_none"]) for r in own if r["frequency"] == 0]
    ) / math.log(2)
    assert never["gain"]["value"] == pytest.approx((rare[:, 0] - rare[:, 1]).mean(), abs=1e-5)
    assert never["none"]["value"] == pytest.approx(-rare[:, 1].mean(), abs=1e-5)
    assert found["memory"]["value"] == pytest.approx(np.mean([r["memory"] for r in own]), abs=1e-5)
    assert project.returned["lsr.memory"] == found["memory"]["value"]
    path = "data/corpus/pile/queries.parquet"
    pq.write_table(
        pq.read_table(path).drop("source_document").append_column("source_document", [["s"] * 3]),
        path,
    )
    attribution.attribute_corpus(project.params, "pile")
    memory = json.loads(METRICS.read_text())["lsr"]["memory"]
    assert found["memory"]["low"] < found["memory"]["high"]
    assert memory == {"value": None, "low": None, "high": None}, (
        "a figure of one document has no interval"
    )
