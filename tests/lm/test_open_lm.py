"""Opening the language model that the params name: a folder of weights, or a server."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
from completions_server import Completions, settings

from pipelines import shards
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.model_files import CACHE_BYTES
from pipelines.lm.open_lm import lm_at_work, open_lm


def test_a_local_model_opens_without_the_modules_for_servers(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_model", "http_client"):
        monkeypatch.setitem(sys.modules, f"pipelines.lm.{name}", None)  # importing it fails
    lm = tiny_models.trained_lm()
    assert open_lm(tiny, lm, SimpleNamespace(device="cpu", threads=1), scoring=True).scores


def test_texts_are_scored_without_the_chat_template(tiny: Path) -> None:
    settings = tiny_models.trained_lm().model_copy(update={"source": "pretrained", "chat": True})
    compute, prompt = SimpleNamespace(device="cpu", threads=1), [Prompt("The capital")]
    in_chat, plain = open_lm(tiny, settings, compute), open_lm(tiny, settings, compute, scoring=True)
    assert (in_chat.begins, plain.begins) == ("", " ")
    ids = plain.tokenizer("The capital", return_tensors="pt")["input_ids"]
    expected = torch.log_softmax(plain.model(input_ids=ids).logits[0, -1], -1).detach()
    np.testing.assert_allclose(plain.next_token(prompt)[0], expected, atol=1e-4)
    assert not np.allclose(in_chat.next_token(prompt)[0], expected, atol=0.1)


def test_a_stage_that_scores_learns_so_when_it_opens_the_server(
    server: Completions, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SCRATCH", tmp_path)
    monkeypatch.setenv("LONGTAIL_API_KEY", "k")
    server.echo = False
    assert open_lm(tiny, settings(server.url), None).name == "tiny"
    with pytest.raises(LongtailError, match="can't score"):
        open_lm(tiny, settings(server.url), None, scoring=True)
    assert server.keys == {"Bearer k"}
    assert (tmp_path / "completions/answers.sqlite").is_file()


def test_a_model_at_work_says_what_it_is_without_its_weights(tiny: Path) -> None:
    params = tiny_models.trained_lm()
    with lm_at_work(tiny, params, tiny_models.compute(workers=2)) as lm:
        said = {
            name: getattr(lm, name) for name in ("name", "max_tokens", "scores", "mixes", "votes", "usage", "begins")
        }
        opened = lm.here()
        assert said == {name: getattr(opened, name) for name in said}
    assert lm.model.parameters == sum(weight.numel() for weight in opened.model.parameters())
    assert lm.model.bytes > 4 * lm.model.parameters + CACHE_BYTES, "workers begin that memory has no room for"
