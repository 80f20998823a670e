"""The local language model equals what a loop over pairs computes with transformers itself."""

from contextlib import contextmanager

import numpy as np
import pytest
import tiny_models
import torch
from local_models import counted, encode, open_model, pairs, save_family
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipelines.errors import LongtailError
from pipelines.lm.forward_passes import MAX_LOGITS
from pipelines.lm.language_model import Prompt

LONG = " ".join(tiny_models.words(8, 5, at_least=20))


def naive(lm, ids, asked):
    """log p of the last `asked` of `ids`, by one full forward pass."""
    with torch.inference_mode():
        log_probs = torch.log_softmax(lm.model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
    return [float(log_probs[i - 1, ids[i]]) for i in range(len(ids) - asked, len(ids))]


def test_scores_equal_a_loop_over_the_pairs_whatever_the_batches_and_repeated_are_the_same_bytes(tiny, local):
    prompts, continuations = pairs()
    scores = local.score(prompts, continuations)
    for prompt, continuation, log_probs in zip(prompts, continuations, scores.log_probs, strict=True):
        tail = encode(local, continuation)
        expected = naive(local, [0, *encode(local, prompt.document + prompt.context), *tail], len(tail))
        np.testing.assert_allclose(log_probs, expected, atol=1e-4)
    assert {log_probs.dtype for log_probs in scores.log_probs} == {np.dtype(np.float32)}
    whole = np.concatenate(scores.log_probs)
    other = open_model(tiny, batch_tokens=100).score(prompts[::-1], continuations[::-1]).log_probs[::-1]
    np.testing.assert_allclose(whole, np.concatenate(other), atol=1e-4)
    assert np.concatenate(local.score(prompts, continuations).log_probs).tobytes() == whole.tobytes()


def test_each_tokens_bytes_are_its_own_and_add_up_to_the_texts_utf8_bytes(local):
    texts = ["plain", " Ødegård 東京 🙂🙃", "\n\n x  ", "🙂", "é", " ", "", "Санкт-Петербург\u200d", "<s></s>x"]
    scores = local.score([Prompt("a")] * len(texts), texts)
    assert [int(b.sum()) for b in scores.bytes] == [len(text.encode()) for text in texts]
    assert [len(b) for b in scores.bytes] == [len(p) for p in scores.log_probs]
    assert all((b >= 0).all() for b in scores.bytes)
    expected = [len(local.tokenizer.decode([i]).encode()) for i in encode(local, " The Velm. born")]
    assert local.score([Prompt("")], [" The Velm. born"]).bytes[0].tolist() == expected


def test_an_empty_prompt_begins_with_the_models_own_first_token(local, tmp_path):
    tail = encode(local, "The Velm")
    first = local.score([Prompt("")], ["The Velm"]).log_probs[0]
    np.testing.assert_allclose(first, naive(local, [0, *tail], len(tail)), atol=1e-4)
    without = open_model(tiny_models.language_model(tmp_path, bos=False))
    log_probs = without.score([Prompt(""), Prompt("Q")], ["The Velm"] * 2).log_probs
    np.testing.assert_allclose(log_probs[0], naive(without, [0, *tail], len(tail)), atol=1e-4)
    np.testing.assert_allclose(log_probs[1], naive(without, [*encode(without, "Q"), *tail], len(tail)), atol=1e-4)


def test_too_long_a_prompt_loses_the_far_end_of_the_context(local):
    document, tail = "The capital of Norland is Velm.\n", encode(local, " Velm")
    head, both = encode(local, document), encode(local, document + LONG)
    assert len(both) > local.max_tokens
    room = local.max_tokens - 1 - len(tail) - len(head)
    expected = naive(local, [0, *head, *both[len(both) - room :], *tail], len(tail))
    np.testing.assert_allclose(local.score([Prompt(LONG, document)], [" Velm"]).log_probs[0], expected, atol=1e-4)


def test_too_long_a_document_loses_its_end_and_leaves_the_context_half_of_the_room(local):
    document, context = LONG + "\n", "Q: What is the capital of Norland? A:"
    tail, near, both = (encode(local, text) for text in (" Velm", context, document + context))
    room = local.max_tokens - 1 - len(tail)
    expected = naive(local, [0, *both[: room - len(near)], *near, *tail], len(tail))
    np.testing.assert_allclose(local.score([Prompt(context, document)], [" Velm"]).log_probs[0], expected, atol=1e-4)


def test_what_does_not_fit_is_refused(local, tmp_path):
    with pytest.raises(LongtailError, match="reads 128 at once"):
        local.score([Prompt("a")], [LONG])
    assert local.tokenizer.decode([local.token_id("Q")]) == "Q"
    with pytest.raises(LongtailError, match="expected one"):
        local.token_id(" Санкт-Петербург and more")
    with pytest.raises(LongtailError, match=r"no config\.json"):
        open_model(tmp_path)


# ---------------------------------------------------------------------- what is read, and how much memory it takes


def test_what_prompts_share_is_read_once_and_those_that_share_little_in_one_pass(local):
    shots = " ".join(tiny_models.words(3, 9, at_least=10, at_most=10)) + "\n"
    prompts = [Prompt(text, shots) for text in tiny_models.words(30, 2, at_most=4)]
    with counted(local) as shapes:
        local.score(prompts, [" Velm"] * 30)
        local.next_token(prompts)
    asked = 2 * sum(len(encode(local, shots + prompt.context)) for prompt in prompts)
    assert sum(rows * columns for rows, columns in shapes) < asked / 2
    prompts = [Prompt(text) for text in tiny_models.words(8, 2, at_least=5, at_most=12)]
    with counted(local) as shapes:
        local.score(prompts, [" Velm"] * 8)
    assert len(shapes) == 1


def test_memory_is_bounded_whatever_the_vocabulary(tmp_path):
    """Logits of all 40 pairs' continuations at once would be 40 * 26 * 100,000 * 4 bytes: 416 MB."""
    weights = 100_000 * 32
    lm = open_model(save_family("gemma2", tmp_path, vocab_size=100_000), batch_tokens=40 * 64)
    prompts, continuations = pairs(40)
    with largest() as seen:
        lm.score(prompts, [text * 3 for text in continuations])
    assert weights <= seen[0] <= MAX_LOGITS
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        lm.score(prompts, [text * 3 for text in continuations])
    events = profile.profiler.kineto_results.events()
    held = np.cumsum([event.nbytes() for event in events if event.name() == "[memory]"])
    assert 4 * weights < held.max() < 4 * 4 * MAX_LOGITS, "three arrays of so many logits"


@contextmanager
def largest():
    """The most numbers that any tensor has which an operation of torch makes meanwhile."""

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            seen[0] = max([seen[0], *(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))])
            return result

    seen = [0]
    with Watch():
        yield seen
