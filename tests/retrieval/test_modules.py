"""A sentence-transformers folder is embedded as all its modules and settings say, or refused by the
name of one.

The expected vectors are made by plain torch; tests/parity compares with the library itself.
"""

import json
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import tiny_models
import torch
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer, Qwen2Config, Qwen2Model

from flows.init.model_folders import read_model_folder
from pipelines.errors import LongtailError
from pipelines.retrieval import base_retriever
from pipelines.retrieval.encoder import EXACT, Encoder
from pipelines.retrieval.modules import read_modules

TEXTS = ["The capital of Norland is Velm.", "VELM velm", "", *tiny_models.words(5, 0)]
CLS = {
    "word_embedding_dimension": 32,
    "pooling_mode_cls_token": True,
    "pooling_mode_mean_tokens": False,
}
SBERT, OWN = "sentence_bert_config.json", "config_sentence_transformers.json"
pytestmark = pytest.mark.usefixtures("workplace")


def folder_of(out: Path, *kinds: str, files: dict | None = None, model: str = "") -> Path:
    """A tiny encoder with the modules `kinds` after a Transformer, which is in the folder
    `model`, and a Pooling.
    """
    tiny_models.encoder(out / model)
    names = ["Transformer", "Pooling", *kinds]
    places = [
        model,
        *(f"{place}_{kind.rpartition('.')[2]}" for place, kind in enumerate(names[1:], 1)),
    ]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": path,
            "type": kind if "." in kind else f"sentence_transformers.models.{kind}",
        }
        for i, (kind, path) in enumerate(zip(names, places, strict=True))
    ]
    written = {"modules.json": modules, "1_Pooling/config.json": CLS}
    for name, value in (written | (files or {})).items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(json.dumps(value))
    return out


@torch.inference_mode()
def first_states(model: Path, texts: list[str], max_tokens: int = 64) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(model)
    encoder = AutoModel.from_pretrained(model).eval()
    ids = [tokenizer(t, truncation=True, max_length=max_tokens)["input_ids"] or [2] for t in texts]
    return torch.stack([encoder(torch.tensor([tokens])).last_hidden_state[0, 0] for tokens in ids])


def copied(folder: Path, **changes) -> Encoder:
    """The encoder that the stage makes of a folder."""
    settings = tiny_models.retriever(
        **{"path": str(folder), "pooling": "cls", "similarity": "dot"} | changes
    )
    out = folder.parent / f"copied-{folder.name}"
    base_retriever.copy_pretrained(settings, out)
    return Encoder.open(out, settings, tiny_models.compute(), EXACT)


@pytest.mark.parametrize("kinds", [(), ("Normalize",), ("Normalize", "Normalize")])
def test_vectors_are_scaled_as_the_folder_says(tmp_path, kinds):
    """Also when they are trained and saved."""
    folder = folder_of(tmp_path / "encoder", *kinds)
    opened = copied(folder, similarity="cosine" if kinds else "dot")
    states = first_states(folder, TEXTS)
    wanted = normalize(states) if kinds else states
    np.testing.assert_allclose(opened.embed(TEXTS), wanted, atol=1e-5)
    np.testing.assert_allclose(
        opened.embed_with_gradient(opened.tokens(TEXTS)).detach(), wanted, atol=1e-5
    )
    opened.save(tmp_path / "tuned")
    again = Encoder.open(tmp_path / "tuned", opened.settings, tiny_models.compute(), EXACT)
    np.testing.assert_array_equal(again.embed(TEXTS), opened.embed(TEXTS))


def test_settings_of_the_model_are_applied(tmp_path):
    lower = {"do_lower_case": True, "max_seq_length": 5}
    new = folder_of(tmp_path / "new", "Normalize", files={SBERT: lower})
    old = folder_of(
        tmp_path / "old",
        "Normalize",
        files={"0_Transformer/sentence_roberta_config.json": lower},
        model="0_Transformer",
    )
    wanted = normalize(first_states(new, [text.lower() for text in TEXTS], 5))
    for folder in (new, old):
        opened = copied(folder, similarity="cosine")
        assert opened.documents.max_tokens == 5
        np.testing.assert_allclose(opened.embed(TEXTS), wanted, atol=1e-5)
    assert not np.allclose(wanted, normalize(first_states(new, TEXTS, 5)), atol=1e-3), (
        "case makes no difference"
    )


@pytest.mark.parametrize(
    ("kind", "files", "message"),
    [
        ("LayerNorm", {}, r"modules\.json has sentence_transformers\.models\.LayerNorm in place 2, expected"),
        ("CNN", {}, r"models\.CNN in place 2"),
        ("Dense", {}, r"models\.Dense in place 2, expected Normalize; take an encoder without it"),
        ("WordWeights", {}, r"models\.WordWeights in place 2"),
        ("sentence_transformers.base.modules.router.Router", {}, r"router\.Router in place 2"),
        ("custom_st.Transformer", {}, r"has custom_st\.Transformer in place 2"),
        ("", {"modules.json": [{"type": "sentence_transformers.models.StaticEmbedding"}]}, r"StaticEmbedding in"),
        ("", {"modules.json": [{"type": "sentence_transformers.models.CLIPModel"}]}, r"CLIPModel in place 0"),
        ("", {"modules.json": [{"type": "sentence_transformers.models.Transformer"}]}, r"a Transformer and a Pooling"),
        ("", {"modules.json": {"idx": 0}}, r"has None in place 0, expected Transformer"),
        ("", {"1_Pooling/config.json": CLS | {"pooling_mode_max_tokens": True}}, r"pooling_mode_cls_token and"),
        ("", {"1_Pooling/config.json": {"pooling_mode": ["cls", "mean"]}}, r"pools by cls and mean"),
        ("", {"1_Pooling/config.json": {"pooling_mode": "attention"}}, r"pools by attention"),
        ("", {"1_Pooling/config.json": CLS | {"include_prompt": False}}, r"include_prompt is False"),
        ("", {"1_Pooling/config.json": {"pooling_mode": "mean"}}, r"pooling is cls, and .*; set pooling: mean"),
        ("Normalize", {}, r"similarity is dot, and .*; set similarity: cosine"),
        ("", {SBERT: {"transformer_task": "fill-mask"}}, r"transformer_task is 'fill-mask'"),
        ("", {SBERT: {"modality_config": {"text": {}, "message": {}}}}, r"modality_config is .*'message'"),
        ("", {OWN: {"model_type": "SparseEncoder"}}, r"model_type is 'SparseEncoder'"),
        ("", {OWN: {"truncate_dim": 8}}, r"truncate_dim is 8"),
        ("", {OWN: {"similarity_fn_name": "euclidean"}}, r"similarity_fn_name is euclidean, expected cosine or dot"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused_by_name(tmp_path, kind, files, message):
    folder = folder_of(tmp_path / "encoder", *filter(None, [kind]), files=files)
    with pytest.raises(LongtailError, match=message) as error:
        copied(folder)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "copied-encoder").exists()


def test_prompts_that_the_templates_leave_out_are_named(tmp_path, capsys):
    prompts = {"prompts": {"query": "query: ", "passage": "passage: ", "other": "x"}}
    folder = folder_of(tmp_path / "encoder", files={OWN: prompts})
    copied(folder)
    said = capsys.readouterr().out
    assert "query_prefix begins with '', not with the encoder's prompt 'query: '" in said
    assert "document begins with '', not with the encoder's prompt 'passage: '" in said
    shutil.rmtree(tmp_path / "copied-encoder")
    copied(folder, query_prefix="query: ", document="passage: {title} {text}")
    assert "prompt" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("prompts", "default", "query", "document"),
    [
        ({"query": "Q ", "document": "", "passage": "P "}, None, "Q ", ""),
        ({"query": "Q ", "document": ""}, "query", "Q ", ""),
        ({"query": "", "document": "", "x": "find: "}, "x", "", ""),
        ({"x": "find: "}, "x", "find: ", "find: "),
        ({"query": "", "document": "D "}, None, "", "D "),
        ({"query": "Q ", "passage": "P "}, None, "Q ", "P "),
        ({"query": "", "document": ""}, None, None, None),
    ],
)
def test_an_empty_prompt_is_none_where_another_would_stand_in(prompts, default, query, document):
    own = {OWN: {"prompts": prompts, "default_prompt_name": default}}
    assert ((made := read_modules(own.get)).query, made.document) == (query, document)


@pytest.mark.parametrize("side", ["left", "right"])
def test_long_texts_are_cut_on_the_side_that_the_tokenizer_says(tmp_path, side):
    folder = folder_of(tmp_path / "encoder", files={SBERT: {"max_seq_length": 5}})
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation_side": side}))
    opened, tokenizer = copied(folder), AutoTokenizer.from_pretrained(folder)
    ids = list(opened.documents.tokens(TEXTS[:1]).values)
    assert ids == tokenizer(TEXTS[0], truncation=True, max_length=5)["input_ids"]
    assert (ids == tokenizer(TEXTS[0])["input_ids"][:5]) == (side == "right")


def test_modules_of_an_encoder_on_the_hub_are_read_too(tmp_path, monkeypatch):
    """The Hub's cache is made by hand."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    cache = tmp_path / "hub/models--some--encoder"
    folder_of(cache / "snapshots" / commit, "Normalize", model="0_Transformer")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    settings = tiny_models.retriever(
        path="some/encoder", revision=commit, pooling="cls", similarity="cosine"
    )
    base_retriever.copy_pretrained(settings, tmp_path / "copied")
    vectors = Encoder.open(tmp_path / "copied", settings, tiny_models.compute(), EXACT).embed(TEXTS)
    wanted = normalize(first_states(cache / "snapshots" / commit / "0_Transformer", TEXTS))
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)
    absent = tiny_models.retriever(
        path="other/encoder", revision=commit, pooling="cls", similarity="cosine"
    )
    with pytest.raises(LongtailError, match=r"other/encoder: "):
        base_retriever.copy_pretrained(absent, tmp_path / "again")


OWN_MODEL = {"AutoConfig": "configuration.Own", "AutoModel": "modeling_bert.BertModel"}
OWN_CODE = {  # who names code so -> the files
    "gte-Qwen2": {"config.json": {"auto_map": OWN_MODEL}},
    "another repository's": {
        "config.json": {"auto_map": {"AutoModel": "jinaai/jina-bert--modeling_bert.JinaBertModel"}}
    },
    "a tokenizer": {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": [None, "tok.Fast"]}}},
    "an older tokenizer": {"tokenizer_config.json": {"auto_map": ["tok.Slow", None]}},
}


def add(folder: Path, files: dict[str, dict]) -> Path:
    """The folder, with further settings in its files."""
    for name, settings in files.items():
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | settings))
    return folder


def refusal(folder: Path) -> str:
    """What `init` says of a folder, and the stage too."""
    with pytest.raises(LongtailError) as by_init:
        read_model_folder(folder)
    with pytest.raises(LongtailError) as by_stage:
        copied(folder)
    assert str(by_stage.value) == f"{folder}: {by_init.value}"
    assert not (folder.parent / f"copied-{folder.name}").exists()
    return str(by_init.value)


@pytest.mark.parametrize("files", OWN_CODE.values(), ids=OWN_CODE)
def test_an_encoder_with_code_of_its_own_is_refused(tmp_path, files):
    """The type is one that transformers knows, whose model would give other vectors."""
    said = refusal(add(folder_of(tmp_path / "encoder"), files))
    assert said.startswith("a model with code of its own (Auto")
    assert "transformers' model of the type bert may give other numbers" in said
    assert "\n" not in said


@pytest.mark.parametrize("name", ["AutoConfig", "AutoModelForCausalLM"])
def test_own_code_that_is_not_asked_for_is_said(tmp_path, capsys, name):
    """It changes no vector."""
    folder = folder_of(tmp_path / "encoder")
    plain = copied(folder).embed(TEXTS)
    shutil.rmtree(tmp_path / "copied-encoder")
    add(folder, {"config.json": {"auto_map": {name: "own.Own"}}})
    assert read_model_folder(folder).kind == "BertModel"
    np.testing.assert_array_equal(copied(folder).embed(TEXTS), plain)
    assert f"its own code is not run ({name})" in capsys.readouterr().out


def causal(folder: Path, **settings: object) -> Path:
    """An encoder of the type qwen2, which reads from left to right, with further settings."""
    shape = tiny_models.DECODER | tiny_models.SPECIAL | {"num_key_value_heads": 4}
    tiny_models.save(folder, Qwen2Model, Qwen2Config, tiny_models.tokenizer(), **shape)
    return add(folder, {"config.json": settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_bidirectional_attention": True}, "says use_bidirectional_attention: true, but"),
        ({"bidirectional": True}, "says bidirectional: true, but transformers' Qwen2Model reads"),
        ({"architectures": ["Qwen2BiModel"]}, "says the architecture Qwen2BiModel, but"),
    ],
)
def test_a_model_that_should_read_both_ways_is_refused(tmp_path, settings, message):
    """Where transformers reads it from left to right."""
    with pytest.raises(LongtailError, match=message):
        copied(causal(tmp_path / "encoder", **settings))


def test_an_architecture_that_only_its_authors_name_is_read(tmp_path):
    """BERT reads both ways, whatever it is called."""
    folder = folder_of(tmp_path / "encoder")
    plain = copied(folder).embed(TEXTS)
    shutil.rmtree(tmp_path / "copied-encoder")
    add(folder, {"config.json": {"architectures": ["Contriever"]}})
    np.testing.assert_array_equal(copied(folder).embed(TEXTS), plain)


def test_a_setting_that_transformers_follows_is_followed(tmp_path):
    """Padding makes no difference."""
    left = copied(causal(tmp_path / "left"))
    both = copied(causal(tmp_path / "both", is_causal=False))
    texts = [TEXTS[0], f"{TEXTS[0]} {TEXTS[1]}"]
    for opened, same in ((left, True), (both, False)):
        vectors = opened.embed(texts)
        assert np.allclose(vectors[0], vectors[1], atol=1e-5) == same
        np.testing.assert_allclose(opened.embed(texts[:1]), vectors[:1], atol=1e-5)
