"""The encoder pools over real tokens only, and gives the same embeddings with and without gradient."""

import numpy as np
import pytest
import tiny_models
import torch
from transformers import AutoModel, AutoTokenizer

from pipelines.errors import LongtailError
from pipelines.retrieval.encoder import Encoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.encoder(tmp_path_factory.mktemp("encoder"))


def open_encoder(folder, similarity="cosine", batch_size=4):
    return Encoder(folder, similarity=similarity, batch_size=batch_size, max_tokens=32)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_embeddings_are_the_mean_over_each_texts_own_tokens(folder, similarity):
    texts = tiny_models.words(11, 0, at_most=60)
    own, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModel.from_pretrained(folder, add_pooling_layer=False).eval(),
    )
    found = open_encoder(folder, similarity).embed(texts)
    for text, vector in zip(texts, found, strict=True):
        with torch.inference_mode():
            expected = model(torch.tensor([own(text)["input_ids"][:32]])).last_hidden_state[0].mean(0).numpy()
        expected = expected / np.linalg.norm(expected) if similarity == "cosine" else expected
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_gradients_flow_and_the_values_are_the_same(folder):
    texts = tiny_models.words(9, 1)
    encoder = open_encoder(folder)
    with_gradient = encoder.embed_with_gradient(texts)
    np.testing.assert_allclose(with_gradient.detach().numpy(), encoder.embed(texts), atol=1e-6)
    (with_gradient @ with_gradient.detach().flip(0).T).sum().backward()
    assert all(p.grad.abs().sum() > 0 for n, p in encoder.model.named_parameters() if n.endswith("query.weight"))


def test_a_text_without_tokens_has_a_finite_embedding(folder):
    assert np.isfinite(open_encoder(folder).embed(["", "Velm"])).all()


def test_a_saved_encoder_embeds_as_before_and_saves_the_same_bytes(folder, tmp_path):
    encoder = open_encoder(folder)
    for name in ("a", "b"):
        encoder.save(tmp_path / name)
    texts = tiny_models.words(5, 2)
    np.testing.assert_array_equal(open_encoder(tmp_path / "a").embed(texts), encoder.embed(texts))
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert "model.safetensors" in files
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


def test_a_folder_without_an_encoder_is_named(tmp_path):
    with pytest.raises(LongtailError, match=r"no config\.json"):
        open_encoder(tmp_path)
