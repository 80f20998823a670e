"""Every family of architectures scores and generates as plain forward passes do, or is refused."""

import numpy as np
import pytest
import tiny_models
import torch
from local_models import counted, encode, open_model, pairs
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, LlamaModel

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA_LIKE = {**SMALL, "intermediate_size": 48, "max_position_embeddings": 128, "initializer_range": 0.3}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
CONFIGS = {
    "gpt2": {"n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3},
    "opt": {
        **SMALL, "ffn_dim": 48, "max_position_embeddings": 128, "word_embed_proj_dim": 16, "init_std": 0.3, **SPECIAL,
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3, "pad_token_id": 2},
    # Grouped-query attention that looks back 8 tokens only.
    "mistral": {**LLAMA_LIKE, "num_key_value_heads": 2, "sliding_window": 8},
    # The logits are capped after the output embedding.
    "gemma2": {
        **LLAMA_LIKE, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8, "final_logit_softcapping": 2.0,
        **SPECIAL,
    },
    # Every other layer looks back 8 tokens only, which the cache does not know.
    "gpt_neo": {
        "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 128, "window_size": 8,
        "attention_types": [[["global", "local"], 1]], "initializer_range": 0.3,
    },
    # The decoder alone, in which padding takes positions.
    "bart": {
        "d_model": 32, "decoder_ffn_dim": 48, "decoder_layers": 2, "decoder_attention_heads": 4,
        "max_position_embeddings": 128, "init_std": 0.3, **SPECIAL,
    },
    # Recurrent: there are no keys and values.
    "mamba": {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "time_step_rank": 4},
    # A convolution in one layer and attention in the other, each with a cache of its own.
    "lfm2": {**LLAMA_LIKE, "num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]},
}  # fmt: skip
BEGUN_BY_TOKENIZER = {"opt", "mistral", "gemma2", "bart", "mamba"}  # these are tested with a tokenizer that adds <s>
OWN_CACHE = {"mamba", "lfm2"}  # these keep more of a text than keys and values


def save(family, folder, *, bos=True, **changes):
    """A small model of the family with random weights, in `folder`, with its tokenizer."""
    tokenizer = tiny_models.tokenizer(bos=bos)
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **CONFIGS[family] | changes)
    model = AutoModelForCausalLM.from_config(config)
    if family == "mamba":  # else its outputs are all alike
        with torch.no_grad():
            model.get_input_embeddings().weight.normal_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=CONFIGS)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def lm(family, tmp_path_factory):
    return open_model(save(family, tmp_path_factory.mktemp("family"), bos=family in BEGUN_BY_TOKENIZER))


@pytest.fixture(scope="module")
def texts():
    """Prompts and continuations: of 24 pairs alone, the same after one of two long documents, and some twice."""
    prompts, continuations = pairs(24)
    shots = [" ".join(tiny_models.words(2, seed, at_least=12, at_most=12)) + "\n" for seed in (7, 8)]
    prompts += [Prompt(prompt.context, shots[i % 2]) for i, prompt in enumerate(prompts)] + [Prompt("")]
    continuations += [*continuations, " Velm was born"]
    return prompts + prompts[24:30], continuations + continuations[24:30]


def plain(lm, sequences):
    """Log-softmax at every position of each sequence by itself, by transformers alone."""
    reference = AutoModelForCausalLM.from_pretrained(lm.model.config.name_or_path).eval()
    with torch.inference_mode():
        return [torch.log_softmax(reference(input_ids=torch.tensor([ids])).logits[0], -1).numpy() for ids in sequences]


def test_every_family_scores_as_a_plain_loop_does(lm, family, texts):
    prompts, continuations = texts
    first = [0] if family in BEGUN_BY_TOKENIZER else []
    tails = [encode(lm, text) for text in continuations]
    heads = [first + encode(lm, prompt.document + prompt.context) for prompt in prompts]
    heads = [head or [lm.tokenizer.bos_token_id] for head in heads]
    scores = lm.score(prompts, continuations).log_probs
    expected = plain(lm, [head + tail for head, tail in zip(heads, tails, strict=True)])
    for log_probs, head, tail, rows in zip(scores, heads, tails, expected, strict=True):
        np.testing.assert_allclose(log_probs, rows[range(len(head) - 1, len(head + tail) - 1), tail], atol=1e-5)
    for log_probs, rows in zip(lm.next_token(prompts), plain(lm, heads), strict=True):
        np.testing.assert_allclose(log_probs, rows[-1], atol=1e-5)


def test_every_family_generates_the_same_where_a_prefix_is_read_once(lm, family, texts):
    prompts = texts[0][24:48:2]  # all begin with the same document
    alone = [lm.generate([prompt], 6)[0] for prompt in prompts]
    with counted(lm) as shapes:
        together = lm.generate(prompts, 6)
    assert (shapes[0][0] == 1) == (family not in OWN_CACHE)
    assert [made.text for made in together] == [made.text for made in alone]
    means = ([made.mean_log_prob for made in generations] for generations in (together, alone))
    np.testing.assert_allclose(*means, atol=1e-5)


def test_a_long_text_does_not_change_how_a_short_one_beside_it_is_read(tmp_path, monkeypatch):
    """Phi-3's way to long texts changes the frequencies of all texts in a batch with a long one."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [8.0] * 4, "original_max_position_embeddings": 48}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, **factors}
    monkeypatch.setitem(CONFIGS, "llama", LLAMA_LIKE | {"rope_parameters": rope})
    lm = open_model(save("llama", tmp_path))
    prompts = [Prompt("Mira Tosh was"), Prompt(" ".join(tiny_models.words(2, 5, at_least=40)))]
    alone, _ = (lm.score([prompt], [" born in Velm"]).log_probs[0] for prompt in prompts)
    np.testing.assert_allclose(lm.score(prompts, [" born in Velm"] * 2).log_probs[0], alone, atol=1e-5)


def test_a_model_that_looks_ahead_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(CONFIGS, "bert", LLAMA_LIKE)
    with pytest.raises(LongtailError, match=r"BertLMHeadModel.*expected a causal language model"):
        open_model(save("bert", tmp_path))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda logits: torch.full_like(logits, float("nan")), "other log-probs where something follows"),
        (lambda logits: logits[:, 1000], r"can't read .* together \(IndexError: .*\); name another"),
    ],
    ids=["logits are NaN", "the model raises an error"],
)
@pytest.mark.usefixtures("workplace")  # no project, which would know this model's trials
def test_a_model_that_fails_on_batches_of_texts_is_refused(tmp_path, monkeypatch, broken, message):
    forward = LlamaForCausalLM.forward

    def broken_forward(self, *args, **kwargs):
        outputs = forward(self, *args, **kwargs)
        if outputs.logits.shape[0] > 1:
            outputs.logits = broken(outputs.logits)
        return outputs

    monkeypatch.setattr(LlamaForCausalLM, "forward", broken_forward)
    with pytest.raises(LongtailError, match=message):
        open_model(tiny_models.language_model(tmp_path))


def test_a_checkpoint_without_some_of_the_models_weights_is_refused(tmp_path):
    """transformers would draw them at random."""
    config = LlamaConfig(vocab_size=400, hidden_size=32, num_hidden_layers=1, intermediate_size=48)
    LlamaModel(config).save_pretrained(tmp_path)
    tiny_models.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(LongtailError, match=r"no weights for 1 of the parameters of LlamaForCausalLM, lm_head.weight"):
        open_model(tmp_path)
