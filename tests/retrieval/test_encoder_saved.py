"""A saved encoder embeds the same without us: by transformers alone, and by sentence-transformers."""

import json

import numpy as np
import pytest
import tiny_models
import torch
from transformers import AutoModel, AutoTokenizer

from pipelines.retrieval.documents import fill
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


@pytest.fixture(params=WAYS, ids=lambda way: f"{way['pooling']}-{way['similarity']}")
def saved(request, plain, tmp_path):
    """The params, our encoder, and the folder that it was saved to."""
    settings = tiny_models.retriever(**request.param, max_tokens=32)
    encoder = Encoder.open(plain, settings, tiny_models.compute())
    encoder.save(tmp_path / "saved")
    return settings, encoder, tmp_path / "saved"


def same(vectors, expected) -> bool:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    return bool(((vectors * expected).sum(1) / lengths).min() > 0.9999) and np.allclose(vectors, expected, atol=1e-4)


@torch.inference_mode()
def test_transformers_alone_embeds_the_same(saved):
    settings, encoder, folder = saved
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    texts = [settings.query_prefix + text for text in TEXTS]
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=settings.max_tokens, return_tensors="pt")
    hidden, mask = model(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
    vectors = hidden[:, 0] if settings.pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    if settings.similarity == "cosine":
        vectors = torch.nn.functional.normalize(vectors)
    assert same(vectors.numpy(), encoder.embed_queries(TEXTS))


def test_sentence_transformers_embeds_the_same(saved):
    library = pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers")
    settings, encoder, folder = saved
    opened = library.SentenceTransformer(str(folder), device="cpu")
    assert opened.similarity_fn_name == settings.similarity
    assert same(opened.encode_query(TEXTS), encoder.embed_queries(TEXTS))
    titles = ["Norland"] * len(TEXTS)
    read = encoder.embed(fill(settings.document, titles, TEXTS))
    assert same(opened.encode_document([" ".join(row) for row in zip(titles, TEXTS, strict=True)]), read)


def test_the_files_say_what_the_params_say(saved):
    settings, encoder, folder = saved
    read = {file.name: json.loads(file.read_text()) for file in folder.glob("*.json")}
    kinds = [module["type"].rpartition(".")[2] for module in read["modules.json"]]
    assert kinds == ["Transformer", "Pooling", "Normalize"][: 3 if settings.similarity == "cosine" else 2]
    prompts = {"query": settings.query_prefix, "document": settings.document.removesuffix("{title} {text}")}
    assert read["config_sentence_transformers.json"]["prompts"] == prompts
    assert read["sentence_bert_config.json"]["max_seq_length"] == settings.max_tokens
    pooling = json.loads((folder / "1_Pooling/config.json").read_text())
    assert pooling["word_embedding_dimension"] == encoder.dim
    assert [mode for mode in ("cls_token", "mean_tokens") if pooling[f"pooling_mode_{mode}"]] == [
        {"cls": "cls_token", "mean": "mean_tokens"}[settings.pooling]
    ]


def test_two_towers_are_no_sentence_transformer(plain, tmp_path):
    other = tiny_models.encoder(tmp_path / "other", seed=1)
    both = [Encoder.open(folder, tiny_models.retriever(), tiny_models.compute()).documents for folder in (plain, other)]
    Encoder(*both, tiny_models.retriever()).save(tmp_path / "saved")
    assert (tmp_path / "saved" / QUERIES).is_dir()
    assert not (tmp_path / "saved/modules.json").exists()
