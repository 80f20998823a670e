"""The local language model equals a loop over pairs with transformers itself, and opens as the
params name it."""

import shutil
import sys

import numpy as np
import pytest
import tiny_models
import torch
from completions_server import settings
from local_models import counted, encode, open_model, pairs, save_family

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt
from pipelines.lm.open_lm import lm_at_work, open_lm
from pipelines.lm.sizes import CPU_CACHE_BYTES, CPU_LOGITS

LONG = " ".join(tiny_models.words(8, 5, at_least=20))


def naive(lm, ids, asked):
    """log p of the last `asked` of `ids`, by one full forward pass."""
    with torch.inference_mode():
        log_probs = torch.log_softmax(lm.model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
    return [float(log_probs[i - 1, ids[i]]) for i in range(len(ids) - asked, len(ids))]


def test_scores_equal_a_loop_whatever_the_batches(tiny, local):
    """Pairs that come twice have the same bytes."""
    prompts, continuations = pairs()
    scores = local.score(prompts, continuations)
    for prompt, continuation, log_probs in zip(
        prompts, continuations, scores.log_probs, strict=True
    ):
        tail = encode(local, continuation)
        expected = naive(
            local, [0, *encode(local, prompt.document + prompt.context), *tail], len(tail)
        )
        np.testing.assert_allclose(log_probs, expected, atol=1e-4)
    assert {log_probs.dtype for log_probs in scores.log_probs} == {np.dtype(np.float32)}
    whole = np.concatenate(scores.log_probs)
    other = (
        open_model(tiny, batch_tokens=100).score(prompts[::-1], continuations[::-1]).log_probs[::-1]
    )
    np.testing.assert_allclose(whole, np.concatenate(other), atol=1e-4)
    assert (
        np.concatenate(local.score(prompts, continuations).log_probs).tobytes() == whole.tobytes()
    )


def test_each_tokens_bytes_add_up_to_the_texts(local):
    texts = [
        "plain",
        " Ødegård 東京 🙂🙃",
        "\n\n x  ",
        "🙂",
        "é",
        " ",
        "",
        "Санкт-Петербург\u200d",
        "<s></s>x",
    ]
    scores = local.score([Prompt("a")] * len(texts), texts)
    assert [int(b.sum()) for b in scores.bytes] == [len(text.encode()) for text in texts]
    assert [len(b) for b in scores.bytes] == [len(p) for p in scores.log_probs]
    assert all((b >= 0).all() for b in scores.bytes)
    expected = [len(local.tokenizer.decode([i]).encode()) for i in encode(local, " The Velm. born")]
    assert local.score([Prompt("")], [" The Velm. born"]).bytes[0].tolist() == expected


def test_too_long_a_prompt_loses_the_contexts_far_end(local):
    """Where that is not enough, the document's end goes."""
    document, tail = "The capital of Norland is Velm.\n", encode(local, " Velm")
    head, both = encode(local, document), encode(local, document + LONG)
    assert len(both) > local.max_tokens
    room = local.max_tokens - 1 - len(tail) - len(head)
    expected = naive(local, [0, *head, *both[len(both) - room :], *tail], len(tail))
    np.testing.assert_allclose(
        local.score([Prompt(LONG, document)], [" Velm"]).log_probs[0], expected, atol=1e-4
    )
    document, context = LONG + "\n", "Q: What is the capital of Norland? A:"
    tail, near, both = (encode(local, text) for text in (" Velm", context, document + context))
    room = local.max_tokens - 1 - len(tail)
    expected = naive(local, [0, *both[: room - len(near)], *near, *tail], len(tail))
    np.testing.assert_allclose(
        local.score([Prompt(context, document)], [" Velm"]).log_probs[0], expected, atol=1e-4
    )


def test_what_does_not_fit_is_refused(local, tmp_path):
    for asked in (
        lambda: local.score([Prompt("a")], [LONG]),
        lambda: local.generate([Prompt("a")], 128),
    ):
        with pytest.raises(LongtailError, match="reads 128 at once"):
            asked()
    shown = local.choose([Prompt("a")], ["Q", " Санкт-Петербург and more"])
    assert np.isnan(shown).tolist() == [[False, True]]
    with pytest.raises(LongtailError, match=r"no config\.json"):
        open_model(tmp_path)


def test_a_folder_that_is_not_whole_is_one_line(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "model")
    (folder / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    with pytest.raises(LongtailError, match=r"^[^\n]*model: no tokenizer: [^\n]*$"):
        open_model(folder)
    (tmp_path / "tokenizer.json").rename(folder / "tokenizer.json")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(LongtailError, match=r"^[^\n]*model: no model could be loaded: [^\n]*$"):
        open_model(folder)


def test_what_prompts_share_is_read_once(local):
    """Those that share little are read in one pass."""
    shots = " ".join(tiny_models.words(3, 9, at_least=10, at_most=10)) + "\n"
    prompts = [Prompt(text, shots) for text in tiny_models.words(30, 2, at_most=4)]
    before = dict(local.usage)
    with counted(local) as shapes:
        local.score(prompts, [" Velm"] * 30)
        local.next_token(prompts)
    asked = 2 * sum(len(encode(local, shots + prompt.context)) for prompt in prompts)
    # the last token is predicted and not read
    first, velm = (2 * 30, 30 * (len(encode(local, " Velm")) - 1))
    shared = 29 * sum(columns for rows, columns in shapes if rows == 1)
    counts = {"lm_tokens_read": asked + first + velm - shared, "lm_tokens_shared": shared}
    assert {name: local.usage[name] - count for name, count in before.items()} == counts
    assert sum(rows * columns for rows, columns in shapes) < asked / 2
    prompts = [Prompt(text) for text in tiny_models.words(8, 2, at_least=5, at_most=12)]
    with counted(local) as shapes:
        local.score(prompts, [" Velm"] * 8)
    assert len(shapes) == 1


def test_memory_is_bounded_whatever_the_vocabulary(tmp_path):
    """Logits of all 40 pairs' continuations at once would be 40 * 26 * 100,000 * 4 bytes: 416
    MB.
    """
    weights = 100_000 * 32
    lm = open_model(save_family("gemma2", tmp_path, vocab_size=100_000), batch_tokens=40 * 64)
    prompts, continuations = pairs(40)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        lm.score(prompts, [text * 3 for text in continuations])
    events = profile.profiler.kineto_results.events()
    held = np.cumsum([event.nbytes() for event in events if event.name() == "[memory]"])
    assert 4 * weights < held.max() < 4 * 4 * CPU_LOGITS, "three arrays of so many logits"


def test_a_local_model_opens_without_modules_for_servers(tiny, monkeypatch):
    """It scores without the chat template."""
    for name in ("http_model", "http_client"):
        monkeypatch.setitem(sys.modules, f"pipelines.lm.{name}", None)  # importing it fails
    settings, prompt = (tiny_models.local_lm(chat=True), "The capital")
    in_chat = open_lm(tiny, settings, tiny_models.compute())
    plain = open_lm(tiny, settings, tiny_models.compute(), scoring=True)
    assert (in_chat.begins, plain.begins) == ("", " ")
    ids = plain.tokenizer(prompt, return_tensors="pt")["input_ids"]
    expected = torch.log_softmax(plain.model(input_ids=ids).logits[0, -1], -1).detach()
    np.testing.assert_allclose(plain.next_token([Prompt(prompt)])[0], expected, atol=1e-4)
    assert not np.allclose(in_chat.next_token([Prompt(prompt)])[0], expected, atol=0.1)


def test_a_stage_that_scores_learns_so_when_it_opens_the_server(
    server, tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr("pipelines.lm.open_lm.SCRATCH", tmp_path)
    monkeypatch.setenv("LONGTAIL_API_KEY", "k")
    server.echo = False
    assert open_lm(tiny, settings(server.url), None).name == "tiny"
    with pytest.raises(LongtailError, match="can't score"):
        open_lm(tiny, settings(server.url), None, scoring=True)
    assert server.keys == {"Bearer k"}
    assert (tmp_path / "completions/answers.sqlite").is_file()


def test_a_model_at_work_says_what_it_is_without_its_weights(tiny):
    said = ("name", "max_tokens", "scores", "mixes", "votes", "usage", "begins")
    with lm_at_work(tiny, tiny_models.local_lm(), tiny_models.compute(workers=2)) as lm:
        before = {name: getattr(lm, name) for name in said}
        opened = lm.here()
        assert before == {name: getattr(opened, name) for name in said}
    assert lm.model.parameters == sum(weight.numel() for weight in opened.model.parameters())
    assert lm.model.bytes > 4 * lm.model.parameters + CPU_CACHE_BYTES, (
        "workers begin that memory has no room for"
    )
