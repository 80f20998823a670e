"""A pretrained model is saved with its tokenizer; a saved model's size and family are read from its files."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import tiny_models
import torch
import transformers
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from pipelines.errors import LongtailError
from pipelines.lm.model_files import SOURCE, count_parameters, family, save_pretrained


def test_a_pretrained_model_is_saved_with_its_tokenizer(tmp_path):
    source = tiny_models.language_model(tmp_path / "source")
    save_pretrained(AutoModelForCausalLM, "lm", str(source), None, tmp_path / "lm")
    assert (tmp_path / "lm/model.safetensors").is_file()
    assert (tmp_path / "lm/tokenizer.json").is_file()


def test_a_hub_model_needs_a_pinned_revision(tmp_path):
    with pytest.raises(LongtailError, match=r"lm\.revision is null"):
        save_pretrained(AutoModelForCausalLM, "lm", "some/model", None, tmp_path / "lm")


@pytest.fixture
def source(tmp_path) -> Path:
    """A model in safetensors whose output layer is its embedding, as in GPT-2 and OPT."""
    torch.manual_seed(0)
    tokenizer = tiny_models.tokenizer()
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "source")
    tokenizer.save_pretrained(tmp_path / "source")
    return tmp_path / "source"


@pytest.fixture
def older(source, tmp_path) -> Path:
    """The same model as older checkpoints have it, in pytorch_model.bin; its output layer shares the embedding."""
    return tiny_models.as_bin(source, tmp_path / "older", GPT2LMHeadModel.from_pretrained(source))


def saved(source: Path) -> Path:
    out = source.parent / f"saved-{source.name}"
    save_pretrained(AutoModelForCausalLM, "lm", str(source), None, out)
    return out


@pytest.mark.parametrize("zipped", [True, False])
def test_older_weights_become_the_same_safetensors(source, older, zipped):
    file = older / "pytorch_model.bin"
    tensors = torch.load(file, weights_only=True)
    assert tensors["lm_head.weight"].data_ptr() == tensors["transformer.wte.weight"].data_ptr()
    torch.save(tensors, file, _use_new_zipfile_serialization=zipped)  # before torch 1.6, files were not zipped
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    made, plain = saved(older), saved(source)
    assert (made / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()
    assert not list(made.glob("*.bin"))
    assert json.loads((made / SOURCE).read_text()) == {"sha256": {"pytorch_model.bin": digest}}
    assert list(json.loads((plain / SOURCE).read_text())["sha256"]) == ["model.safetensors"]


def test_older_weights_in_several_files_are_read_together(source, older):
    tensors = torch.load(older / "pytorch_model.bin", weights_only=True)
    (older / "pytorch_model.bin").unlink()
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    places = {name: names[i % 2] for i, name in enumerate(tensors)}
    for file in names:
        torch.save({name: tensor for name, tensor in tensors.items() if places[name] == file}, older / file)
    index = older / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    made = saved(older)
    assert (made / "model.safetensors").read_bytes() == (saved(source) / "model.safetensors").read_bytes()
    assert list(json.loads((made / SOURCE).read_text())["sha256"]) == names
    shutil.rmtree(made)
    for bad in ("{", "{}", json.dumps({"weight_map": {"a": "../older/" + names[0]}}), '{"weight_map": {"a": "b.bin"}}'):
        index.write_text(bad)
        with pytest.raises(LongtailError, match=r"index\.json: expected the names of weight files beside it"):
            saved(older)


def test_older_weights_on_the_hub_are_loaded_from_their_folder(source, older, monkeypatch):
    """The Hub's cache is made by hand. By a Hub name, transformers would start a thread that asks for a conversion."""
    commit, hub = "0123456789abcdef0123456789abcdef01234567", older.parent / "hub"
    shutil.copytree(older, hub / "models--some--model/snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(transformers.modeling_utils, "Thread", None)
    out = hub.parent / "saved-hub"
    save_pretrained(AutoModelForCausalLM, "lm", "some/model", commit, out)
    assert (out / "model.safetensors").read_bytes() == (saved(source) / "model.safetensors").read_bytes()
    with pytest.raises(LongtailError, match=r"some/model: no model could be loaded"):
        save_pretrained(AutoModelForCausalLM, "lm", "some/model", commit[::-1], out)


def test_safetensors_are_preferred_to_older_weights(source):
    (source / "pytorch_model.bin").write_bytes(b"never read")
    assert (saved(source) / "model.safetensors").is_file()


class Code:
    def __reduce__(self):
        return Path.touch, (Path("run"),)


@pytest.mark.parametrize("write", [torch.save, lambda value, file: file.write_bytes(pickle.dumps(value, 2))])
def test_a_pickle_with_code_is_refused_and_its_code_is_not_run(older, tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    file = older / "pytorch_model.bin"
    write(torch.load(file, weights_only=True) | {"extra": Code()}, file)
    with pytest.raises(
        LongtailError, match=r"pytorch_model\.bin: not plain tensors.*none of its code was run"
    ) as error:
        saved(older)
    assert "\n" not in str(error.value)
    assert not Path("run").exists()
    assert not (tmp_path / "saved-older").exists()


@pytest.mark.parametrize(
    "value",
    [
        [torch.zeros(2)],
        {"model": {"weight": torch.zeros(2)}, "step": 3},
        {"weight": torch.zeros(2).to_sparse()},
    ],
)
def test_what_is_no_mapping_to_tensors_is_refused(older, value):
    torch.save(value, older / "pytorch_model.bin")
    with pytest.raises(LongtailError, match=r"pytorch_model\.bin: not plain tensors, expected a mapping"):
        saved(older)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_is_cut_off_is_named(older, zipped):
    file = older / "pytorch_model.bin"
    torch.save(torch.load(file, weights_only=True), file, _use_new_zipfile_serialization=zipped)
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(LongtailError, match=r"pytorch_model\.bin: can't be read, is it cut off\?") as error:
        saved(older)
    assert "\n" not in str(error.value)


def test_a_folder_without_weights_says_what_is_expected(source):
    (source / "model.safetensors").rename(source / "tf_model.h5")
    with pytest.raises(LongtailError, match=r"source: has none of model\.safetensors, .*pytorch_model\.bin"):
        saved(source)


def test_parameters_are_those_of_the_weights(tiny):
    assert count_parameters(tiny) == AutoModelForCausalLM.from_pretrained(tiny).num_parameters()
    assert family(tiny) == "llama"


def test_shards_add_up_and_attention_masks_are_no_parameters(tmp_path):
    mask = np.zeros((1, 1, 8, 8), np.float32)
    first = {"h.0.attn.weight": np.zeros((4, 3), np.float32), "h.0.attn.bias": mask, "bias": np.zeros(5, np.float32)}
    save_file(first, tmp_path / "model-1.safetensors", metadata={"format": "pt"})
    save_file({"h.1.weight": np.zeros((2, 2), np.float32)}, tmp_path / "model-2.safetensors")
    assert count_parameters(tmp_path) == 12 + 5 + 4


@pytest.mark.parametrize("data", [b"", b'{"message": "API rate limit exceeded"}', b"\x05\0\0\0\0\0\0\0{'a':"])
def test_a_file_that_is_no_safetensors_is_named(tmp_path, data):
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(LongtailError, match=r"model\.safetensors: damaged"):
        count_parameters(tmp_path)


def test_a_model_without_weights_here_has_no_known_size(tmp_path):
    (tmp_path / "served.json").write_text("{}")
    assert count_parameters(tmp_path) is None
    assert count_parameters(tmp_path / "absent") is None
    assert family(tmp_path) is None
