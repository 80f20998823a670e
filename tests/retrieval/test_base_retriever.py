"""The stage base_retriever: repeatable, loadable, and after training a document's crops find their document."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from transformers import AutoModel

from pipelines import draws, params, shards
from pipelines.corpus import tokenizer, training_files
from pipelines.errors import LongtailError
from pipelines.retrieval import base_retriever
from pipelines.retrieval.encoder import Encoder

WORDS = ["".join(pair) for pair in zip("bcdfghjklmnp" * 5, "aeioubcdfg" * 6, "klmnprstvzxw" * 5, strict=True)]
TEXTS = [" ".join(draws.generator(0, "text", str(i)).choice(WORDS, 20)) for i in range(120)]
CORPORA = ["pile", "wikipedia", "wikitext"]  # models learn from the first two
COMPUTE = tiny_models.compute()
RETRIEVER = tiny_models.retriever(
    source="train",
    training=params.RetrieverTraining(
        hidden_size=32, layers=1, heads=2, steps=30, batch_size=32, learning_rate=0.005, temperature=0.05
    ),
)


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SCRATCH", tmp_path / "scratch")


@pytest.fixture
def corpus(tmp_path) -> Path:
    for name, texts in (("pile", TEXTS[:60]), ("wikipedia", TEXTS[60:]), ("wikitext", ["never learnt from"])):
        (tmp_path / "corpus" / name).mkdir(parents=True)
        pq.write_table(pa.table({"text": texts}), tmp_path / "corpus" / name / "docs.parquet")
    return tmp_path / "corpus"


@pytest.fixture
def words(tmp_path) -> Path:
    tokenizer.train(TEXTS, 400, tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def share_found(folder: Path) -> float:
    """How often a document's first half is nearest to its second."""
    encoder = Encoder.open(folder, RETRIEVER, COMPUTE)
    halves = [(" ".join(text.split()[:12]), " ".join(text.split()[8:])) for text in TEXTS]
    first, second = (encoder.embed(list(texts)) for texts in zip(*halves, strict=True))
    return float(np.mean((first @ second.T).argmax(1) == np.arange(len(TEXTS))))


def test_training_makes_crops_find_their_document(corpus, words, tmp_path):
    files = training_files(corpus, CORPORA)
    metrics = base_retriever.train_on_corpora(files, words, tmp_path / "trained", 0, RETRIEVER, 1)
    short = RETRIEVER.model_copy(update={"training": RETRIEVER.training.model_copy(update={"steps": 1})})
    base_retriever.train_on_corpora(files, words, tmp_path / "untrained", 0, short, 1)
    assert metrics["documents"] == len(TEXTS)
    assert metrics["loss_curve"][-1] < metrics["loss_curve"][0]
    assert share_found(tmp_path / "trained") > share_found(tmp_path / "untrained")
    assert AutoModel.from_pretrained(tmp_path / "trained").config.hidden_size == 32


def test_same_seed_same_bytes(corpus, words, tmp_path):
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        base_retriever.train_on_corpora(training_files(corpus, CORPORA), words, tmp_path / name, seed, RETRIEVER, 1)
    for path in (tmp_path / "one").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tmp_path / "one")).read_bytes()
    weights = "model.safetensors"
    assert (tmp_path / "one" / weights).read_bytes() != (tmp_path / "other" / weights).read_bytes()


def test_no_corpus_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LongtailError, match=r"docs\.parquet: no such file"):
        training_files(tmp_path / "empty", CORPORA)


def test_a_hub_encoder_needs_a_pinned_revision(tmp_path):
    with pytest.raises(LongtailError, match=r"retriever\.revision is null"):
        base_retriever.copy_pretrained(tiny_models.retriever(path="some/encoder"), tmp_path / "retriever")
    one = tiny_models.encoder(tmp_path / "one")
    with pytest.raises(LongtailError, match=r"retriever\.query_revision is null"):
        base_retriever.copy_pretrained(
            tiny_models.retriever(path=str(one), query_path="some/encoder"), tmp_path / "retriever"
        )


def test_older_weights_give_the_same_encoder(tmp_path):
    source = tiny_models.encoder(tmp_path / "source")
    older = tiny_models.as_bin(source, tmp_path / "older", AutoModel.from_pretrained(source))
    for path in (source, older):
        params = tiny_models.retriever(path=str(path), query_path=str(path))
        base_retriever.copy_pretrained(params, tmp_path / f"saved-{path.name}")
    for weights in ("model.safetensors", "query/model.safetensors"):
        assert (tmp_path / "saved-older" / weights).read_bytes() == (tmp_path / "saved-source" / weights).read_bytes()
    digest = hashlib.sha256((older / "pytorch_model.bin").read_bytes()).hexdigest()
    for folder in (tmp_path / "saved-older", tmp_path / "saved-older/query"):
        assert json.loads((folder / "source.json").read_text()) == {"sha256": {"pytorch_model.bin": digest}}


def test_real_weights_in_the_older_format_give_the_same_vectors(real_models, tmp_path):
    source = real_models / "minilm"
    older = tiny_models.as_bin(source, tmp_path / "older", AutoModel.from_pretrained(source))
    texts = ["Who wrote Pride and Prejudice?", "Canberra was founded in 1913 as the seat of government."]
    vectors = []
    for path in (source, older):
        params = tiny_models.retriever(path=str(path))
        base_retriever.copy_pretrained(params, tmp_path / f"saved-{path.name}")
        vectors.append(Encoder.open(tmp_path / f"saved-{path.name}", params, COMPUTE).embed(texts))
    np.testing.assert_array_equal(*vectors)


def test_two_encoders_of_unlike_vectors_are_refused(tmp_path):
    one, other = tiny_models.encoder(tmp_path / "one"), tiny_models.encoder(tmp_path / "other", size=16)
    both = tiny_models.retriever(path=str(one), query_path=str(other))
    with pytest.raises(LongtailError, match=r"its vectors have 16 numbers, those of retriever\.path 32"):
        base_retriever.copy_pretrained(both, tmp_path / "retriever")
    assert not (tmp_path / "retriever").exists()


def test_only_mean_pooling_is_learnt():
    with pytest.raises(ValueError, match=r"should be mean with source: train"):
        tiny_models.retriever(source="train", pooling="cls")
