"""Opening the language model that the params name: a folder of weights, or a server."""

import sys

import numpy as np
import pytest
import tiny_models
import torch
from completions_server import settings

from pipelines import shards
from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.model_files import CACHE_BYTES
from pipelines.lm.open_lm import lm_at_work, open_lm

COMPUTE = tiny_models.compute()


def test_a_local_model_opens_without_the_modules_for_servers_and_scores_without_the_chat_template(tiny, monkeypatch):
    for name in ("http_model", "http_client"):
        monkeypatch.setitem(sys.modules, f"pipelines.lm.{name}", None)  # importing it fails
    settings, prompt = tiny_models.trained_lm().model_copy(update={"source": "pretrained", "chat": True}), "The capital"
    in_chat, plain = open_lm(tiny, settings, COMPUTE), open_lm(tiny, settings, COMPUTE, scoring=True)
    assert (in_chat.begins, plain.begins) == ("", " ")
    ids = plain.tokenizer(prompt, return_tensors="pt")["input_ids"]
    expected = torch.log_softmax(plain.model(input_ids=ids).logits[0, -1], -1).detach()
    np.testing.assert_allclose(plain.next_token([Prompt(prompt)])[0], expected, atol=1e-4)
    assert not np.allclose(in_chat.next_token([Prompt(prompt)])[0], expected, atol=0.1)


def test_a_stage_that_scores_learns_so_when_it_opens_the_server(server, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SCRATCH", tmp_path)
    monkeypatch.setenv("LONGTAIL_API_KEY", "k")
    server.echo = False
    assert open_lm(tiny, settings(server.url), None).name == "tiny"
    with pytest.raises(LongtailError, match="can't score"):
        open_lm(tiny, settings(server.url), None, scoring=True)
    assert server.keys == {"Bearer k"}
    assert (tmp_path / "completions/answers.sqlite").is_file()


def test_a_model_at_work_says_what_it_is_without_its_weights(tiny):
    said = ("name", "max_tokens", "scores", "mixes", "votes", "usage", "begins")
    with lm_at_work(tiny, tiny_models.trained_lm(), tiny_models.compute(workers=2)) as lm:
        before = {name: getattr(lm, name) for name in said}
        opened = lm.here()
        assert before == {name: getattr(opened, name) for name in said}
    assert lm.model.parameters == sum(weight.numel() for weight in opened.model.parameters())
    assert lm.model.bytes > 4 * lm.model.parameters + CACHE_BYTES, "workers begin that memory has no room for"
