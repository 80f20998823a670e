"""The local language model equals what a loop over pairs computes with transformers itself."""

import numpy as np
import pytest
import tiny_models
import torch

from pipelines.errors import LongtailError
from pipelines.lm.local import LocalModel
from pipelines.lm.protocol import Prompt


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.language_model(tmp_path_factory.mktemp("lm"))


def open_model(folder, batch_tokens=700, name="tiny"):
    return LocalModel(folder, name=name, dtype="fp32", batch_tokens=batch_tokens, device="cpu", threads=1)


@pytest.fixture(scope="module")
def lm(folder):
    return open_model(folder)


def pairs(n=40):
    documents = ["", *[text + "\n" for text in tiny_models.words(n - 1, 1, at_most=15)]]
    contexts = tiny_models.words(n, 2, at_most=12)
    continuations = [" " + text for text in tiny_models.words(n, 3, at_most=10)]
    return [Prompt(c, d) for c, d in zip(contexts, documents, strict=True)], continuations


def naive(lm, ids, asked):
    """log p of the last `asked` of `ids`, by one full forward pass."""
    with torch.inference_mode():
        log_probs = torch.log_softmax(lm.model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
    return [float(log_probs[i - 1, ids[i]]) for i in range(len(ids) - asked, len(ids))]


def encode(lm, text):
    return lm.tokenizer(text, add_special_tokens=False)["input_ids"]


def test_scores_equal_a_loop_over_the_pairs(lm):
    prompts, continuations = pairs()
    scores = lm.score(prompts, continuations)
    for prompt, continuation, found in zip(prompts, continuations, scores.log_probs, strict=True):
        tail = encode(lm, continuation)
        expected = naive(lm, [0, *encode(lm, prompt.document + prompt.context), *tail], len(tail))
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert {found.dtype for found in scores.log_probs} == {np.dtype(np.float32)}


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
    found = without.score([Prompt(""), Prompt("Q")], ["The Velm"] * 2).log_probs
    np.testing.assert_allclose(found[0], naive(without, [0, *tail], len(tail)), atol=1e-4)
    np.testing.assert_allclose(found[1], naive(without, [*encode(without, "Q"), *tail], len(tail)), atol=1e-4)


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
    found = lm.next_token(prompts)
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-4)
    for prompt, row in zip(prompts, found, strict=True):
        ids = [0, *encode(lm, prompt.document + prompt.context)]
        with torch.inference_mode():
            expected = torch.log_softmax(lm.model(input_ids=torch.tensor([ids])).logits[0, -1], -1)
        np.testing.assert_allclose(row, expected, atol=1e-4)


def test_token_id_takes_single_tokens_only(lm):
    assert lm.tokenizer.decode([lm.token_id("Q")]) == "Q"
    with pytest.raises(LongtailError, match="expected one"):
        lm.token_id(" Санкт-Петербург and more")


def naive_greedy(lm, ids, max_tokens, stop):
    made, log_probs = [], []
    for _ in range(max_tokens):
        with torch.inference_mode():
            row = torch.log_softmax(lm.model(input_ids=torch.tensor([ids + made])).logits[0, -1].float(), -1)
        token = int(row.argmax())
        if token == 1:
            break
        made.append(token)
        log_probs.append(float(row[token]))
        text = lm.tokenizer.decode(made, skip_special_tokens=True)
        if stop in text:
            text = text.split(stop)[0]
            while made and len(lm.tokenizer.decode(made[:-1], skip_special_tokens=True)) >= len(text):
                made.pop()
                log_probs.pop()
            return text, float(np.mean(log_probs)) if log_probs else -np.inf
    text = lm.tokenizer.decode(made, skip_special_tokens=True)
    return text, float(np.mean(log_probs)) if log_probs else -np.inf


@pytest.mark.parametrize("stop", ["\n", "e", "an"])
def test_generation_equals_greedy_decoding_of_each_prompt_alone(lm, stop):
    prompts, _ = pairs(24)
    prompts[3] = Prompt("")
    ended = 0
    for prompt, found in zip(prompts, lm.generate(prompts, 12, stop), strict=True):
        ids = [0, *encode(lm, prompt.document + prompt.context)]
        text, mean = naive_greedy(lm, ids, 12, stop)
        assert found.text == text
        assert stop not in found.text
        assert found.prompt_tokens == len(ids)
        np.testing.assert_allclose(found.mean_log_prob, mean, atol=1e-4)
        ended += len(encode(lm, text)) < 12
    assert stop == "\n" or ended, "no answer met the stop string: the test shows nothing"


def test_generation_cuts_a_long_prompt_on_the_left(lm):
    context = " ".join(tiny_models.words(8, 5, at_least=20))
    kept = [0, *encode(lm, context)[-(lm.max_tokens - 1 - 12) :]]
    found = lm.generate([Prompt(context)], 12, "\n")[0]
    assert found.text == naive_greedy(lm, kept, 12, "\n")[0]
    assert found.prompt_tokens == lm.max_tokens - 12


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(LongtailError, match=r"no config\.json"):
        open_model(tmp_path)
