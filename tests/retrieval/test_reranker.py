"""A cross-encoder's scores are transformers' own, and its order is that of the scores."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pipelines import methods
from pipelines.errors import LongtailError
from pipelines.params import params
from pipelines.retrieval import base_reranker, documents, reranker

QUERIES, TEXTS = tiny_models.words(40, 3, at_least=2), tiny_models.words(40, 4, at_least=2)
TEMPLATE = "passage: {title}. {text}"


def settings(**changes) -> params.Reranker:
    values = {
        "path": "x",
        "revision": None,
        "max_tokens": 128,
        "batch_tokens": 256,
        "candidates": 12,
    }
    return params.Reranker(**values | changes)


def cross_encoder(folder: Path, **changes) -> reranker.CrossEncoder:
    return reranker.CrossEncoder(folder, settings(**changes), tiny_models.compute())


def one_by_one(folder: Path, queries, texts, max_tokens: int = 128) -> np.ndarray:
    """Each pair's score by transformers alone, without batches or padding."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores = []
    for query, text in zip(queries, texts, strict=True):
        inputs = tokenizer(
            query, text, return_tensors="pt", truncation="longest_first", max_length=max_tokens
        )
        with torch.no_grad():
            (logits,) = model(**inputs).logits.tolist()
        scores.append(logits[0] if len(logits) == 1 else logits[1] - logits[0])
    return np.array(scores)


@pytest.mark.parametrize(("labels", "max_tokens"), [(1, 128), (2, 12)])
def test_scores_are_those_of_each_pair_alone(tmp_path, monkeypatch, labels, max_tokens):
    folder = tiny_models.cross_encoder(tmp_path / "model", labels=labels)
    monkeypatch.setattr(reranker, "WINDOW", 16)
    expected = one_by_one(folder, QUERIES, TEXTS, max_tokens)
    assert len(set(expected.round(3))) > 30
    for batch_tokens in (1, 300):
        scores = cross_encoder(folder, max_tokens=max_tokens, batch_tokens=batch_tokens).scores(
            QUERIES, TEXTS
        )
        np.testing.assert_allclose(scores, expected, atol=2e-5)
    assert not np.allclose(scores, one_by_one(folder, TEXTS, QUERIES, max_tokens), atol=1e-2), (
        "the query comes first"
    )


class Ranking:
    """A retriever with the documents 20, 21, ...

    for each text, and one less for each further text.
    """

    count = 60

    def search(self, texts, k, without=None):
        self.asked = k, without
        positions = np.array([np.arange(20, 20 + k)[::-1] for _ in texts])
        for row, n_without in enumerate(range(len(texts))):
            positions[row, k - n_without :] = -1
        return positions, np.tile(np.linspace(1, 0, k, dtype=np.float32), (len(texts), 1))


def test_the_order_is_that_of_the_scores(tmp_path):
    """It is over the retriever's candidates alone."""
    docs, texts = tmp_path / "docs.parquet", tiny_models.words(60, 9, at_least=3)
    titles = [f"Page {i % 7}" * (i % 3 > 0) for i in range(60)]
    texts[42:44], titles[42:44] = [texts[41]] * 2, [titles[41]] * 2  # the same documents
    pq.write_table(
        pa.table({"id": [f"d{i}" for i in range(60)], "title": titles, "text": texts}), docs
    )
    folder, queries = tiny_models.cross_encoder(tmp_path / "model"), QUERIES[:4]
    first, encoder = Ranking(), cross_encoder(folder)
    positions, scores = reranker.Reranked(first, encoder, docs, TEMPLATE, 24).search(
        queries, 22, without=["s"] * 4
    )
    assert first.asked == (24, ["s"] * 4)
    texts = documents.read_documents(docs, np.arange(60)).filled(TEMPLATE)
    candidates, _ = Ranking().search(queries, 24)
    for row, query in enumerate(queries):
        known = np.sort(candidates[row][candidates[row] >= 0])
        by_hand = one_by_one(folder, [query] * len(known), texts[known])
        order = np.lexsort((known, -by_hand.round(4)))[:22]  # documents 41 to 43 tie
        assert positions[row].tolist() == [*known[order].tolist(), *[-1] * (22 - len(order))]
        np.testing.assert_allclose(scores[row, : len(order)], by_hand[order], atol=2e-5)
        assert np.isneginf(scores[row, len(order) :]).all()
    assert (positions.dtype, scores.dtype) == (np.int64, np.float32)
    assert reranker.Reranked(first, encoder, docs, TEMPLATE, 3).search(queries, 5)[0].shape == (
        4,
        5,
    )


@pytest.mark.usefixtures("workplace")
def test_the_stage_brings_in_a_cross_encoder():
    folder, out = tiny_models.cross_encoder(Path("some"), labels=2), Path("data") / methods.RERANKER
    figures = base_reranker.save_reranker(SimpleNamespace(reranker=settings(path=str(folder))))
    assert figures["parameters"] > 1000
    scores = cross_encoder(out).scores(QUERIES, TEXTS)
    np.testing.assert_allclose(scores, one_by_one(folder, QUERIES, TEXTS), atol=2e-5)
    for path, message in (
        (tiny_models.cross_encoder(Path("three"), labels=3), "3 logits, expected a cross-encoder"),
        (
            tiny_models.encoder(Path("encoder")),
            r"encoder: has no weights for .*BertForSequenceClassification",
        ),
        ("some/hub-name", r"reranker\.revision is null"),
    ):
        with pytest.raises(LongtailError, match=message):
            base_reranker.save_reranker(SimpleNamespace(reranker=settings(path=str(path))))
    config = folder / "config.json"
    own = {"auto_map": {"AutoModelForSequenceClassification": "modeling.Reranker"}}
    config.write_text(json.dumps(json.loads(config.read_text()) | own))
    with pytest.raises(LongtailError, match=r"some: a model with code of its own \(AutoModelForS"):
        base_reranker.save_reranker(SimpleNamespace(reranker=settings(path=str(folder))))
    with pytest.raises(
        LongtailError, match="gone: no cross-encoder; run the stage `base_reranker`"
    ):
        cross_encoder(Path("gone"))
