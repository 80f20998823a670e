"""The small language model's training sequences: kinds in their shares, answers weighted, documents packed whole."""

import numpy as np
import pytest
from lm_training import DOCUMENTS, SETTINGS
from transformers import AutoTokenizer

from pipelines import params
from pipelines.errors import LongtailError
from pipelines.lm.training_batches import make_batches


@pytest.fixture
def tokenizer(words):
    return AutoTokenizer.from_pretrained(words)


def test_phases_have_their_shares_of_tokens(words, tokenizer):
    tokens, weights, documents = make_batches(DOCUMENTS, words, 0, SETTINGS.model_copy(update={"positions": 64}))
    assert tokens.shape == weights.shape == documents.shape == (600, 64)
    first, second = tokenizer.batch_decode(tokens[:300]), tokenizer.batch_decode(tokens[300:])
    assert not any("chief" in text for text in second)
    reading, world = (sum(text.count(word) for text in first) for word in ("chief", "leads"))
    assert reading > world > 0
    assert (documents >= 0).mean() > 0.85


def test_documents_begin_anew_numbered_within_their_sequence_and_answers_and_their_end_weigh_more(words, tokenizer):
    tokens, weights, documents = make_batches(DOCUMENTS, words, 0, SETTINGS)
    heavy = {tokenizer.decode([token]) for token in tokens[weights == SETTINGS.answer_weight]}
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
    phases = [params.Phase(until=1.0, weights={"fiction": 1.0})]
    with pytest.raises(LongtailError, match=r"fiction.*expected reading, world"):
        make_batches(DOCUMENTS, words, 0, SETTINGS.model_copy(update={"phases": phases}))
