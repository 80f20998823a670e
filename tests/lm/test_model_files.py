"""A pretrained model is saved with its tokenizer; a saved model's size and family are read from its files."""

import numpy as np
import pytest
import tiny_models
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

from pipelines.errors import LongtailError
from pipelines.lm.model_files import count_parameters, family, save_pretrained


def test_a_pretrained_model_is_saved_with_its_tokenizer(tmp_path):
    source = tiny_models.language_model(tmp_path / "source")
    save_pretrained(AutoModelForCausalLM, "lm", str(source), None, tmp_path / "lm")
    assert (tmp_path / "lm/model.safetensors").is_file()
    assert (tmp_path / "lm/tokenizer.json").is_file()


def test_a_hub_model_needs_a_pinned_revision(tmp_path):
    with pytest.raises(LongtailError, match=r"lm\.revision is null"):
        save_pretrained(AutoModelForCausalLM, "lm", "some/model", None, tmp_path / "lm")


def test_parameters_are_those_of_the_weights(tiny):
    assert count_parameters(tiny) == AutoModelForCausalLM.from_pretrained(tiny).num_parameters()
    assert family(tiny) == "llama"


def test_shards_add_up_and_attention_masks_are_no_parameters(tmp_path):
    mask = np.zeros((1, 1, 8, 8), np.float32)
    first = {"h.0.attn.weight": np.zeros((4, 3), np.float32), "h.0.attn.bias": mask, "bias": np.zeros(5, np.float32)}
    save_file(first, tmp_path / "model-1.safetensors", metadata={"format": "pt"})
    save_file({"h.1.weight": np.zeros((2, 2), np.float32)}, tmp_path / "model-2.safetensors")
    assert count_parameters(tmp_path) == 12 + 5 + 4


def test_a_model_without_weights_here_has_no_known_size(tmp_path):
    (tmp_path / "served.json").write_text("{}")
    assert count_parameters(tmp_path) is None
    assert count_parameters(tmp_path / "absent") is None
    assert family(tmp_path) is None
