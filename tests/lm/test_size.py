"""How large a language model is, by the headers of its weights, and of which family."""

import numpy as np
from safetensors.numpy import save_file

from pipelines.lm.size import family, parameters


def test_parameters_are_those_of_the_weights(tiny):
    from transformers import AutoModelForCausalLM

    assert parameters(tiny) == AutoModelForCausalLM.from_pretrained(tiny).num_parameters()
    assert family(tiny) == "llama"


def test_shards_add_up_and_attention_masks_are_no_parameters(tmp_path):
    mask = np.zeros((1, 1, 8, 8), np.float32)
    first = {"h.0.attn.weight": np.zeros((4, 3), np.float32), "h.0.attn.bias": mask, "bias": np.zeros(5, np.float32)}
    save_file(first, tmp_path / "model-1.safetensors", metadata={"format": "pt"})
    save_file({"h.1.weight": np.zeros((2, 2), np.float32)}, tmp_path / "model-2.safetensors")
    assert parameters(tmp_path) == 12 + 5 + 4


def test_a_model_without_weights_here_has_no_known_size(tmp_path):
    (tmp_path / "served.json").write_text("{}")
    assert parameters(tmp_path) is None
    assert parameters(tmp_path / "absent") is None
    assert family(tmp_path) is None
