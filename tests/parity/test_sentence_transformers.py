"""An encoder's vectors are sentence-transformers' on the same texts: real passages, long, short and non-Latin ones."""

import numpy as np
import pytest
import tiny_models

from pipelines.retrieval import base_retriever
from pipelines.retrieval.encoder import CLOSE, EXACT, Encoder

MAX_TOKENS = 256  # what MiniLM's folder says
SHORT = ["", " ", "\n", ".", "a", "[PAD]", "[SEP] [CLS]", "🙂", "\u200b", "1998"]
OTHER_SCRIPTS = [
    "Столица Норвегии — город Осло.",
    "東京は日本の首都です。",
    "القاهرة عاصمة مصر",
    "दिल्ली भारत की राजधानी है",
    "Ødegård façade, naïve café, Łódź, O\u0308degard",
    "서울은 대한민국의 수도이다",
]


@pytest.fixture(scope="module")
def texts(passages) -> list[str]:
    """48 texts of very different lengths, in no order of length; some have more than MAX_TOKENS tokens."""
    real = [passage.text for passage in passages[::400]]
    long = [" ".join(real[i : i + 3 + i]) for i in range(4)]
    short_and_long = [*zip(real, [*SHORT, *OTHER_SCRIPTS, *long, *(text[:80] for text in real)], strict=False)]
    return [text for pair in short_and_long for text in pair]


@pytest.fixture(scope="module")
def copied(real_models, tmp_path_factory):
    """The params, and the folder that the stage `base_retriever` writes."""
    changes = {"max_tokens": MAX_TOKENS, "batch_tokens": 4096, "dtype": "auto"}
    settings = tiny_models.retriever(path=str(real_models / "minilm"), **changes)
    folder = tmp_path_factory.mktemp("encoder") / "retriever"
    base_retriever.copy_pretrained(settings, folder)
    return settings, folder


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("sentence_transformers", reason="pip install -e '.[parity]'")


@pytest.fixture(scope="module")
def expected(library, real_models, texts) -> np.ndarray:
    opened = library.SentenceTransformer(str(real_models / "minilm"), device="cpu")
    assert opened.max_seq_length == MAX_TOKENS
    assert max(len(opened.tokenizer(text)["input_ids"]) for text in texts) > MAX_TOKENS
    return opened.encode(texts, batch_size=16)


def test_vectors_are_sentence_transformers(copied, texts, expected):
    settings, folder = copied
    encoder = Encoder.open(folder, settings, tiny_models.compute(), EXACT)
    np.testing.assert_allclose(encoder.embed(texts), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.embed_queries(texts[:9]), expected[:9], atol=1e-5)


def test_vectors_as_stages_compute_them_are_close(copied, texts, expected):
    settings, folder = copied
    vectors = Encoder.open(folder, settings, tiny_models.compute()).embed(texts)
    assert (1 - (vectors * expected).sum(1)).max() < CLOSE


def test_sentence_transformers_opens_the_copied_folder(library, copied, texts, expected):
    opened = library.SentenceTransformer(str(copied[1]), device="cpu")
    assert opened.max_seq_length == MAX_TOKENS
    np.testing.assert_allclose(opened.encode_document(texts[:12]), expected[:12], atol=1e-5)
