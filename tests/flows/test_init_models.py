"""`longtail init` writes how the models of a folder are used, and what that takes."""

import re
from pathlib import Path

import pytest
from user_folder import FILES, LAPTOP, bert, composed, gpt, model, write

from flows.init import model_folders, write_profile


def test_the_smaller_language_model_is_the_main_one(checkout):
    """Why no chat template is used is said."""
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "hub/models--a--gpt2-small/snapshots/0123abcd", positions=1024, parameters=10)
    instruct = gpt(checkout / "Smol-1.4b", positions=2048, parameters=1000)
    write(instruct, {"tokenizer_config.json": {"chat_template": "{{ messages }}"}})
    said = "\n".join(write_profile.init(checkout, None))
    params = composed()
    assert (params.lms, params.lm["smol-1-4b"].chat) == (["gpt2-small", "smol-1-4b"], False)
    assert params.tokenizer.path.endswith("0123abcd")
    assert 0 < params.answer.n_shots * 200 < 1024
    assert "its chat template is not used (the profile says why)" in said
    assert re.search(
        "# smol-1-4b has a chat template.*Set chat: true",
        Path("conf/profile/data.yaml").read_text(),
    )


@pytest.mark.parametrize(
    ("positions", "gpu", "n_shots"), [(256, False, 0), (8192, False, 5), (8192, True, 15)]
)
def test_demonstrations_fit_beside_a_passage(checkout, monkeypatch, positions, gpu, n_shots):
    """RePlug's documents fit into a bearable time."""
    monkeypatch.setattr(write_profile, "this_machine", lambda: LAPTOP._replace(gpu=gpu))
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    gpt(checkout / "gpt2", positions=positions), bert(checkout / "encoder")
    write_profile.init(checkout, None)
    params = composed()
    assert params.answer.n_shots == n_shots
    # GenRead's passage, beside its question
    assert params.answer.passage_tokens == min(150, positions // 4)
    assert (params.compute.device, params.replug.top_k) == (("cuda", 10) if gpu else ("cpu", 5))


def test_a_large_model_gets_fewer_processes(checkout):
    write(checkout, FILES["popqa"] | FILES["wikipedia"])
    made = []
    for parameters in (10, 1_500_000_000, 3_000_000_000):
        gpt(checkout / "gpt2", parameters=parameters)
        write_profile.init(checkout, None, force=True)
        made.append(composed())
    small, large, largest = made
    assert (small.compute.workers, small.compute.threads) == (4, 1)
    assert (large.compute.workers, large.compute.threads) == (1, 4)
    assert small.answer.max_questions > large.answer.max_questions == 200
    assert (large.lm["gpt2"].dtype, largest.lm["gpt2"].dtype) == ("fp32", "bf16")


TITLED = "{title} {text}"
MEAN = {"pooling_mode_mean_tokens": True}
CLS = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
OWN = {"prompts": {"query": "q: "}, "similarity_fn_name": "dot"}
MODULES = [
    {"path": path, "type": f"sentence_transformers.models.{kind}"}
    for kind, path in (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
]


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("minilm", {"modules.json": MODULES, "1_Pooling/config.json": MEAN}, ("mean", "cosine", "", TITLED)),
        ("multi-qa-dot-v1", {"modules.json": MODULES[:2], "1_Pooling/config.json": CLS}, ("cls", "dot", "", TITLED)),
        ("e5-base-v2", {}, ("mean", "cosine", "query: ", f"passage: {TITLED}")),
        ("bge-small-en-v1.5", {}, ("cls", "cosine", model_folders.BGE_QUERY, TITLED)),
        ("contriever", {}, ("mean", "dot", "", TITLED)),
        ("own", {"config_sentence_transformers.json": OWN}, ("mean", "dot", "q: ", TITLED)),
    ],
)  # fmt: skip
def test_an_encoder_is_used_as_it_was_trained(checkout, name, files, expected):
    bert(checkout / name)
    write(checkout / name, files | {"sentence_bert_config.json": {"max_seq_length": 256}})
    (encoder,) = write_profile.look(checkout).encoders
    made = encoder.settings
    assert (made["pooling"], made["similarity"], made["query_prefix"], made["document"]) == expected
    assert made["max_tokens"] == 256


def test_contriever_is_an_encoder_under_its_own_name(checkout):
    """Its authors call their BERT so."""
    bert(checkout / "contriever", "Contriever")
    (encoder,) = write_profile.look(checkout).encoders
    assert (encoder.settings["pooling"], encoder.settings["similarity"]) == ("mean", "dot")


def test_weights_may_be_pytorchs_older_files(checkout):
    """The two encoders of a DPR belong together."""
    write(checkout, FILES["wikipedia"])
    folders = gpt(checkout / "gpt2"), bert(checkout / "dpr-ctx", "DPRContextEncoder")
    bert(checkout / "dpr-question", "DPRQuestionEncoder")
    for folder, size in zip(folders, (4000, 80), strict=True):
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(bytes(size))
    assert write_profile.look(checkout).lms[0].parameters == 1000
    write_profile.init(checkout, None)
    params = composed()
    made = params.retriever[params.retrievers[0]]
    assert (Path(made.path).name, Path(made.query_path).name) == ("dpr-ctx", "dpr-question")
    assert made.document == "{title} [SEP] {text}"
    assert (made.pooling, made.similarity) == ("cls", "dot")


def test_models_that_nothing_here_can_use_are_named(checkout):
    write(checkout, FILES["wikipedia"])
    bert(checkout / "reranker", "BertForSequenceClassification")
    model(
        checkout / "t5",
        {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
    )
    (gpt(checkout / "old") / "model.safetensors").unlink()
    bert(checkout / "last", **{"1_Pooling__config.json": {"pooling_mode": ["max", "mean"]}})
    write(checkout / "moved", {"modules.json": MODULES[:1], "0_Transformer/config.json": {}})
    said = "\n".join(write_profile.init(checkout, None))
    for name, why in (
        ("reranker", "a model of the kind BertForSequenceClassification"),
        ("t5", "a model of the kind T5ForConditionalGeneration"),
        ("old", "a model without weights"),
        ("last", "an encoder that pools by max and mean (1_Pooling/config.json)"),
        ("moved", "modules.json: expected a Transformer and a Pooling"),
    ):
        assert f"not used: {name}: {why}" in said
    assert composed().retriever["dense"].path == "sample/models/retriever"


def test_only_what_is_known_to_encode_texts_is_an_encoder(checkout):
    write(checkout, FILES["wikipedia"])
    others = (
        "LlamaForRewardModel", "Qwen2ForRewardModel", "Qwen2ForProcessRewardModel", "LlamaForTokenClassification",
        "BertForQuestionAnswering", "GemmaForSequenceClassification", "HF_ColBERT", "JinaBertForMaskedLM",
        "T5EncoderModel", "ViTModel", "CLIPModel", "CLIPTextModel", "Wav2Vec2Model", "HubertModel", "ChineseCLIPModel",
        "AutoModel", "Wav2Vec2ForPreTraining", "WhisperModel", "DPRReader", "ASTModel", "Siglip2Model",
    )  # fmt: skip
    for kind in others:
        bert(checkout / f"a-{kind}", kind)
    pooled = {"1_Pooling__config.json": {"pooling_mode": "mean"}}
    bert(checkout / "b-pooled-vit", "ViTModel", **pooled)
    good = (
        "BertForMaskedLM",
        "XLMRobertaModel",
        "Qwen3Model",
        "DebertaV2Model",
        "BertForPreTraining",
        "Gemma3TextModel",
    )
    for kind in good:
        bert(checkout / f"z-{kind}", kind)
    bert(checkout / "z-pooled", "Qwen2ForCausalLM", **pooled)
    seen = write_profile.look(checkout)
    assert {encoder.folder.name for encoder in seen.encoders} == {
        f"z-{kind}" for kind in (*good, "pooled")
    }
    refused = {
        place.name: why for place, why in seen.unused if not why.endswith("is the retriever")
    }
    assert refused.keys() == {f"a-{kind}" for kind in others} | {"b-pooled-vit"}
    for kind in others:
        assert refused[f"a-{kind}"].startswith(
            f"a model of the kind {kind}, neither a causal one nor a known encoder"
        )


def test_a_splade_is_told_by_its_files(checkout):
    card = "---\nlanguage: en\ntags:\n- splade\n---\n# A model\n"
    for name, kind, files in (
        ("by-card", "BertForMaskedLM", {"README.md": card}),
        ("by-settings", "DistilBertForMaskedLM", {"config.json": {"_name_or_path": "naver/splade-v3"}}),
        ("mentioned", "BertForMaskedLM", {"README.md": "---\ntags: [bert]\n---\nUnlike SPLADE, one vector.\n"}),
        ("not-splade", "BertForMaskedLM", {"README.md": "About splade\n---\n"}),
    ):  # fmt: skip
        folder = bert(checkout / name, kind)
        config = {"architectures": [kind], "model_type": "bert"} | files.pop("config.json", {})
        write(folder, {**files, "config.json": config})
    seen = write_profile.look(checkout)
    assert {encoder.folder.name for encoder in seen.encoders} == {"mentioned", "not-splade"}
    assert [why for place, why in seen.unused if place.name.startswith("by-")] == [
        "a SPLADE, with a weight for each word, which is not computed; take an encoder with vectors"
    ] * 2
