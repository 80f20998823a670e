"""The local language model equals what a loop over pairs computes with transformers itself."""

from contextlib import contextmanager

import numpy as np
import pytest
import tiny_models
import torch
from local_models import counted, encode, open_model, pairs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Gemma2Config, Gemma2ForCausalLM

from pipelines.errors import LongtailError
from pipelines.lm.forward_passes import MAX_LOGITS
from pipelines.lm.language_model import Prompt


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.language_model(tmp_path_factory.mktemp("lm"))


@pytest.fixture(scope="module")
def lm(folder):
    return open_model(folder)


def naive(lm, ids, asked):
    """log p of the last `asked` of `ids`, by one full forward pass."""
    with torch.inference_mode():
        log_probs = torch.log_softmax(lm.model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
    return [float(log_probs[i - 1, ids[i]]) for i in range(len(ids) - asked, len(ids))]


def test_scores_equal_a_loop_over_the_pairs(lm):
    prompts, continuations = pairs()
    scores = lm.score(prompts, continuations)
    for prompt, continuation, log_probs in zip(prompts, continuations, scores.log_probs, strict=True):
        tail = encode(lm, continuation)
        expected = naive(lm, [0, *encode(lm, prompt.document + prompt.context), *tail], len(tail))
        np.testing.assert_allclose(log_probs, expected, atol=1e-4)
    assert {log_probs.dtype for log_probs in scores.log_probs} == {np.dtype(np.float32)}


def test_scores_do_not_depend_on_batches_or_their_order(folder, lm):
    prompts, continuations = pairs()
    whole = lm.score(prompts, continuations).log_probs
    other = open_model(folder, batch_tokens=100).score(prompts[::-1], continuations[::-1]).log_probs[::-1]
    np.testing.assert_allclose(np.concatenate(whole), np.concatenate(other), atol=1e-4)


def test_repeated_scoring_gives_the_same_bytes(lm):
    prompts, continuations = pairs()
    first, second = (np.concatenate(lm.score(prompts, continuations).log_probs).tobytes() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "text", ["plain", " Ødegård 東京 🙂🙃", "\n\n x  ", "🙂", "é", " ", "", "Санкт-Петербург\u200d", "<s></s>x"]
)
def test_token_bytes_add_up_to_the_texts_utf8_bytes(lm, text):
    scores = lm.score([Prompt("a")] * 3, [text, " b", text])
    assert [int(b.sum()) for b in scores.bytes] == [len(text.encode()), 2, len(text.encode())]
    assert [len(b) for b in scores.bytes] == [len(p) for p in scores.log_probs]
    assert all((b >= 0).all() for b in scores.bytes)


def test_each_tokens_bytes_are_its_own(lm):
    ids = encode(lm, " The Velm. born")
    expected = [len(lm.tokenizer.decode([i]).encode()) for i in ids]
    assert lm.score([Prompt("")], [" The Velm. born"]).bytes[0].tolist() == expected


def test_an_empty_prompt_begins_with_the_models_own_first_token(folder, tmp_path):
    lm = open_model(folder)
    tail = encode(lm, "The Velm")
    np.testing.assert_allclose(
        lm.score([Prompt("")], ["The Velm"]).log_probs[0], naive(lm, [0, *tail], len(tail)), atol=1e-4
    )
    without = open_model(tiny_models.language_model(tmp_path, bos=False))
    log_probs = without.score([Prompt(""), Prompt("Q")], ["The Velm"] * 2).log_probs
    np.testing.assert_allclose(log_probs[0], naive(without, [0, *tail], len(tail)), atol=1e-4)
    np.testing.assert_allclose(log_probs[1], naive(without, [*encode(without, "Q"), *tail], len(tail)), atol=1e-4)


def test_too_long_a_prompt_loses_the_far_end_of_the_context(lm):
    document, context = "The capital of Norland is Velm.\n", " ".join(tiny_models.words(8, 5, at_least=20))
    head, both, tail = encode(lm, document), encode(lm, document + context), encode(lm, " Velm")
    assert len(both) > lm.max_tokens
    room = lm.max_tokens - 1 - len(tail) - len(head)
    expected = naive(lm, [0, *head, *both[len(both) - room :], *tail], len(tail))
    np.testing.assert_allclose(lm.score([Prompt(context, document)], [" Velm"]).log_probs[0], expected, atol=1e-4)


def test_too_long_a_document_loses_its_end_and_leaves_the_context_half_of_the_room(lm):
    document, context = " ".join(tiny_models.words(8, 5, at_least=20)) + "\n", "Q: What is the capital of Norland? A:"
    tail, near = encode(lm, " Velm"), encode(lm, context)
    room = lm.max_tokens - 1 - len(tail)
    both = encode(lm, document + context)
    expected = naive(lm, [0, *both[: room - len(near)], *near, *tail], len(tail))
    np.testing.assert_allclose(lm.score([Prompt(context, document)], [" Velm"]).log_probs[0], expected, atol=1e-4)


def test_a_continuation_too_long_to_score_is_refused(lm):
    with pytest.raises(LongtailError, match="reads 128 at once"):
        lm.score([Prompt("a")], [" ".join(tiny_models.words(8, 5, at_least=20))])


def test_next_token_is_the_distribution_after_the_prompt(lm):
    prompts, _ = pairs(12)
    log_probs = lm.next_token(prompts)
    np.testing.assert_allclose(np.exp(log_probs).sum(1), 1, atol=1e-4)
    for prompt, row in zip(prompts, log_probs, strict=True):
        ids = [0, *encode(lm, prompt.document + prompt.context)]
        with torch.inference_mode():
            expected = torch.log_softmax(lm.model(input_ids=torch.tensor([ids])).logits[0, -1], -1)
        np.testing.assert_allclose(row, expected, atol=1e-4)


def test_token_id_takes_single_tokens_only(lm):
    assert lm.tokenizer.decode([lm.token_id("Q")]) == "Q"
    with pytest.raises(LongtailError, match="expected one"):
        lm.token_id(" Санкт-Петербург and more")


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(LongtailError, match=r"no config\.json"):
        open_model(tmp_path)


# ---------------------------------------------------------------------- what is read, and how much memory it takes


def test_what_prompts_share_is_read_once(lm):
    shots = " ".join(tiny_models.words(3, 9, at_least=10, at_most=10)) + "\n"
    prompts = [Prompt(text, shots) for text in tiny_models.words(30, 2, at_most=4)]
    with counted(lm) as shapes:
        lm.score(prompts, [" Velm"] * 30)
        lm.next_token(prompts)
    read = sum(rows * columns for rows, columns in shapes)
    asked = 2 * sum(len(encode(lm, shots + prompt.context)) for prompt in prompts)
    assert read < asked / 2


def test_texts_that_share_little_are_read_in_one_pass(lm):
    prompts = [Prompt(text) for text in tiny_models.words(8, 2, at_least=5, at_most=12)]
    with counted(lm) as shapes:
        lm.score(prompts, [" Velm"] * 8)
    assert len(shapes) == 1


def test_memory_is_bounded_whatever_the_vocabulary(tmp_path):
    """Logits of all 40 pairs' continuations at once would be 40 * 26 * 250,000 * 4 bytes: 1 GB."""
    size = 250_000
    config = Gemma2Config(
        vocab_size=size, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=128, sliding_window=8, initializer_range=0.3,
        final_logit_softcapping=2.0, pad_token_id=2, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)  # its logits are capped after the output embedding
    tiny_models.tokenizer().save_pretrained(tmp_path)
    lm = open_model(tmp_path, batch_tokens=40 * 64)
    prompts, continuations = pairs(40)
    with largest() as seen:
        lm.score(prompts, [text * 3 for text in continuations])
    weights = size * 32
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
