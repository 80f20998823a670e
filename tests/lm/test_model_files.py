"""A pretrained model is saved with its tokenizer; a saved model's size and family are read from its
files."""

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
from local_models import open_model
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from pipelines.errors import LongtailError
from pipelines.lm.model_files import count_parameters, family, padding_token, save_pretrained

WEIGHTS, BIN = "model.safetensors", "pytorch_model.bin"


@pytest.fixture
def source(tmp_path) -> Path:
    """A model in safetensors whose output layer is its embedding, as in GPT-2 and OPT."""
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
    return tiny_models.save(
        tmp_path / "source", GPT2LMHeadModel, GPT2Config, tiny_models.tokenizer(), **shape
    )


@pytest.fixture
def tensors(source) -> dict[str, torch.Tensor]:
    return GPT2LMHeadModel.from_pretrained(source).state_dict()


@pytest.fixture
def older(source, tensors, tmp_path) -> Path:
    """The same model as older checkpoints have it, in pytorch_model.bin; its output layer shares
    the embedding."""
    folder = shutil.copytree(
        source, tmp_path / "older", ignore=shutil.ignore_patterns("*.safetensors")
    )
    torch.save(tensors, folder / BIN)
    return folder


def saved(source: Path) -> Path:
    out = source.parent / f"saved-{source.name}"
    save_pretrained(AutoModelForCausalLM, "lm", str(source), None, out)
    return out


@pytest.mark.parametrize("zipped", [True, False])
def test_older_weights_become_the_same_safetensors(source, tensors, older, zipped):
    assert tensors["lm_head.weight"].data_ptr() == tensors["transformer.wte.weight"].data_ptr()
    # before torch 1.6, files were not zipped
    torch.save(tensors, older / BIN, _use_new_zipfile_serialization=zipped)
    (source / BIN).write_bytes(b"never read where there are safetensors")
    made, plain = saved(older), saved(source)
    assert (made / WEIGHTS).read_bytes() == (plain / WEIGHTS).read_bytes()
    assert (made / "tokenizer.json").is_file()
    assert not list(made.glob("*.bin"))


def test_older_weights_in_several_files_are_read_together(source, tensors, older):
    (older / BIN).unlink()
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    places = {name: names[i % 2] for i, name in enumerate(tensors)}
    for file in names:
        torch.save(
            {name: tensor for name, tensor in tensors.items() if places[name] == file}, older / file
        )
    index = older / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    made = saved(older)
    assert (made / WEIGHTS).read_bytes() == (saved(source) / WEIGHTS).read_bytes()
    shutil.rmtree(made)
    for bad, message in (
        ("{", "no model could be loaded"),
        ("{}", "no model could be loaded"),
        ('{"weight_map": {"a": "b.bin"}}', r"a model without b\.bin; fetch"),
    ):
        index.write_text(bad)
        with pytest.raises(LongtailError, match=f"older: {message}"):
            saved(older)


def test_a_hub_model_is_loaded_from_its_folder(source, older, monkeypatch):
    """The Hub's cache is made by hand. By a Hub name, transformers would start a thread that asks
    for a conversion."""
    commit, hub = "0123456789abcdef0123456789abcdef01234567", older.parent / "hub"
    shutil.copytree(older, hub / "models--some--model/snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(transformers.modeling_utils, "Thread", None)
    out = hub.parent / "saved-hub"
    save_pretrained(AutoModelForCausalLM, "lm", "some/model", commit, out)
    assert (out / WEIGHTS).read_bytes() == (saved(source) / WEIGHTS).read_bytes()
    for revision, message in (
        (commit[::-1], "some/model: no model could be loaded"),
        (None, r"lm\.revision is null"),
    ):
        with pytest.raises(LongtailError, match=message):
            save_pretrained(AutoModelForCausalLM, "lm", "some/model", revision, out)


class Code:
    def __reduce__(self):
        return Path.touch, (Path("run"),)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda file, tensors: torch.save(tensors | {"x": Code()}, file), "none of its code was run"),
        (lambda file, tensors: file.write_bytes(pickle.dumps(tensors | {"x": Code()}, 2)), "none of its code was run"),
        (lambda file, _: torch.save({"model": {"w": torch.zeros(2)}, "step": 3}, file), "has no weights for 29 of"),
        (lambda file, _: torch.save({"w": torch.zeros(2).to_sparse()}, file), "has no weights for 29 of"),
        (lambda file, _: file.write_bytes(file.read_bytes()[:-2000]), "no model could be loaded: .*failed"),
        (lambda file, _: file.rename(file.with_name("tf_model.h5")), r"older: weights for TensorFlow \(tf_model\.h5\); take the model's safetensors"),
    ],
    ids=["code", "code in a pickle", "nested", "sparse", "cut off", "none"],
)  # fmt: skip
@pytest.mark.usefixtures("workplace")
def test_what_is_no_mapping_to_tensors_is_refused(older, tensors, write, message):
    """No code is run."""
    write(older / BIN, tensors)
    with pytest.raises(LongtailError, match=message) as error:
        saved(older)
    assert "\n" not in str(error.value)
    assert not Path("run").exists()
    assert not (older.parent / "saved-older").exists()


@pytest.mark.parametrize("is_special", [True, False])
def test_a_token_beyond_the_embeddings_is_refused_where_texts_have_it(source, is_special):
    """A token of padding is never looked at, and a special one stands in no text but a template."""
    own = AutoTokenizer.from_pretrained(source)
    own.add_tokens(["<|turn|>"], special_tokens=is_special)
    own.add_special_tokens({"pad_token": "[PAD]"})
    own.save_pretrained(source)
    n_tokens = len(own) - 2
    if is_special:
        saved(source)
    else:
        with pytest.raises(LongtailError, match=rf"'<\|turn\|>' \({n_tokens}\), .* {n_tokens} tok"):
            saved(source)

    own = AutoTokenizer.from_pretrained(source)
    model = GPT2LMHeadModel.from_pretrained(source)
    if is_special:
        assert padding_token(source, model, own) == 0
        own.chat_template = "<|turn|>{{ messages[0].content }}"
        own.save_pretrained(source)
        with pytest.raises(LongtailError, match="take the tokenizer that it was trained with"):
            open_model(source, chat=True)
        own.chat_template = None
        own.bos_token = "<|turn|>"
        with pytest.raises(LongtailError, match="take the tokenizer that it was trained with"):
            padding_token(source, model, own)


def test_parameters_are_counted_over_the_shards(tiny, tmp_path):
    assert count_parameters(tiny) == AutoModelForCausalLM.from_pretrained(tiny).num_parameters()
    assert family(tiny) == "llama"
    assert (
        count_parameters(tmp_path),
        count_parameters(tmp_path / "absent"),
        family(tmp_path),
    ) == (None, None, None)
    mask = np.zeros((1, 1, 8, 8), np.float32)  # of attention, which is no parameter
    first = {
        "h.0.attn.weight": np.zeros((4, 3), np.float32),
        "h.0.attn.bias": mask,
        "bias": np.zeros(5, np.float32),
    }
    save_file(first, tmp_path / "model-1.safetensors", metadata={"format": "pt"})
    save_file({"h.1.weight": np.zeros((2, 2), np.float32)}, tmp_path / "model-2.safetensors")
    assert count_parameters(tmp_path) == 12 + 5 + 4
    for data in (b"", b'{"message": "API rate limit exceeded"}', b"\x05\0\0\0\0\0\0\0{'a':"):
        (tmp_path / "model-1.safetensors").write_bytes(data)
        with pytest.raises(LongtailError, match=r"model-1\.safetensors: damaged"):
            count_parameters(tmp_path)
