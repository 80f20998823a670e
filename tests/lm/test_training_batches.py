"""The small language model's training sequences: kinds in their shares, answers weighted, documents packed whole."""

import numpy as np
import pytest
from lm_training import DOCUMENTS, SETTINGS
from transformers import AutoTokenizer

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.lm.training_batches import make_batches


def test_phases_have_their_shares_of_tokens(words):
    tokens, weights, documents = make_batches(DOCUMENTS, words, 0, SETTINGS.model_copy(update={"positions": 64}))
    assert tokens.shape == weights.shape == documents.shape == (600, 64)
    tokenizer = AutoTokenizer.from_pretrained(words)
    first, second = tokenizer.batch_decode(tokens[:300]), tokenizer.batch_decode(tokens[300:])
    assert not any("chief" in text for text in second)
    reading, world = (sum(text.count(word) for text in first) for word in ("chief", "leads"))
    assert reading > world > 0
    assert (documents >= 0).mean() > 0.85


def test_answers_and_their_end_weigh_more_and_padding_nothing(words):
    tokens, weights, _ = make_batches(DOCUMENTS, words, 0, SETTINGS)
    tokenizer = AutoTokenizer.from_pretrained(words)
    heavy = {tokenizer.decode([token]) for token in tokens[weights == SETTINGS.answer_weight]}
    light = {tokenizer.decode([token]) for token in tokens[weights == 1]}
    assert "\n" in heavy
    assert "Q" in light - heavy
    assert (weights[tokens == tokenizer.pad_token_id] == 0).all()


def test_every_document_begins_anew_and_is_numbered_within_its_sequence(words):
    tokens, weights, documents = make_batches(DOCUMENTS, words, 0, SETTINGS)
    bos = AutoTokenizer.from_pretrained(words).bos_token_id
    begins = np.diff(documents, axis=1, prepend=-1) > 0
    assert (tokens[begins] == bos).all()
    assert begins.sum() == (tokens == bos).sum() > 600
    assert (weights[begins] == 0).all()
    assert (documents[:, 0] == 0).all()


def test_a_kind_that_no_document_is_of_is_named(words):
    phases = [params.Phase(until=1.0, weights={"fiction": 1.0})]
    with pytest.raises(LongtailError, match=r"fiction.*expected reading, world"):
        make_batches(DOCUMENTS, words, 0, SETTINGS.model_copy(update={"phases": phases}))
