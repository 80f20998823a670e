"""Every family of architectures scores and generates as plain forward passes do, or is refused."""

import numpy as np
import pytest
import tiny_models
import torch
from local_models import FAMILIES, counted, encode, open_model, pairs, save_family
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, LlamaModel

from pipelines.errors import LongtailError
from pipelines.lm.language_model import Prompt

# these are tested with a tokenizer that adds <s>
BEGUN_BY_TOKENIZER = {"opt", "mistral", "gemma2", "bart", "mamba"}
# these keep more of a text than keys and values, or count padding as positions
READ_ANEW = {"mamba", "lfm2", "bart"}


@pytest.fixture(scope="module")
def texts():
    """Prompts and continuations: of 12 pairs alone, the same after one of two long documents, and
    some twice."""
    prompts, continuations = pairs(12)
    shots = [
        " ".join(tiny_models.words(2, seed, at_least=12, at_most=12)) + "\n" for seed in (7, 8)
    ]
    prompts += [Prompt(prompt.context, shots[i % 2]) for i, prompt in enumerate(prompts)] + [
        Prompt("")
    ]
    continuations += [*continuations, " Velm was born"]
    return prompts + prompts[12:16], continuations + continuations[12:16]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_scores_and_generates_as_plain_loops_do(family, texts, tmp_path):
    lm = open_model(save_family(family, tmp_path, bos=family in BEGUN_BY_TOKENIZER))
    reference = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    first = [0] * (family in BEGUN_BY_TOKENIZER)
    prompts, continuations = texts
    scores, likely = lm.score(prompts, continuations).log_probs, lm.next_token(prompts)
    for prompt, continuation, log_probs, after in zip(
        prompts, continuations, scores, likely, strict=True
    ):
        head = first + encode(lm, prompt.document + prompt.context) or [lm.tokenizer.bos_token_id]
        tail = encode(lm, continuation)
        with torch.inference_mode():
            rows = torch.log_softmax(
                reference(input_ids=torch.tensor([head + tail])).logits[0], -1
            ).numpy()
        np.testing.assert_allclose(
            log_probs, rows[range(len(head) - 1, len(head + tail) - 1), tail], atol=1e-5
        )
        np.testing.assert_allclose(after, rows[len(head) - 1], atol=1e-5)

    alike = prompts[12:24:2]  # all begin with the same document
    alone = [lm.generate([prompt], 6)[0] for prompt in alike]
    with counted(lm) as shapes:
        together = lm.generate(alike, 6)
    assert (shapes[0][0] == 1) == (family not in READ_ANEW), "what they begin with is read once"
    assert [made.text for made in together] == [made.text for made in alone]
    means = ([made.mean_log_prob for made in generations] for generations in (together, alone))
    np.testing.assert_allclose(*means, atol=1e-5)


def test_a_long_text_does_not_change_a_short_one_beside_it(tmp_path):
    """Phi-3's way to long texts changes the frequencies of all texts in a batch with a long one."""
    factors = {
        "short_factor": [1.0] * 4,
        "long_factor": [8.0] * 4,
        "original_max_position_embeddings": 48,
    }
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, **factors}
    lm = open_model(save_family("llama", tmp_path, rope_parameters=rope))
    prompts = [Prompt("Mira Tosh was"), Prompt(" ".join(tiny_models.words(2, 5, at_least=40)))]
    alone, _ = (lm.score([prompt], [" born in Velm"]).log_probs[0] for prompt in prompts)
    np.testing.assert_allclose(
        lm.score(prompts, [" born in Velm"] * 2).log_probs[0], alone, atol=1e-5
    )


def test_a_model_that_looks_ahead_or_lacks_weights_is_refused(tmp_path):
    with pytest.raises(LongtailError, match=r"BertLMHeadModel.*expected a causal language model"):
        open_model(save_family("bert", tmp_path / "bert"))
    folder = tiny_models.save(
        tmp_path / "llama", LlamaModel, LlamaConfig, tiny_models.tokenizer(), **tiny_models.SHAPE
    )
    # transformers would draw them at random
    with pytest.raises(
        LongtailError,
        match=r"no weights for 1 of the parameters of LlamaForCausalLM, lm_head.weight",
    ):
        open_model(folder)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            lambda logits: torch.full_like(logits, float("nan")),
            "other log-probs where something follows",
        ),
        (
            lambda logits: logits[:, 1000],
            r"can't read .* together \(IndexError: .*\); name another",
        ),
    ],
    ids=["logits are NaN", "the model raises an error"],
)
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
