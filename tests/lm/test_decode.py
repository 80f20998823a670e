"""Decoding with a cache, in batches, alone or under the mixture, equals a loop of full forward
passes per prompt."""

import numpy as np
import pytest
import tiny_models
import torch
from local_models import counted, encode, open_model
from scipy.special import logsumexp

from pipelines.lm import sizes
from pipelines.lm.language_model import Prompt
from pipelines.lm.shared_prefixes import BLOCK_TOKENS
from pipelines.replug import ensemble
from pipelines.work import devices

STEPS = 12
SHOTS = (
    "Q: Who wrote The Long Field? A: Mira Tosh\n\nQ: What is the capital of Norland? A: Velm\n\n"
)


def asked(n, k):
    """k prompts in a row for each of n questions, and log-weights (n, k); some places are empty."""
    documents = [text + "\n" for text in tiny_models.words(n * k, 1, at_most=15)]
    contexts = np.repeat(tiny_models.words(n, 2, at_most=12), k)
    similarities = np.random.default_rng(3).normal(size=(n, k))
    similarities[::4, k - 1 :] = -np.inf
    prompts = [Prompt(c, d) for c, d in zip(contexts.tolist(), documents, strict=True)]
    return prompts, ensemble.log_weights(similarities, 0.7)


def ids_of(lm, prompt):
    return [0, *encode(lm, prompt.document + prompt.context)]


def naive(lm, prompts, log_weights, stop="\n", mixture="token_mixture"):
    """One question: the text and its tokens' mean log-prob, by full forward passes and the formulas
    of `ensemble`."""
    made, log_probs = [], np.zeros((1, len(prompts), 0))  # of the tokens made, by each prompt
    for step in range(STEPS):
        texts = [torch.tensor([ids_of(lm, prompt) + made]) for prompt in prompts]
        with torch.inference_mode():
            rows = [
                torch.log_softmax(lm.model(input_ids=text).logits[0, -1].double(), -1).numpy()
                for text in texts
            ]
        so_far = np.concatenate([log_probs, np.zeros((1, len(prompts), 1))], axis=2)
        weights = ensemble.WEIGHTS[mixture](so_far, log_weights[None])
        weights = np.broadcast_to(weights, so_far.shape)[0, :, step]
        token = int(logsumexp(np.stack(rows) + weights[:, None], axis=0).argmax())
        if token == 1:
            break
        made.append(token)
        log_probs = np.concatenate(
            [log_probs, np.array([row[token] for row in rows])[None, :, None]], axis=2
        )
        if stop in lm.tokenizer.decode(made, skip_special_tokens=True).lstrip():
            break
    whole = lm.tokenizer.decode(made, skip_special_tokens=True)
    answer, found, _ = whole.lstrip().partition(stop)
    text = whole[: len(whole) - len(whole.lstrip())] + answer if answer else ""
    while (
        found
        and made
        and len(lm.tokenizer.decode(made[:-1], skip_special_tokens=True)) >= len(text)
    ):
        made.pop()
    mixed = ensemble.MIXTURES[mixture](log_probs[:, :, : len(made)], log_weights[None])
    return text, float(mixed.mean()) if text else -np.inf


def check(lm, prompts, log_weights, found, stop="\n", mixture="token_mixture"):
    k, texts = log_weights.shape[1], []
    for i, one in enumerate(found):
        own = prompts[i * k : (i + 1) * k]
        text, mean = naive(lm, own, log_weights[i], stop, mixture)
        assert one.text == text
        assert stop not in one.text.lstrip()
        np.testing.assert_allclose(one.mean_log_prob, mean, atol=1e-4)
        read = [
            len(ids_of(lm, p)) for p, w in zip(own, log_weights[i], strict=True) if np.isfinite(w)
        ]
        assert one.prompt_tokens == sum(read)
        texts.append(text)
    return texts


def same(found, expected):
    assert [one.text for one in found] == [one.text for one in expected]
    means = ([one.mean_log_prob for one in generations] for generations in (found, expected))
    np.testing.assert_allclose(*means, atol=1e-5)


@pytest.mark.parametrize("stop", ["\n", "an", " "])
def test_generation_equals_greedy_decoding_of_each_prompt_alone(local, stop):
    prompts, _ = asked(24, 1)
    prompts[3] = Prompt("")
    texts = check(local, prompts, np.zeros((24, 1)), local.generate(prompts, STEPS, stop), stop)
    ended = [len(encode(local, text)) < STEPS for text in texts]
    assert stop == "\n" or any(ended), "no answer met the stop string: the test shows nothing"
    if stop == " ":
        assert any(text.startswith(" ") for text in texts), "white space before an answer hides it"


def test_white_space_alone_is_no_answer_and_no_confidence(local, monkeypatch):
    monkeypatch.setattr(local._texts, "decode", lambda tokens: " \t "[: len(tokens)])
    made = local.generate([Prompt("a"), Prompt("b")], 3)
    assert {(one.text, one.mean_log_prob) for one in made} == {("", -np.inf)}


@pytest.mark.parametrize(("stop", "keeps"), [("\n", True), ("e", False)])
@pytest.mark.parametrize("mixture", ensemble.MIXTURES)
def test_an_answer_under_a_mixture_has_the_ensembles_numbers(
    local, monkeypatch, mixture, stop, keeps
):
    prompts, log_weights = asked(9, 4)
    monkeypatch.setattr(local._passes, "can_continue", keeps)
    sequence = mixture == "sequence_mixture"
    found = local.generate_mixture(prompts, log_weights, STEPS, stop, sequence_mixture=sequence)
    texts = check(local, prompts, log_weights, found, stop, mixture)
    other = local.generate_mixture(prompts, log_weights, STEPS, stop, sequence_mixture=not sequence)
    assert texts != [one.text for one in other], (
        "both mixtures gave the same answers: the test shows nothing"
    )
    best = [
        one.text
        for one in local.generate(
            [prompts[4 * i + w.argmax()] for i, w in enumerate(log_weights)], STEPS
        )
    ]
    assert texts != best, "the heaviest document decided every answer: the test shows nothing"


@pytest.mark.parametrize("same", [False, True])
def test_what_all_prompts_begin_with_is_read_once(tiny, same):
    lm = open_model(tiny, batch_tokens=4000)
    prompts, log_weights = asked(6, 2)
    prompts = [Prompt(prompt.context, 2 * SHOTS + prompt.document) for prompt in prompts]
    if same:  # then all but the last tokens are shared
        prompts = [prompts[0]] * len(prompts)
    with counted(lm) as shapes:
        found = lm.generate_mixture(prompts, log_weights, STEPS)
    own = [len(ids_of(lm, prompt)) for prompt in prompts]
    common = own[0] - 1 if same else 1 + len(encode(lm, 2 * SHOTS))
    read = [rows * columns for rows, columns in shapes]
    assert read[0] == common // BLOCK_TOKENS * BLOCK_TOKENS
    assert sum(read[:2]) < 0.6 * sum(own)
    new = sum(rows for rows, columns in shapes if columns == 1)
    tokens = sum(n for n, weight in zip(own, log_weights.ravel(), strict=True) if weight > -np.inf)
    shared = read[0] * (int(np.isfinite(log_weights).sum()) - 1)
    assert lm.usage == {"lm_tokens_read": tokens + new - shared, "lm_tokens_shared": shared}
    check(lm, prompts, log_weights, found)


@pytest.mark.parametrize("batch_tokens", [200, 700, 4000])
def test_documents_of_several_questions_are_read_once(tiny, batch_tokens):
    """200: each question alone; 700: some together; the last of three documents is the question's
    own."""
    lm = open_model(tiny, batch_tokens=batch_tokens)
    documents = [f"{text}\n\n" for text in tiny_models.words(4, seed=3, at_least=8, at_most=30)]
    _, log_weights = asked(10, 3)
    own = tiny_models.words(10, seed=4, at_most=12)
    drawn = np.random.default_rng(2).integers(0, 4, (10, 2))
    prompts = [
        Prompt(f"Q: {i} A:", document)
        for i, few in enumerate(drawn.tolist())
        for document in (documents[few[0]], documents[few[1]], f"{own[i]}\n\n")
    ]
    with counted(lm) as shapes:
        found = lm.generate_mixture(prompts, log_weights, STEPS)
    # the others are steps
    read = [rows * columns for rows, columns in shapes if rows * columns > len(prompts)]
    assert batch_tokens < 4000 or sum(read) < 0.9 * sum(
        len(ids_of(lm, prompt)) for prompt in prompts
    ), "with padding"
    check(lm, prompts, log_weights, found)


def test_batches_equal_documents_and_empty_places_change_nothing(tiny, local):
    prompts, log_weights = asked(9, 4)
    whole = local.generate_mixture(prompts, log_weights, STEPS)
    same(open_model(tiny, batch_tokens=100).generate_mixture(prompts, log_weights, STEPS), whole)
    prompts, _ = asked(6, 1)
    repeated = [one for prompt in prompts for one in [prompt, prompt, Prompt("not read")]]
    log_weights = ensemble.log_weights(np.tile([0.3, -0.2, -np.inf], (6, 1)), 0.1)
    same(local.generate_mixture(repeated, log_weights, STEPS), local.generate(prompts, STEPS))
    assert local.generate([], STEPS) == []


@pytest.mark.parametrize(("cache_bytes", "at_once"), [(0, 2), (1 << 24, 9)])
def test_as_many_prompts_are_decoded_as_fit(tiny, monkeypatch, cache_bytes, at_once):
    monkeypatch.setattr(sizes, "CPU_CACHE_BYTES", cache_bytes)
    prompts = [Prompt(f"Q: Who wrote The Long Field? {i} A:") for i in range(9)]
    longest = max(len(ids_of(open_model(tiny), prompt)) for prompt in prompts)
    lm = open_model(tiny, batch_tokens=2 * (longest + STEPS))
    with counted(lm) as shapes:
        lm.generate(prompts, STEPS)
    assert max(rows * columns for rows, columns in shapes if columns > 1) <= lm.sizes.batch_tokens
    assert max(rows for rows, columns in shapes if columns == 1) == at_once


@pytest.mark.parametrize("memory", [10**6, 10**8])
def test_on_a_gpu_sizes_follow_its_memory(tiny, local, monkeypatch, memory):
    """The CPU has the memory of a GPU, which decodes a step before it looks at the last one."""
    prompts, log_weights = asked(9, 4)
    expected = local.generate_mixture(prompts, log_weights, STEPS)
    monkeypatch.setattr(devices, "total_memory", lambda device: memory)
    lm = open_model(tiny, batch_tokens=None)
    lm._steps_ahead = 1
    with counted(lm) as shapes:
        same(lm.generate_mixture(prompts, log_weights, STEPS), expected)

    decoded = max(rows for rows, columns in shapes if columns == 1)
    n_read = int(np.isfinite(log_weights).sum())
    assert decoded == n_read if memory == 10**8 else decoded < n_read
    assert lm.sizes.batch_tokens == min(sizes.MOST_TOKENS, lm.sizes.batch_tokens)
    assert open_model(tiny, batch_tokens=50).sizes.batch_tokens == 50, "the params bound it"
