"""Folders of models that are quantised, adapters, or written for another program: `init` and the
stage name them."""

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
import tiny_models
import torch
from safetensors.torch import load_file, save, save_file
from transformers import AutoModelForCausalLM

from flows.init.model_folders import read_model_folder
from pipelines.errors import LongtailError
from pipelines.lm.model_files import save_pretrained
from pipelines.retrieval.tower import Tower

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return tiny_models.language_model(tmp_path_factory.mktemp("plain"))


def changed(
    plain: Path, out: Path, config: dict | None = None, files: dict | None = None, without=()
) -> Path:
    """A copy of the model with other settings and files; `without` are patterns of files that it
    lacks."""
    shutil.copytree(plain, out)
    for file in (file for pattern in without for file in out.glob(pattern)):
        file.unlink()
    settings = (
        json.loads((out / "config.json").read_text()) if (out / "config.json").is_file() else {}
    )
    if config:
        (out / "config.json").write_text(json.dumps(settings | config))
    for name, content in (files or {}).items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(
            content if isinstance(content, bytes) else json.dumps(content).encode()
        )
    return out


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
CUT = save({"a": torch.zeros(8)})[:-1]


def refused(folder: Path) -> str:
    """What `init` says of a folder, which is what the stage says of it too."""
    with pytest.raises(LongtailError) as by_init:
        read_model_folder(folder)
    with pytest.raises(LongtailError) as by_stage:
        save_pretrained(AutoModelForCausalLM, "lm.tiny", str(folder), None, folder.parent / "out")
    assert str(by_stage.value) == f"{folder}: {by_init.value}"
    assert "\n" not in str(by_stage.value)
    assert not (folder.parent / "out").exists()
    return str(by_init.value)


def quant(method: str | None, **others) -> dict:
    return {"quantization_config": others | ({"quant_method": method} if method else {})}


@pytest.mark.parametrize(
    ("config", "files", "method"),
    [
        *(
            (quant(name, bits=4), {}, name)
            for name in ("fp8", "mxfp4", "bitsandbytes", "gptq", "awq", "compressed-tensors", "hqq", "torchao")
        ),
        ({"quantization": {"bits": 4, "group_size": 64}} | quant(None, bits=4), {}, "quantization_config"),
        ({"quantization": {"bits": 4}}, {}, "quantization"),
        ({"compression_config": {"format": "pack-quantized"}}, {}, "compression_config"),
        ({"text_config": quant("gptq")}, {}, "gptq"),
        ({}, {"quantize_config.json": {"bits": 4}}, "quantize_config.json"),
        ({}, {"quant_config.json": {"w_bit": 4}}, "quant_config.json"),
    ],
)  # fmt: skip
def test_quantised_weights_are_named_with_what_to_do(plain, tmp_path, config, files, method):
    said = refused(changed(plain, tmp_path / "model", config, files))
    assert said.startswith(
        f"weights quantised by {method}, which are not read; take the checkpoint that they were made"
    )
    assert said.endswith("or serve it and name the server under lm.<name>.http")


@pytest.mark.parametrize(
    ("files", "without", "message"),
    [
        ({"adapter_config.json": {"base_model_name_or_path": "a/base"}}, ["*"], r"an adapter \(LoRA, PEFT\) of a/base"),
        ({"adapter_model.safetensors": b"x"}, [], r"an adapter \(LoRA, PEFT\) of another model; merge the two"),
        ({"model.gguf": b"GGUF"}, ["model.*"], r"weights for llama\.cpp \(GGUF\) \(model\.gguf\); take"),
        ({"onnx/model_quantized.onnx": b"x"}, ["model.*"], r"weights for ONNX \(model_quantized\.onnx\); take"),
        ({"tf_model.h5": b"x"}, ["model.*"], r"weights for TensorFlow \(tf_model\.h5\)"),
        ({"flax_model.msgpack": b"x"}, ["model.*"], r"weights for Flax"),
        ({"consolidated.safetensors": b"x", "params.json": {}}, ["model.*"], r"weights in Mistral's or LLaMA's own"),
        ({"consolidated.00.pth": b"x", "params.json": {}}, ["model.*"], r"weights in Mistral's or LLaMA's own layout"),
        ({"model-00001-of-00002.safetensors": b"x"}, ["model.*"], r"weights without model\.safetensors\.index\.json"),
        ({"best.pt": b"x"}, ["model.*"], r"a checkpoint of PyTorch under a name of its own \(best\.pt\)"),
        ({}, ["model.*"], r"a model without weights, in none of model\.safetensors, "),
        (
            {"model.safetensors.index.json": {"weight_map": {"a": "model-1.safetensors"}}}, ["model.*"],
            r"a model without model-1\.safetensors; fetch or copy it again",
        ),
        ({"artifact.metadata": {}}, [], r"a ColBERT, with a vector for each token; take"),
        ({"config.json": {"auto_map": {"AutoModel": "own.Own"}}}, [], r"a model with code of its own \(auto_map\)"),
        ({"config.json": b""}, [], r"config\.json: no object of JSON with settings; fetch or"),
        ({"config.json": b'{"architectures": ["Ll'}, [], r"config\.json: no object of JSON with settings; fetch or"),
        ({"config.json": b"[]"}, [], r"config\.json: no object of JSON with settings; fetch or"),
        ({"config.json": POINTER}, [], r"config\.json: .*Git LFS"),
        ({}, ["config.json"], r"a model without config\.json"),
        ({"config.json": {"model_type": "llama9", "architectures": ["Llama9ForCausalLM"]}}, [],
         r"a model of the type llama9, which the installed transformers does not know; take another, or serve it"),
        ({"model.safetensors": b"not weights"}, [], r"model\.safetensors: damaged or cut off"),
        ({"model.safetensors": CUT}, [], r"model\.safetensors: damaged or cut off, .*; fetch or make them again"),
        ({"tokenizer.json": b"<!doctype html><html>"}, [], r"tokenizer\.json: an HTML page"),
        ({}, ["tokenizer*"], r"a model without a tokenizer; expected tokenizer\.json"),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_named_with_what_to_do(plain, tmp_path, files, without, message):
    said = refused(changed(plain, tmp_path / "model", files=files, without=without))
    assert re.match(message, said), said


def test_weights_of_another_shape_are_refused_and_none_are_drawn(plain, tmp_path):
    folder = changed(plain, tmp_path / "model", {"intermediate_size": 64})
    with pytest.raises(
        LongtailError,
        match=r"weights that do not fit config\.json: .* has the shape \[.*48.*\], expected",
    ):
        save_pretrained(AutoModelForCausalLM, "lm.tiny", str(folder), None, tmp_path / "out")


def test_half_of_a_models_layers_is_never_taken_for_the_model(plain, tmp_path):
    """As a language model, as an encoder, and as an encoder in a checkpoint of another class, which
    has a prefix."""
    folder = changed(plain, tmp_path / "model", {"num_hidden_layers": 1})
    with pytest.raises(
        LongtailError, match=r"weights of more layers than config\.json says: model\.layers\.1\."
    ):
        save_pretrained(AutoModelForCausalLM, "lm.tiny", str(folder), None, tmp_path / "out")
    encoder = tiny_models.encoder(tmp_path / "encoder")
    one = load_file(encoder / "model.safetensors")
    two = one | {
        key.replace("layer.0", "layer.1"): weight.clone()
        for key, weight in one.items()
        if "layer.0" in key
    }
    for prefix, others in (("", {}), ("bert.", {"cls.predictions.bias": torch.zeros(3)})):
        folder = changed(encoder, tmp_path / f"whole{prefix}", {"num_hidden_layers": 2})
        weights = {f"{prefix}{key}": weight for key, weight in two.items()} | others
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        Tower(folder, max_tokens=32)
        half = changed(folder, tmp_path / f"half{prefix}", {"num_hidden_layers": 1})
        with pytest.raises(
            LongtailError, match=r"weights of more layers than config\.json says: \S*layer\.1\."
        ):
            Tower(half, max_tokens=32)


def test_a_folder_without_a_vocabulary_gets_no_empty_tokenizer(tmp_path):
    """transformers makes a tokenizer of five special tokens, to which every word is unknown."""
    folder = tiny_models.encoder(tmp_path / "bert")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(LongtailError, match="a tokenizer without a vocabulary"):
        Tower(folder, max_tokens=32)


def test_an_encoder_is_refused_as_a_language_model(tmp_path):
    folder = tiny_models.encoder(tmp_path / "plain")
    model = changed(folder, tmp_path / "gptq", quant("gptq"))
    for read in (read_model_folder, partial(Tower, max_tokens=32)):
        with pytest.raises(LongtailError, match="quantised by gptq, which are not read"):
            read(model)


def test_code_of_a_models_own_is_named(plain, tmp_path):
    own = {"auto_map": {"AutoModel": "modeling_own.Own"}, "model_type": "own"}
    folder = changed(plain, tmp_path / "own", own)
    assert refused(folder) == "a model with code of its own (own), which is never run"


def test_a_language_models_stale_code_is_said(plain, tmp_path, capsys):
    stale = changed(plain, tmp_path / "stale", {"auto_map": {"AutoModel": "modeling_llama.Own"}})
    assert read_model_folder(stale).parameters > 0
    save_pretrained(AutoModelForCausalLM, "lm.tiny", str(stale), None, tmp_path / "out")
    said = "its own code is not run (AutoModel); transformers' of the type llama"
    assert said in capsys.readouterr().out


def test_a_model_without_architectures_is_told_what_to_add(plain, tmp_path):
    folder = changed(plain, tmp_path / "model", {"architectures": None})
    with pytest.raises(
        LongtailError,
        match=r'names no architectures \(its type is llama\); add .*\["LlamaForCausalLM"\]',
    ):
        read_model_folder(folder)
