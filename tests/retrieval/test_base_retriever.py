"""The stage base_retriever: repeatable, loadable, and after training a document's crops find their document."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from transformers import AutoModel

from pipelines import draws, params
from pipelines.corpus import tokenizer, training_files
from pipelines.errors import LongtailError
from pipelines.retrieval import base_retriever
from pipelines.retrieval.encoder import Encoder

WORDS = ["".join(pair) for pair in zip("bcdfghjklmnp" * 5, "aeioubcdfg" * 6, "klmnprstvzxw" * 5, strict=True)]
TEXTS = [" ".join(draws.generator(0, "text", str(i)).choice(WORDS, 20)) for i in range(120)]
CORPORA = ["pile", "wikipedia", "wikitext"]  # models learn from the first two
SHAPE = {"hidden_size": 32, "layers": 1, "heads": 2, "batch_size": 32, "learning_rate": 0.005, "temperature": 0.05}
pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture
def trained(tmp_path):
    """A function that trains an encoder in a folder of this name; returns the folder and the metrics."""
    for name, texts in (("pile", TEXTS[:60]), ("wikipedia", TEXTS[60:]), ("wikitext", ["never learnt from"])):
        (tmp_path / "corpus" / name).mkdir(parents=True)
        pq.write_table(pa.table({"text": texts}), tmp_path / "corpus" / name / "docs.parquet")
    tokenizer.train(TEXTS, 400, tmp_path / "tokenizer")
    files = training_files(tmp_path / "corpus", CORPORA)

    def train(name, steps, seed=0):
        settings = tiny_models.retriever(source="train", training=params.RetrieverTraining(**SHAPE, steps=steps))
        out = tmp_path / name
        return out, base_retriever.train_on_corpora(files, tmp_path / "tokenizer", out, seed, settings, 1)

    return train


def share_found(folder) -> float:
    """How often a document's first half is nearest to its second."""
    encoder = Encoder.open(folder, tiny_models.retriever(), tiny_models.compute())
    halves = [(" ".join(text.split()[:12]), " ".join(text.split()[8:])) for text in TEXTS]
    first, second = (encoder.embed(list(texts)) for texts in zip(*halves, strict=True))
    return float(np.mean((first @ second.T).argmax(1) == np.arange(len(TEXTS))))


def test_training_makes_crops_find_their_document(trained):
    (folder, metrics), (untrained, _) = trained("trained", 30), trained("untrained", 1)
    assert metrics["documents"] == len(TEXTS)
    assert metrics["loss_curve"][-1] < metrics["loss_curve"][0]
    assert share_found(folder) > share_found(untrained)
    assert AutoModel.from_pretrained(folder).config.hidden_size == 32


def test_same_seed_same_bytes(trained):
    (one, _), (again, _), (other, _) = trained("one", 3), trained("again", 3), trained("other", 3, seed=1)
    for path in one.rglob("*.*"):
        assert path.read_bytes() == (again / path.relative_to(one)).read_bytes()
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


def test_what_can_not_be_copied_is_refused(tmp_path):
    one, other = (str(tiny_models.encoder(tmp_path / name, size=size)) for name, size in (("one", 32), ("other", 16)))
    for changes, message in (
        ({"path": "some/encoder"}, r"retriever\.revision is null"),
        ({"path": one, "query_path": "some/encoder"}, r"retriever\.query_revision is null"),
        ({"path": one, "query_path": other}, r"its vectors have 16 numbers, those of retriever\.path 32"),
    ):
        with pytest.raises(LongtailError, match=message):
            base_retriever.copy_pretrained(tiny_models.retriever(**changes), tmp_path / "retriever")
        assert not (tmp_path / "retriever").exists()
    with pytest.raises(ValueError, match=r"should be mean with source: train"):
        tiny_models.retriever(source="train", pooling="cls")
