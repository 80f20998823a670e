"""An encoder's vectors are sentence-transformers' on the same texts: real passages, long, short
and non-Latin ones.
"""

import json
import shutil

import numpy as np
import pytest
import releases
import tiny_models
from transformers import Qwen3Config, Qwen3Model

from flows.init import model_folders
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
    """48 texts of very different lengths, in no order of length; some have more than MAX_TOKENS
    tokens.
    """
    real = [passage.text for passage in passages[::400]]
    long = [" ".join(real[i : i + 3 + i]) for i in range(4)]
    short_and_long = [
        *zip(real, [*SHORT, *OTHER_SCRIPTS, *long, *(text[:80] for text in real)], strict=False)
    ]
    return [text for pair in short_and_long for text in pair]


@pytest.fixture(scope="module")
def copied(real_models, tmp_path_factory):
    """The params, and the folder that the stage `base_retriever` writes."""
    changes = {"max_tokens": MAX_TOKENS, "dtype": "auto"}
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


@pytest.mark.usefixtures("workplace")
def test_the_library_opens_a_releases_retriever(library, tmp_path):
    """Its vectors are those of the encoder that the run has."""
    encoder = tiny_models.encoder(tmp_path / "untuned")
    settings = tiny_models.retriever(path=str(encoder), query_prefix="query: ")
    data = releases.write_data(tmp_path / "data")
    base_retriever.copy_pretrained(settings, data / "models/lsr/dense")
    released = releases.release(data, tmp_path / "out") / "retriever/dense"
    opened = library.SentenceTransformer(str(released), device="cpu")
    ours = Encoder.open(data / "models/lsr/dense", settings, tiny_models.compute(), EXACT)
    texts = [*tiny_models.words(9, 1), "VELM Velm", "Łódź [PAD] </s>"]
    np.testing.assert_allclose(opened.encode_document(texts), ours.embed(texts), atol=1e-5)
    np.testing.assert_allclose(opened.encode_query(texts), ours.embed_queries(texts), atol=1e-5)


POOLINGS = ("cls", "mean", "lasttoken")
MADE = {  # what is made by the library -> its modules after the Transformer, and its settings
    **{pooling: ([pooling], {}) for pooling in POOLINGS},
    "lower": (["mean", "Normalize"], {"do_lower_case": True}),
    "short": (["mean", "Normalize"], {"max_seq_length": 6}),
    "prompts": (["mean", "Normalize"], {"prompts": {"query": "query: ", "document": "passage: "}}),
    "default": (["mean"], {"prompts": {"every": "every: "}, "default_prompt_name": "every"}),
    "qwen3": (["lasttoken", "Normalize"], {"prompts": {"query": "Instruct: find\nQuery: "}}),
}


def made_by(library, made: str, folder) -> None:
    """Have the library save an encoder with random weights."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    (pooling, *further), settings = MADE[made]
    if made == "qwen3":  # a causal model: only its last token has seen the text
        shape = tiny_models.SHAPE | {
            "num_hidden_layers": 2,
            "head_dim": 8,
            "num_key_value_heads": 2,
        }
        tiny_models.save(
            folder / "plain", Qwen3Model, Qwen3Config, tiny_models.tokenizer(), **shape
        )
    else:
        tiny_models.encoder(folder / "plain")
    (folder / "plain/chat_template.jinja").unlink()  # else the library puts texts into it
    of_texts = {
        name: settings[name] for name in ("do_lower_case", "max_seq_length") if name in settings
    }
    modules = [Transformer(str(folder / "plain"), **of_texts), Pooling(32, pooling)]
    modules += [Normalize() for _ in further]
    others = {name: value for name, value in settings.items() if name not in of_texts}
    library.SentenceTransformer(modules=modules, device="cpu", **others).save(str(folder / "made"))


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("made", MADE)
def test_every_module_and_setting_is_the_librarys(library, made, old, tmp_path):
    made_by(library, made, tmp_path)
    folder = as_older_versions_write(tmp_path / "made") if old else tmp_path / "made"
    settings = tiny_models.retriever(**model_folders.read_model_folder(folder).settings)
    texts = [*tiny_models.words(9, 1), "VELM Velm", "Łódź [PAD] </s>"]
    opened = library.SentenceTransformer(str(folder), device="cpu")
    as_titled = [settings.document.replace("{title} {text}", text) for text in texts]
    expected = opened.encode_document(texts), opened.encode_query(texts)
    base_retriever.copy_pretrained(settings, tmp_path / "copied")
    encoder = Encoder.open(tmp_path / "copied", settings, tiny_models.compute(), EXACT)
    copied = library.SentenceTransformer(str(tmp_path / "copied"), device="cpu")
    scaled = settings.similarity == "cosine"
    for want, vectors, again in (
        (expected[0], encoder.embed(as_titled), copied.encode_document(texts)),
        (expected[1], encoder.embed_queries(texts), copied.encode_query(texts)),
    ):
        want = want / np.linalg.norm(want, axis=1, keepdims=True) if scaled else want
        np.testing.assert_allclose(vectors, want, atol=1e-5)
        np.testing.assert_allclose(again, want, atol=1e-5)


def as_older_versions_write(folder):
    """The same encoder with the files of sentence-transformers 1 and 2: pooling as flags, the
    model in a folder.
    """
    old = shutil.copytree(folder, folder.parent / "old")
    (old / "0_Transformer").mkdir()
    for file in [file for file in old.iterdir() if file.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json", "README.md"):
            file.rename(old / "0_Transformer" / file.name)
    modules = json.loads((old / "modules.json").read_text())
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    modules[0]["path"] = "0_Transformer"
    (old / "modules.json").write_text(json.dumps(modules))
    mode = json.loads((old / "1_Pooling/config.json").read_text())["pooling_mode"]
    tokens = (
        ""
        if mode.endswith("token") or mode.endswith("_tokens")
        else "_token"
        if mode == "cls"
        else "_tokens"
    )
    flags = {"word_embedding_dimension": 32, f"pooling_mode_{mode}{tokens}": True}
    (old / "1_Pooling/config.json").write_text(json.dumps(flags))
    return old
