"""Shares of a token's probability: they add up, equal their definition, and are written for every scored token."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
import scored_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipelines.replug import attribution, ensemble, rarity, responsibility
from pipelines.replug.responsibility import Texts

MIXTURES = list(ensemble.MIXTURES)
METRICS = attribution.METRICS / "attribution_pile.json"
SIMILARITY = st.one_of(st.floats(-1, 1), st.just(-math.inf))


@st.composite
def texts(draw, least=-15.0, most=0.0):
    """Texts of unequal lengths, some with empty places; documents give `least` to `most` nats more than none."""
    n, k, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 6))
    lengths = draw(arrays.arrays(np.int64, n, elements=st.integers(0, tokens)))
    real = np.arange(tokens) < lengths[:, None]
    closed = np.where(real, draw(arrays.arrays(np.float64, (n, tokens), elements=st.floats(-15, -5))), 0.0)
    more = draw(arrays.arrays(np.float64, (n, k, tokens), elements=st.floats(least, most)))
    similarities = draw(arrays.arrays(np.float64, (n, k), elements=SIMILARITY))
    empty = np.isneginf(similarities)[:, :, None]
    log_probs = np.where(real[:, None] & ~empty, np.minimum(closed[:, None] + more, 0.0), closed[:, None])
    names = np.full((n, k), "d", object)
    return Texts(np.array(list("abc")[:n], object), real * 2, lengths, closed, log_probs, similarities, names)


@settings(deadline=None)
@given(made=texts(most=10.0), mixture=st.sampled_from(MIXTURES), temperature=st.sampled_from([1.0, 0.1]))
def test_shares_add_up_to_the_whole(made, mixture, temperature):
    found = responsibility.attribute(made, temperature, mixture)
    for shares in (found.memory, found.documents, found.responsibilities):
        assert (shares >= 0).all()
        assert (shares <= 1 + 1e-9).all()
    np.testing.assert_allclose(found.responsibilities.sum(1), 1, atol=1e-9)
    np.testing.assert_allclose(found.memory + found.documents.sum(1), 1, atol=1e-9)
    weights = ensemble.log_weights(made.similarities, temperature)
    np.testing.assert_allclose(found.mixed, ensemble.MIXTURES[mixture](made.log_probs, weights), atol=1e-9)
    empty = np.isneginf(made.similarities)
    assert (found.documents[empty] == 0).all()
    whole = responsibility.of_texts(found.memory, made) + responsibility.of_texts(found.documents, made).sum(1)
    np.testing.assert_allclose(whole, made.lengths > 0, atol=1e-9)


@settings(deadline=None)
@given(made=texts(most=10.0), mixture=st.sampled_from(MIXTURES))
def test_responsibility_is_its_definition_in_plain_probabilities(made, mixture):
    found = responsibility.attribute(made, 1.0, mixture)
    for i in range(len(made.ids)):
        weights = np.exp(ensemble.log_weights(made.similarities[i : i + 1], 1.0))[0].tolist()
        for t in range(made.lengths[i]):
            p = [math.exp(x) for x in made.log_probs[i, :, t]]
            none = math.exp(made.closed[i, t])
            pairs = list(zip(weights, p, strict=True))
            total = sum(w * x for w, x in pairs)
            assert found.memory[i, t] == pytest.approx(sum(w * min(x, none) for w, x in pairs) / total)
            own = [w * max(0.0, x - none) / total for w, x in pairs]
            np.testing.assert_allclose(found.documents[i, :, t], own, rtol=1e-6, atol=1e-9)
            posterior = [w * x / total for w, x in pairs]
            np.testing.assert_allclose(found.responsibilities[i, :, t], posterior, rtol=1e-6)
            if mixture == "sequence_mixture":  # the token's posterior is the next token's prior
                weights = posterior


@settings(deadline=None)
@given(made=texts(least=0.0, most=10.0))
def test_where_no_document_lowers_a_token_memory_has_what_was_there_without(made):
    found = responsibility.attribute(made, 1.0, "token_mixture")
    np.testing.assert_allclose(found.memory, np.exp(np.minimum(made.closed - found.mixed, 0)), atol=1e-9)


@settings(deadline=None)
@given(made=texts(most=0.0))
def test_where_no_document_raises_a_token_it_is_memorys(made):
    found = responsibility.attribute(made, 1.0, "token_mixture")
    np.testing.assert_allclose(found.memory, 1, atol=1e-9)


def test_a_tokens_text_is_its_bytes():
    # of several tokens inside one character the first has all its bytes
    assert responsibility.token_texts(" né 東🙂東", np.array([4, 8, 0, 0, 3])) == [" né", " 東🙂", "", "", "東"]
    assert responsibility.token_texts("", np.array([], np.int64)) == []


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The scored texts of scored_texts.py, and what the stage wrote."""
    monkeypatch.chdir(tmp_path)
    params, scored = scored_texts.write(tmp_path)
    for file in (tmp_path / "data/logprobs/pile/tiny").iterdir():  # a row group for each query
        rows = pq.read_table(file)
        with pq.ParquetWriter(file, rows.schema) as writer:
            for query in scored_texts.CONTINUATIONS:
                writer.write_table(rows.filter(pa.compute.equal(rows["query_id"], query)))
    return SimpleNamespace(params=params, scored=scored, returned=attribution.attribute(params, "pile"))


def table(name):
    return pq.read_table(attribution.OUT / f"pile/{name}.parquet").to_pylist()


def test_every_token_of_every_retriever_is_written_with_its_shares(project):
    tokens, texts = table("tokens"), table("texts")
    assert [(r["retriever"], r["query_id"]) for r in texts] == [
        (r, q) for r in ("dense", "lsr") for q in scored_texts.CONTINUATIONS
    ]
    of = {(row["query_id"], row["doc_id"]): row["log_probs"] for row in project.scored}
    for text in texts:
        own = [r for r in tokens if (r["retriever"], r["query_id"]) == (text["retriever"], text["query_id"])]
        assert "".join(r["text"] for r in own) == scored_texts.CONTINUATIONS[text["query_id"]]
        assert [r["token"] for r in own] == list(range(text["tokens"]))
        assert sum(text["weights"]) == pytest.approx(1)
        for t, row in enumerate(own):
            given_each = [math.exp(of[text["query_id"], doc_id][t]) for doc_id in text["doc_ids"]]
            mixed = sum(w * p for w, p in zip(text["weights"], given_each, strict=True))
            assert row["log_prob"] == pytest.approx(math.log(mixed), abs=1e-5)
            assert row["log_prob_none"] == pytest.approx(of[text["query_id"], ""][t])
            assert row["memory"] + sum(row["documents"]) == pytest.approx(1, abs=1e-5)
        assert text["nats"] == pytest.approx(-sum(r["log_prob"] for r in own), abs=1e-4)
        assert text["memory"] == pytest.approx(np.mean([r["memory"] for r in own]), abs=1e-5)
        np.testing.assert_allclose(text["documents"], np.mean([r["documents"] for r in own], axis=0), atol=1e-5)
    (less,) = [t for t in texts if (t["retriever"], t["query_id"]) == ("lsr", "q1")]
    assert less["doc_ids"] == ["d0", ""]
    assert less["weights"] == [1, 0]


def test_the_ensemble_is_that_of_the_params(project, capsys):
    project.params.replug = SimpleNamespace(top_k=2, temperature=0.3, mixture="sequence_mixture")
    attribution.attribute(project.params, "pile")
    assert f"attribute@pile: 100%|██████████| {len(table('texts'))}/{len(table('texts'))} " in capsys.readouterr().err
    of = {(row["query_id"], row["doc_id"]): row["log_probs"] for row in project.scored}
    lighter = math.exp(-0.45 / 0.3)  # similarities 0.9 and 0.45
    for text in table("texts"):
        if (text["retriever"], text["query_id"]) == ("lsr", "q1"):
            continue
        assert text["doc_ids"] == (["d1", "d0"] if text["retriever"] == "dense" else ["d0", "d2"])
        weights = [1 / (1 + lighter), lighter / (1 + lighter)]
        assert text["weights"] == pytest.approx(weights)
        whole = [math.exp(of[text["query_id"], doc_id].sum(dtype=float)) for doc_id in text["doc_ids"]]
        mixed = sum(w * p for w, p in zip(weights, whole, strict=True))
        assert text["nats"] == pytest.approx(-math.log(mixed), abs=1e-4)


def test_texts_of_one_source_document_are_drawn_together(project):
    queries = pq.read_table("data/corpus/pile/queries.parquet")
    place = queries.column_names.index("source_document")
    pq.write_table(
        queries.set_column(place, "source_document", pa.array(["s"] * len(queries))), "data/corpus/pile/queries.parquet"
    )
    before = json.loads(METRICS.read_text())["lsr"]["memory"]
    attribution.attribute(project.params, "pile")
    memory = json.loads(METRICS.read_text())["lsr"]["memory"]
    assert before["low"] < before["value"] < before["high"]
    assert memory["low"] == memory["high"] == pytest.approx(before["value"]), "every resample is the one document"


def test_gains_are_told_by_how_rare_the_tokens_word_is(project):
    frequencies = {(r["query_id"], r["text"]): r["frequency"] for r in table("tokens")}
    # the corpus has "the" six times, "velm" and "oslo" three times, "in" once; a text's last word may go on
    assert frequencies == {
        ("q0", " Velm"): 3, ("q0", " is"): 0, ("q0", " in"): 1, ("q0", " Norland."): 0,
        ("q1", " Oslo,"): 3, ("q1", " they"): 0, ("q1", " say"): None,
        ("q2", " the"): 6, ("q2", " "): None,
    }  # fmt: skip
    found = json.loads(METRICS.read_text())
    assert list(found) == ["dense", "lsr"]
    own = [r for r in table("tokens") if r["retriever"] == "lsr"]
    never, some = found["lsr"]["by_frequency"]
    assert [(row["least"], row["most"], row["tokens"]) for row in (never, some)] == [(0, 0, 3), (1, 9, 5)]
    rare = [(r["log_prob"] - r["log_prob_none"]) / math.log(2) for r in own if r["frequency"] == 0]
    assert never["gain"]["value"] == pytest.approx(np.mean(rare), abs=1e-5)
    without = [-r["log_prob_none"] / math.log(2) for r in own if r["frequency"] == 0]
    assert never["none"]["value"] == pytest.approx(np.mean(without), abs=1e-5)
    assert found["lsr"]["memory"]["value"] == pytest.approx(np.mean([r["memory"] for r in own]), abs=1e-5)
    assert project.returned["lsr.memory"] == found["lsr"]["memory"]["value"]


def test_the_same_input_gives_the_same_bytes_whatever_the_blocks(project, monkeypatch):
    before = {p.name: p.read_bytes() for p in (attribution.OUT / "pile/texts.parquet", METRICS)}
    rows = table("tokens")
    monkeypatch.setattr(attribution, "BLOCK", 1)
    attribution.attribute(project.params, "pile")
    assert {p.name: p.read_bytes() for p in (attribution.OUT / "pile/texts.parquet", METRICS)} == before
    assert table("tokens") == rows


def test_a_block_of_texts_is_in_memory_and_a_retriever_reads_the_table_once(project, monkeypatch):
    group, words, texts = pq.ParquetFile.read_row_group, rarity.words, responsibility.attribute
    read, looked_at, shared_out = [], [], []

    def counted(file, i, columns=None):
        read.append((columns is None, i))
        return group(file, i, columns=columns)

    def seen(contexts, *others):
        looked_at.append(len(contexts))
        return words(contexts, *others)

    def of_block(block, *others):
        shared_out.append(block.ids.tolist())
        return texts(block, *others)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    monkeypatch.setattr(rarity, "words", seen)
    monkeypatch.setattr(responsibility, "attribute", of_block)
    for size, blocks in ((1, [["q0"], ["q1"], ["q2"]]), (2, [["q0", "q1"], ["q2"]]), (9, [["q0", "q1", "q2"]])):
        for seen_here in (read, looked_at, shared_out):
            seen_here.clear()
        monkeypatch.setattr(attribution, "BLOCK", size)
        attribution.attribute(project.params, "pile")
        assert shared_out == blocks * 2, "dense and lsr"
        assert looked_at == [len(block) for block in blocks]
        assert sorted(read) == sorted([(table, i) for table in (False, True) for i in range(3)] * 2)
