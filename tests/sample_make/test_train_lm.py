"""The small language model's training: its sequences, that it repeats and learns, and what the
model is made of."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lm_training import DOCUMENTS, NAMES, SETTINGS
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines.errors import LongtailError
from sample.make import train_lm
from sample.make.sizes import Phase
from sample.make.train_lm import ANSWER_WEIGHT, make_batches


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(words, monkeypatch):
    """The model before its first step."""
    monkeypatch.setattr(train_lm, "DROPOUT", 0.0)
    return train_lm.make_model(AutoTokenizer.from_pretrained(words), 0, SETTINGS)


def test_the_loss_falls_and_the_model_answers_in_form(words, tmp_path):
    metrics = train_lm.train_language_model(DOCUMENTS, words, tmp_path / "lm", 0, SETTINGS)
    assert metrics["loss_curve"][0] > 2 * metrics["loss"]
    model, tokenizer = (
        kind.from_pretrained(tmp_path / "lm") for kind in (AutoModelForCausalLM, AutoTokenizer)
    )
    assert tokenizer.model_max_length == SETTINGS.positions
    for name in NAMES:
        prompt = tokenizer(f"Q: Who leads {name}? A:", return_tensors="pt")
        text = tokenizer.decode(model.generate(**prompt, max_new_tokens=6, do_sample=False)[0])
        assert any(f"A: {answer}\n" in text for answer in NAMES)


def test_same_seed_same_bytes(words, tmp_path):
    short, made = replace(SETTINGS, **{"steps": 6}), {}
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        train_lm.train_language_model(DOCUMENTS, words, tmp_path / name, seed, short)
        made[name] = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
    assert made["one"] == made["again"]
    assert made["one"]["model.safetensors"] != made["other"]["model.safetensors"]


def test_attention_starts_by_matching_and_copying(model):
    """One head starts by looking at the token before."""
    attention = model.model.layers[1].self_attn
    value, out = attention.v_proj.weight, attention.o_proj.weight
    assert torch.equal(attention.q_proj.weight, attention.k_proj.weight)
    assert torch.allclose(out @ value, torch.eye(SETTINGS.hidden_size), atol=1e-5)
    heads = model(input_ids=torch.arange(3, 27)[None], output_attentions=True).attentions[0][0]
    before = torch.diagonal(heads, offset=-1, dim1=1, dim2=2).mean(1)
    assert before[0] > 0.8
    assert before[1] < 0.3


@torch.inference_mode()
def test_a_document_learns_nothing_from_those_packed_before_it(model, words, monkeypatch):
    monkeypatch.setattr(train_lm, "PRODUCT_DTYPE", torch.float32)
    tokens, _, documents = make_batches(DOCUMENTS, words, 0, SETTINGS)
    ids, mask = torch.from_numpy(tokens[:4]), train_lm.document_mask(documents[:4])
    begin, end = (np.flatnonzero(documents[0] == 1)[i] for i in (0, -1))
    packed, alone = model(ids, attention_mask=mask).logits, model(ids[:1, begin : end + 1]).logits
    assert torch.allclose(packed[:1, begin : end + 1], alone, atol=1e-4)
    # transformers' own, but that its dropout is given
    model.set_attn_implementation("dropout_factors")

    def logits(rate: float) -> torch.Tensor:
        monkeypatch.setattr(train_lm, "DROPOUT", rate)
        return model(
            ids, attention_mask=mask, dropout_factors=train_lm.dropout(0, 0, SETTINGS)
        ).logits

    assert torch.equal(logits(0.0), packed)
    assert not torch.allclose(logits(0.3), packed, atol=0.01)


def test_dropout_drops_its_share_and_makes_up_for_it():
    settings = replace(SETTINGS, **{"positions": 65})
    kept = [
        train_lm.dropout(seed, step, settings).float()
        for seed, step in ((0, 7), (0, 7), (0, 8), (1, 7))
    ]
    assert kept[0].shape == (2, 4, 2, 65, 65)
    assert kept[0].unique().tolist() == [0.0, pytest.approx(1 / 0.85, abs=0.005)]
    assert float(kept[0].mean()) == pytest.approx(1.0, abs=0.01)
    assert torch.equal(kept[0], kept[1])
    for other in kept[2:]:
        assert float(((kept[0] == 0) & (other == 0)).float().mean()) == pytest.approx(
            0.15**2, abs=0.004
        )


def test_the_written_out_gradient_is_autograds():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 6, 9, generator=generator, requires_grad=True)
    ids = torch.randint(0, 9, (2, 6), generator=generator)
    weight = torch.rand(2, 6, generator=generator)
    weight[0, 4:] = 0
    nats = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    scale = weight[:, 1:].flatten()
    ((nats * scale).sum() / scale.sum()).backward()
    loss, gradient = train_lm.loss_and_gradient(logits.detach(), ids, weight)
    assert loss == pytest.approx(nats.detach()[scale > 0].mean().item())
    assert torch.allclose(gradient, logits.grad, atol=1e-6)


def test_the_learning_rate_warms_up_and_falls_to_nothing():
    factors = np.array([train_lm.schedule(step, 1000) for step in range(1000)])
    assert factors[0] < 0.1
    assert (factors[train_lm.WARMUP_STEPS : 500] == 1).all()
    assert (np.diff(factors[501:]) < 0).all()
    assert factors[-1] < 0.01


# Sequences: kinds in their shares, answers weighted, documents packed whole


@pytest.fixture
def tokenizer(words):
    return AutoTokenizer.from_pretrained(words)


def test_phases_have_their_shares_of_tokens(words, tokenizer):
    tokens, weights, documents = make_batches(
        DOCUMENTS, words, 0, replace(SETTINGS, **{"positions": 64})
    )
    assert tokens.shape == weights.shape == documents.shape == (600, 64)
    first, second = tokenizer.batch_decode(tokens[:300]), tokenizer.batch_decode(tokens[300:])
    assert not any("chief" in text for text in second)
    reading, world = (sum(text.count(word) for text in first) for word in ("chief", "leads"))
    assert reading > world > 0
    assert (documents >= 0).mean() > 0.85


def test_documents_begin_anew_within_their_sequence(words, tokenizer):
    """Answers and their end weigh more."""
    tokens, weights, documents = make_batches(DOCUMENTS, words, 0, SETTINGS)
    heavy = {tokenizer.decode([token]) for token in tokens[weights == ANSWER_WEIGHT]}
    light = {tokenizer.decode([token]) for token in tokens[weights == 1]}
    assert "\n" in heavy
    assert "Q" in light - heavy
    assert (weights[tokens == tokenizer.pad_token_id] == 0).all()
    begins = np.diff(documents, axis=1, prepend=-1) > 0
    assert (tokens[begins] == tokenizer.bos_token_id).all()
    assert begins.sum() == (tokens == tokenizer.bos_token_id).sum() > 600
    assert (weights[begins] == 0).all()
    assert (documents[:, 0] == 0).all()


def test_a_kind_that_no_document_is_of_is_named(words):
    phases = [Phase(until=1.0, weights={"fiction": 1.0})]
    with pytest.raises(LongtailError, match=r"fiction.*expected reading, world"):
        make_batches(DOCUMENTS, words, 0, replace(SETTINGS, **{"phases": phases}))
