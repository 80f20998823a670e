"""The training of the encoder makes crops find their document, and repeats."""

import numpy as np
import pytest
import tiny_models
from transformers import AutoModel

from pipelines import draws
from pipelines.errors import LongtailError
from pipelines.retrieval.encoder import Encoder
from sample.make import train_retriever
from sample.make.sizes import RetrieverTraining
from sample.make.train_tokenizer import train_tokenizer

WORDS = [
    "".join(pair)
    for pair in zip("bcdfghjklmnp" * 5, "aeioubcdfg" * 6, "klmnprstvzxw" * 5, strict=True)
]
LEARNT = [" ".join(draws.generator(0, "text", str(i)).choice(WORDS, 20)) for i in range(120)]


def share_found(folder) -> float:
    """How often a document's first half is nearest to its second."""
    encoder = Encoder.open(folder, tiny_models.retriever(), tiny_models.compute())
    halves = [(" ".join(text.split()[:12]), " ".join(text.split()[8:])) for text in LEARNT]
    first, second = (encoder.embed(list(texts)) for texts in zip(*halves, strict=True))
    return float(np.mean((first @ second.T).argmax(1) == np.arange(len(LEARNT))))


def test_training_makes_crops_find_their_document(tmp_path, monkeypatch):
    monkeypatch.setattr(train_retriever, "LEARNING_RATE", 0.005)
    words = tmp_path / "tokenizer"
    train_tokenizer(LEARNT, 400, words)
    losses = {}
    for name, steps in (("untrained", 1), ("trained", 30), ("again", 30)):
        settings = RetrieverTraining(hidden_size=32, steps=steps, batch_size=32)
        losses[name] = train_retriever.train_retriever(LEARNT, words, tmp_path / name, 0, settings)
    assert losses["trained"][-1] < losses["trained"][0]
    assert share_found(tmp_path / "trained") > share_found(tmp_path / "untrained")
    assert AutoModel.from_pretrained(tmp_path / "trained").config.hidden_size == 32
    weights = [
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("trained", "again")
    ]
    assert weights[0] == weights[1]
    with pytest.raises(LongtailError, match="expected at least 2"):
        train_retriever.train_retriever(LEARNT[:1], words, tmp_path / "one", 0, settings)
