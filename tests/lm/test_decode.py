"""Decoding with a cache, in batches, alone or under the mixture, equals a loop of full forward passes per prompt."""

import numpy as np
import pytest
import tiny_models
import torch
from scipy.special import logsumexp
from transformers import BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

from pipelines.errors import LongtailError
from pipelines.lm import local, prefixes
from pipelines.lm.language_model import Prompt
from pipelines.lm.local import LocalModel
from pipelines.replug import ensemble

STEPS = 12
SHOTS = "Q: Who wrote The Long Field? A: Mira Tosh\n\nQ: What is the capital of Norland? A: Velm\n\n"
SMALL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
OTHERS = {  # other ways to know a token's place than LLaMA's: learnt positions, positions from the mask, ALiBi
    "gpt2": lambda size: GPT2LMHeadModel(
        GPT2Config(vocab_size=size, n_positions=128, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3, **SMALL)
    ),
    "opt": lambda size: OPTForCausalLM(
        OPTConfig(
            vocab_size=size,
            hidden_size=32,
            ffn_dim=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            init_std=0.3,
            max_position_embeddings=128,
            word_embed_proj_dim=32,
            **SMALL,
        )
    ),
    "bloom": lambda size: BloomForCausalLM(
        BloomConfig(vocab_size=size, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3, **SMALL)
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.language_model(tmp_path_factory.mktemp("lm"))


@pytest.fixture(scope="module")
def lm(folder):
    return open_model(folder)


def open_model(folder, batch_tokens=700):
    return LocalModel(folder, name="tiny", dtype="fp32", batch_tokens=batch_tokens, device="cpu", threads=1)


def asked(n, k):
    """k prompts in a row for each of n questions, and log-weights (n, k); some places are empty."""
    documents = [text + "\n" for text in tiny_models.words(n * k, 1, at_most=15)]
    contexts = np.repeat(tiny_models.words(n, 2, at_most=12), k)
    similarities = np.random.default_rng(3).normal(size=(n, k))
    similarities[::4, k - 1 :] = -np.inf
    prompts = [Prompt(c, d) for c, d in zip(contexts.tolist(), documents, strict=True)]
    return prompts, ensemble.log_weights(similarities, 0.7)


def ids_of(lm, prompt):
    return [0, *lm.tokenizer(prompt.document + prompt.context, add_special_tokens=False)["input_ids"]]


def naive(lm, prompts, log_weights, stop="\n", mixture="token_mixture"):
    """One question: the text and its tokens' mean log-prob, by full forward passes and the formulas of `ensemble`."""
    made, log_probs = [], np.zeros((1, len(prompts), 0))  # of the tokens made, by each prompt
    for step in range(STEPS):
        texts = [torch.tensor([ids_of(lm, prompt) + made]) for prompt in prompts]
        with torch.inference_mode():
            rows = [torch.log_softmax(lm.model(input_ids=text).logits[0, -1].double(), -1).numpy() for text in texts]
        so_far = np.concatenate([log_probs, np.zeros((1, len(prompts), 1))], axis=2)
        weights = ensemble.WEIGHTS[mixture](so_far, log_weights[None])
        weights = np.broadcast_to(weights, so_far.shape)[0, :, step]
        token = int(logsumexp(np.stack(rows) + weights[:, None], axis=0).argmax())
        if token == 1:
            break
        made.append(token)
        log_probs = np.concatenate([log_probs, np.array([row[token] for row in rows])[None, :, None]], axis=2)
        if stop in lm.tokenizer.decode(made, skip_special_tokens=True).lstrip():
            break
    whole = lm.tokenizer.decode(made, skip_special_tokens=True)
    answer, found, _ = whole.lstrip().partition(stop)
    text = whole[: len(whole) - len(whole.lstrip())] + answer if answer else ""
    while found and made and len(lm.tokenizer.decode(made[:-1], skip_special_tokens=True)) >= len(text):
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
        read = [len(ids_of(lm, p)) for p, w in zip(own, log_weights[i], strict=True) if np.isfinite(w)]
        assert one.prompt_tokens == sum(read)
        texts.append(text)
    return texts


@pytest.mark.parametrize("stop", ["\n", "e", "an", " "])
def test_generation_equals_greedy_decoding_of_each_prompt_alone(lm, stop):
    prompts, _ = asked(24, 1)
    prompts[3] = Prompt("")
    texts = check(lm, prompts, np.zeros((24, 1)), lm.generate(prompts, STEPS, stop), stop)
    ended = [len(lm.tokenizer(text)["input_ids"]) - 1 < STEPS for text in texts]
    assert stop == "\n" or any(ended), "no answer met the stop string: the test shows nothing"
    if stop == " ":
        assert any(text.startswith(" ") for text in texts), "white space before an answer hides it"


def test_white_space_alone_is_no_answer_and_no_confidence(lm, monkeypatch):
    monkeypatch.setattr(lm._decoder, "_decode", lambda tokens: " \t "[: len(tokens)])
    assert {(made.text, made.mean_log_prob) for made in lm.generate([Prompt("a"), Prompt("b")], 3)} == {("", -np.inf)}


@pytest.mark.parametrize("kind", ["alone", "mixed"])
def test_a_real_models_answer_after_a_line_break_is_read(real_models, kind):
    lm = open_model(real_models / "smollm2-135m")
    prompts = [Prompt("Q: Who was the director of 1870? A:"), Prompt("Q: In what city was Kristian Outinen born? A:")]
    if kind == "alone":
        texts = [made.text for made in lm.generate(prompts, 15)]
    else:
        texts = [made.text for made in lm.generate_mixture([prompts[0]] * 2, np.log([[0.5, 0.5]]), 15)]
    assert set(texts) == {"\nA:"}


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("stop", ["\n", "e"])
@pytest.mark.parametrize("mixture", ensemble.MIXTURES)
def test_an_answer_under_a_mixture_has_the_ensembles_numbers(folder, mixture, stop, cached):
    lm, (prompts, log_weights) = open_model(folder), asked(9, 4)
    lm._decoder.cached = cached
    sequence = mixture == "sequence_mixture"
    found = lm.generate_mixture(prompts, log_weights, STEPS, stop, sequence_mixture=sequence)
    texts = check(lm, prompts, log_weights, found, stop, mixture)
    other = lm.generate_mixture(prompts, log_weights, STEPS, stop, sequence_mixture=not sequence)
    assert texts != [one.text for one in other], "both mixtures gave the same answers: the test shows nothing"
    best = [one.text for one in lm.generate([prompts[4 * i + w.argmax()] for i, w in enumerate(log_weights)], STEPS)]
    assert texts != best, "the heaviest document decided every answer: the test shows nothing"


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("shots", ["", SHOTS])
def test_other_architectures_decode_alike(tmp_path, kind, shots):
    torch.manual_seed(1)
    own = tiny_models.tokenizer()
    OTHERS[kind](len(own)).save_pretrained(tmp_path)
    own.save_pretrained(tmp_path)
    lm = open_model(tmp_path, batch_tokens=2000)
    prompts, log_weights = asked(4, 3)
    prompts = [Prompt(prompt.context, shots + prompt.document) for prompt in prompts]
    check(lm, prompts, log_weights, lm.generate_mixture(prompts, log_weights, STEPS))


@pytest.mark.parametrize("same", [False, True])
def test_what_all_prompts_begin_with_is_read_once(folder, same):
    lm, read = open_model(folder, batch_tokens=4000), []
    prompts, log_weights = asked(6, 2)
    prompts = [Prompt(prompt.context, 2 * SHOTS + prompt.document) for prompt in prompts]
    if same:  # then all but the last tokens are shared
        prompts = [prompts[0]] * len(prompts)
    lm.model.get_input_embeddings().register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    found = lm.generate_mixture(prompts, log_weights, STEPS)
    own = [len(ids_of(lm, prompt)) for prompt in prompts]
    common = own[0] - 1 if same else 1 + len(lm.tokenizer(2 * SHOTS, add_special_tokens=False)["input_ids"])
    assert read[0] == common // prefixes.BLOCK * prefixes.BLOCK
    assert sum(read[:2]) < 0.6 * sum(own)
    check(lm, prompts, log_weights, found)


@pytest.mark.parametrize("batch_tokens", [200, 700, 4000])
def test_documents_of_several_questions_are_read_once_however_long_and_wherever_they_stand(folder, batch_tokens):
    """200: each question alone; 700: some together; the last of three documents is the question's own."""
    lm, read = open_model(folder, batch_tokens=batch_tokens), []
    documents = [f"{text}\n\n" for text in tiny_models.words(4, seed=3, at_least=8, at_most=30)]
    _, log_weights = asked(10, 3)
    own = tiny_models.words(10, seed=4, at_most=12)
    drawn = np.random.default_rng(2).integers(0, 4, (10, 2))
    prompts = [
        Prompt(f"Q: {i} A:", document)
        for i, few in enumerate(drawn.tolist())
        for document in (documents[few[0]], documents[few[1]], f"{own[i]}\n\n")
    ]
    lm.model.get_input_embeddings().register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    found, every = lm.generate_mixture(prompts, log_weights, STEPS), sum(len(ids_of(lm, prompt)) for prompt in prompts)
    passes = [count for count in read if count > len(prompts)]  # the others are steps of a token
    assert batch_tokens < 4000 or sum(passes) < 0.9 * every, "padding included"
    check(lm, prompts, log_weights, found)


def test_batches_change_nothing(folder, lm):
    prompts, log_weights = asked(9, 4)
    found = open_model(folder, batch_tokens=100).generate_mixture(prompts, log_weights, STEPS)
    for one, other in zip(found, lm.generate_mixture(prompts, log_weights, STEPS), strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.mean_log_prob, other.mean_log_prob, atol=1e-5)


def test_equal_documents_and_empty_places_change_nothing(lm):
    prompts, _ = asked(6, 1)
    repeated = [one for prompt in prompts for one in [prompt, prompt, Prompt("not read")]]
    log_weights = ensemble.log_weights(np.tile([0.3, -0.2, -np.inf], (6, 1)), 0.1)
    for one, other in zip(lm.generate_mixture(repeated, log_weights, STEPS), lm.generate(prompts, STEPS), strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.mean_log_prob, other.mean_log_prob, atol=1e-5)


def test_a_long_prompt_loses_its_far_end_to_leave_room_for_the_answer(lm):
    context = " ".join(tiny_models.words(8, 5, at_least=20))
    kept = lm.tokenizer(context, add_special_tokens=False)["input_ids"][-(lm.max_tokens - 1 - STEPS) :]
    cut = Prompt(lm.tokenizer.decode(kept))
    assert ids_of(lm, cut)[1:] == kept
    (found,) = lm.generate([Prompt(context)], STEPS)
    check(lm, [cut], np.zeros((1, 1)), [found])
    assert found.prompt_tokens == lm.max_tokens - STEPS


def test_more_new_tokens_than_the_model_reads_are_refused(lm):
    with pytest.raises(LongtailError, match="reads 128 at once"):
        lm.generate([Prompt("a")], 128)


def test_no_prompts_no_texts(lm):
    assert lm.generate([], STEPS) == []


@pytest.mark.parametrize(("cache_bytes", "rows"), [(0, 2), (1 << 24, 9)])
def test_so_many_prompts_are_decoded_at_once_as_their_keys_and_values_fit(folder, monkeypatch, cache_bytes, rows):
    monkeypatch.setattr(local, "CACHE_BYTES", cache_bytes)
    prompts = [Prompt(f"Q: Who wrote The Long Field? {i} A:") for i in range(9)]
    longest = max(len(ids_of(open_model(folder), prompt)) for prompt in prompts)
    lm, shapes = open_model(folder, batch_tokens=2 * (longest + STEPS)), []
    lm.model.get_input_embeddings().register_forward_hook(lambda _, given, __: shapes.append(given[0].shape))
    lm.generate(prompts, STEPS)
    assert max(n * width for n, width in shapes if width > 1) <= lm.batch_tokens
    assert max(n for n, width in shapes if width == 1) == rows
