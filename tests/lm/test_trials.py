"""A model is tried when it is first opened; later openings take the results, wherever they would be the same."""

import json
import platform
from importlib.util import find_spec

import numpy as np
import pytest
import tiny_models
import torch
from local_models import open_model, pairs

from pipelines.errors import LongtailError
from pipelines.lm import shortcuts, weights
from pipelines.storage import shards


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project's folder, with a model in it."""
    monkeypatch.chdir(tmp_path)
    shards.SCRATCH.mkdir()
    return tiny_models.language_model(tmp_path / "model", scale=0.02)


@pytest.fixture
def tried(monkeypatch) -> list[str]:
    """What is compared, as it is compared."""
    compared, difference, log_probs = [], shortcuts.ShortcutCheck._difference, weights._log_probs

    def differs(self, shortcut):
        compared.append("shortcut")
        return difference(self, shortcut)

    def of_text(model, tokenizer):
        compared.append(str(model.dtype))
        return log_probs(model, tokenizer)

    monkeypatch.setattr(shortcuts.ShortcutCheck, "_difference", differs)
    monkeypatch.setattr(weights, "_log_probs", of_text)
    return compared


def kept() -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted(weights.KEPT.glob("*"))]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_second_opening_tries_nothing_and_gives_the_same(project, tried, capsys, dtype):
    prompts, continuations = pairs(8)

    def all_of(lm) -> list:
        passes = lm._passes
        shown = [passes.shares_prefixes, passes.keeps, passes._head.separable, lm._decoder.cached, lm._decoded_tokens]
        return [*shown, np.concatenate(lm.score(prompts, continuations).log_probs).tolist(), lm.generate(prompts, 4)]

    first, said = all_of(open_model(project, dtype=dtype)), capsys.readouterr().out
    assert tried.count("shortcut") == 3
    assert tried.count("torch.bfloat16") == tried.count("torch.float32") == (dtype == "bf16")
    tried.clear()
    assert (all_of(open_model(project, dtype=dtype)), capsys.readouterr().out) == (first, said)
    assert tried == []
    assert len(kept()) == 1


def test_what_may_change_a_result_is_tried_again(project, tried, monkeypatch):
    open_model(project)
    capabilities = torch.cpu.get_capabilities() | {"cpu_name": "another"}
    for change in (
        lambda: monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities),
        lambda: monkeypatch.setattr(weights, "version", lambda library: "another"),
        lambda: monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default"),
        lambda: (project / "generation_config.json").write_text('{"max_length": 9}'),
        lambda: tiny_models.language_model(project, scale=0.03),
    ):
        change()
        tried.clear()
        open_model(project)
        assert len(tried) == 3
    open_model(project, dtype="bf16")
    assert len(tried) == 3 + 5


def test_a_damaged_file_is_ignored_and_written_again(project, tried):
    open_model(project)
    (whole,), (file,) = kept(), weights.KEPT.glob("*")
    for damage in (b"", b'{"padding": 0.0', b"\xff", b"[1]", b'{"padding": "no"}', b"null"):
        file.write_bytes(damage)
        tried.clear()
        open_model(project)
        assert len(tried) == 3
        assert kept() == [whole]


# Number formats: bf16 and int8 are compared with fp32, and refused where they differ


def score(lm) -> np.ndarray:
    return np.concatenate(lm.score(*pairs(8)).log_probs)


def test_bf16_is_compared_with_fp32_and_refused_each_time_where_it_differs(project, tmp_path, capsys):
    expected = score(open_model(project))
    capsys.readouterr()
    lm = open_model(project, dtype="bf16")
    assert "log-probs in bf16 are 0.0" in capsys.readouterr().out
    assert lm.model.dtype == torch.bfloat16
    np.testing.assert_allclose(score(lm), expected, atol=0.05)
    rough, before = tiny_models.language_model(tmp_path / "rough", scale=1.0), kept()
    for _ in range(2):
        with pytest.raises(LongtailError, match=r"in bf16 are \d.*set its dtype to fp32"):
            open_model(rough, dtype="bf16")
    assert kept() == before


@pytest.mark.skipif(platform.machine() != "x86_64", reason="MKL and oneDNN are for x86 processors")
@pytest.mark.parametrize(("maker", "layer"), [("AMD EPYC", "_OneDNNLinear"), ("Intel Xeon", "Linear")])
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
        with pytest.raises(LongtailError, match=r"longtail\[large\]"):
            open_model(folder, dtype="int8")
        return
    lm = open_model(folder, dtype="int8")
    assert {weight.dtype for weight in lm.model.model.layers[0].mlp.parameters()} == {torch.int8}
    np.testing.assert_allclose(score(lm), score(open_model(folder)), atol=0.05)
