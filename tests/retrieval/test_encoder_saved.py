"""A saved encoder embeds the same without us, by transformers alone; tests/parity opens it in sentence-transformers."""

import json

import numpy as np
import pytest
import tiny_models
import torch
from transformers import AutoModel, AutoTokenizer

from pipelines.retrieval.encoder import QUERIES, Encoder

TEXTS = tiny_models.words(7, 5, at_most=60)  # some are longer than the encoder reads
WAYS = [
    {"pooling": pooling, "similarity": similarity, "query_prefix": prefix and "query: "}
    | {"document": prefix + "{title} {text}"}
    for pooling in ("mean", "cls")
    for similarity, prefix in (("cosine", ""), ("dot", "passage: "))
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny_models.encoder(tmp_path_factory.mktemp("encoder"))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way['pooling']}-{way['similarity']}")
def test_transformers_alone_embeds_the_same_and_the_files_say_what_the_params_say(way, plain, tmp_path):
    settings, folder = tiny_models.retriever(**way, max_tokens=32), tmp_path / "saved"
    encoder = Encoder.open(plain, settings, tiny_models.compute())
    encoder.save(folder)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    texts = [settings.query_prefix + text for text in TEXTS]
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=settings.max_tokens, return_tensors="pt")
    with torch.inference_mode():
        hidden, mask = model(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
    vectors = hidden[:, 0] if settings.pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    vectors = torch.nn.functional.normalize(vectors) if settings.similarity == "cosine" else vectors
    np.testing.assert_allclose(encoder.embed_queries(TEXTS), vectors.numpy(), atol=1e-4)

    read = {file.name: json.loads(file.read_text()) for file in folder.glob("*.json")}
    kinds = [module["type"].rpartition(".")[2] for module in read["modules.json"]]
    assert kinds == ["Transformer", "Pooling", "Normalize"][: 3 if settings.similarity == "cosine" else 2]
    prompts = {"query": settings.query_prefix, "document": settings.document.removesuffix("{title} {text}")}
    assert read["config_sentence_transformers.json"]["prompts"] == prompts
    assert read["config_sentence_transformers.json"]["similarity_fn_name"] == settings.similarity
    assert read["sentence_bert_config.json"]["max_seq_length"] == settings.max_tokens
    pooling = json.loads((folder / "1_Pooling/config.json").read_text())
    assert pooling["word_embedding_dimension"] == encoder.dim
    assert pooling["pooling_mode_cls_token"] == (settings.pooling == "cls") != pooling["pooling_mode_mean_tokens"]


def test_two_towers_are_no_sentence_transformer(plain, tmp_path):
    other = tiny_models.encoder(tmp_path / "other", seed=1)
    both = [Encoder.open(folder, tiny_models.retriever(), tiny_models.compute()).documents for folder in (plain, other)]
    Encoder(*both, tiny_models.retriever()).save(tmp_path / "saved")
    assert (tmp_path / "saved" / QUERIES).is_dir()
    assert not (tmp_path / "saved/modules.json").exists()
