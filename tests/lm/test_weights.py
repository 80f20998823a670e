"""The weights' number formats: bf16 and int8 are compared with fp32, and auto takes what agrees;
fast layers."""

from importlib.util import find_spec

import numpy as np
import pytest
import tiny_models
import torch
from local_models import open_model, pairs

from pipelines.errors import LongtailError
from pipelines.lm import shortcuts, weights
from pipelines.work import devices


def score(lm) -> np.ndarray:
    return np.concatenate(lm.score(*pairs(8)).log_probs)


@pytest.fixture
def smooth(tmp_path):
    """A model whose log-probs in bf16 are near those in fp32."""
    return tiny_models.language_model(tmp_path / "model", scale=0.02)


@pytest.fixture
def rough(tmp_path):
    """A model whose log-probs in bf16 are far from those in fp32."""
    return tiny_models.language_model(tmp_path / "rough", scale=1.0)


def test_bf16_is_obeyed_and_its_difference_from_fp32_said(smooth, rough, capsys):
    expected = score(open_model(smooth))
    assert "log-probs in" not in capsys.readouterr().out
    lm = open_model(smooth, dtype="bf16")
    said = capsys.readouterr().out
    assert "log-probs in bf16 are 0.0" in said
    assert "warning" not in said
    assert lm.model.dtype == torch.bfloat16
    np.testing.assert_allclose(score(lm), expected, atol=0.05)

    lm = open_model(rough, dtype="bf16")
    assert lm.model.dtype == torch.bfloat16
    assert "warning: " in capsys.readouterr().out


@pytest.mark.parametrize("has_bf16", [True, False])
def test_auto_takes_bf16_where_it_is_fast_and_agrees(smooth, rough, monkeypatch, has_bf16):
    monkeypatch.setattr(weights, "has_bf16", lambda device: has_bf16)
    fast = torch.bfloat16 if has_bf16 else torch.float32
    assert open_model(smooth, dtype="auto").model.dtype == fast
    assert open_model(rough, dtype="auto").model.dtype == torch.float32


def test_a_model_too_large_to_compare_is_used_as_it_is(smooth, monkeypatch, capsys):
    monkeypatch.setattr(weights, "MEMORY_SHARE", 0.0)
    lm = open_model(smooth, dtype="bf16")
    assert lm.model.dtype == torch.bfloat16
    assert "not compared" in capsys.readouterr().out


def test_padding_may_differ_as_the_number_format_does(smooth, rough, monkeypatch):
    monkeypatch.setattr(shortcuts._Trial, "difference_of_padding", lambda trial, pad: 0.3)
    open_model(rough, dtype="bf16")
    with pytest.raises(LongtailError, match="something follows"):
        open_model(smooth, dtype="bf16")


def test_a_gpu_without_bf16_computes_in_fp16(tmp_path, monkeypatch, capsys):
    """No GPU is needed: the model opens on the CPU, as the format is chosen before."""
    folder, opened = tiny_models.language_model(tmp_path / "model", scale=0.02), []
    open_weights = weights._open

    def on_cpu(folder, dtype, device):
        opened.append((dtype, device))
        return open_weights(folder, dtype, "cpu")

    monkeypatch.setattr(weights, "_open", on_cpu)
    monkeypatch.setattr(devices, "total_memory", lambda device: 10**9)
    tokenizer = open_model(folder).tokenizer
    opened.clear()
    for has_bf16, kind in ((False, torch.float16), (True, torch.bfloat16)):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation, has=has_bf16: has
        )
        assert weights.load(folder, tokenizer, "bf16", "cuda").model.dtype == kind
    # both are compared with fp32 on the GPU itself
    assert opened == [("fp32", "cuda"), ("fp16", "cuda"), ("fp32", "cuda"), ("bf16", "cuda")]
    assert "log-probs in fp16 are 0.0" in capsys.readouterr().out


def test_int8_scores_about_as_fp32_does_or_says_what_to_install(tmp_path):
    folder = tiny_models.language_model(tmp_path, scale=0.05)
    if not find_spec("bitsandbytes"):
        with pytest.raises(LongtailError, match=r"no model could be loaded: .*pip install"):
            open_model(folder, dtype="int8")
        return
    lm = open_model(folder, dtype="int8")
    assert {weight.dtype for weight in lm.model.model.layers[0].mlp.parameters()} == {torch.int8}
    np.testing.assert_allclose(score(lm), score(open_model(folder)), atol=0.05)
