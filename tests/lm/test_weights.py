"""The weights' number formats: bf16 and int8 are compared with fp32 and refused where they differ;
fast layers."""

import platform
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from local_models import open_model, pairs

from pipelines.errors import LongtailError
from pipelines.lm import weights


def score(lm) -> np.ndarray:
    return np.concatenate(lm.score(*pairs(8)).log_probs)


def test_bf16_is_compared_with_fp32_and_refused_where_it_differs(tmp_path, capsys):
    folder = tiny_models.language_model(tmp_path / "model", scale=0.02)
    expected = score(open_model(folder))
    assert "log-probs in" not in capsys.readouterr().out
    lm = open_model(folder, dtype="bf16")
    assert "log-probs in bf16 are 0.0" in capsys.readouterr().out
    assert lm.model.dtype == torch.bfloat16
    np.testing.assert_allclose(score(lm), expected, atol=0.05)
    with pytest.raises(LongtailError, match=r"in bf16 are \d.*set its dtype to fp32"):
        open_model(tiny_models.language_model(tmp_path / "rough", scale=1.0), dtype="bf16")


def test_in_a_project_fp32_is_opened_once_for_the_comparison(tmp_path, monkeypatch, capsys):
    folder, opened = tiny_models.language_model(tmp_path / "model", scale=0.02), []
    monkeypatch.chdir(tmp_path)
    Path(".longtail").mkdir()
    open_weights = weights._open
    monkeypatch.setattr(
        weights, "_open", lambda *args: opened.append(args[1]) or open_weights(*args)
    )
    for _ in range(2):
        open_model(folder, dtype="bf16")
        assert "log-probs in bf16 are 0.0" in capsys.readouterr().out
    assert opened == ["fp32", "bf16", "bf16"]
    tiny_models.language_model(folder, scale=0.03)
    open_model(folder, dtype="bf16")
    assert opened[3:] == ["fp32", "bf16"], "other weights"


def test_a_gpu_without_bf16_computes_in_fp16(tmp_path, monkeypatch, capsys):
    """No GPU is needed: the model opens on the CPU, as the format is chosen before."""
    folder, opened = tiny_models.language_model(tmp_path / "model", scale=0.02), []
    open_weights = weights._open

    def on_cpu(folder, dtype, device):
        opened.append((dtype, device))
        return open_weights(folder, dtype, "cpu")

    monkeypatch.setattr(weights, "_open", on_cpu)
    tokenizer = open_model(folder).tokenizer
    opened.clear()
    for has_bf16, kind in ((False, torch.float16), (True, torch.bfloat16)):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation, has=has_bf16: has
        )
        assert weights.load(folder, tokenizer, "bf16", "cuda").dtype == kind
    assert [which for which in opened if which[1] == "cuda"] == [("fp16", "cuda"), ("bf16", "cuda")]
    assert "log-probs in fp16 are 0.0" in capsys.readouterr().out


@pytest.mark.skipif(platform.machine() != "x86_64", reason="MKL and oneDNN are for x86 processors")
@pytest.mark.parametrize(
    ("maker", "layer"), [("AMD EPYC", "_OneDNNLinear"), ("Intel Xeon", "Linear")]
)
def test_fp32_is_multiplied_by_what_is_fast_on_the_processor(tmp_path, monkeypatch, maker, layer):
    folder = tiny_models.language_model(tmp_path, scale=0.05)
    expected = score(open_model(folder))
    processor = torch.cpu.get_capabilities() | {"cpu_name": maker}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    lm = open_model(folder)
    assert type(lm.model.model.layers[0].mlp.up_proj).__name__ == layer
    np.testing.assert_allclose(score(lm), expected, atol=1e-5)


def test_int8_scores_about_as_fp32_does_or_says_what_to_install(tmp_path):
    folder = tiny_models.language_model(tmp_path, scale=0.05)
    if not find_spec("bitsandbytes"):
        with pytest.raises(LongtailError, match=r"no model could be loaded: .*pip install"):
            open_model(folder, dtype="int8")
        return
    lm = open_model(folder, dtype="int8")
    assert {weight.dtype for weight in lm.model.model.layers[0].mlp.parameters()} == {torch.int8}
    np.testing.assert_allclose(score(lm), score(open_model(folder)), atol=0.05)
