"""The ensembles equal the formulas computed naively, in probabilities and with loops."""

import math

import numpy as np
import pytest

from pipelines.replug import ensemble


@pytest.fixture
def drawn():
    draw = np.random.default_rng(0)
    return -draw.gamma(2.0, size=(5, 4, 7)), draw.normal(size=(5, 4))


def naive_weights(similarities, temperature):
    exps = [math.exp(s / temperature) for s in similarities]
    return [e / sum(exps) for e in exps]


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_token_mixture_is_the_papers_equation(drawn, temperature):
    log_probs, similarities = drawn
    found = ensemble.token_mixture(log_probs, ensemble.log_weights(similarities, temperature))
    for q in range(5):
        weights = naive_weights(similarities[q], temperature)
        for t in range(7):
            mixed = sum(w * math.exp(log_probs[q, d, t]) for d, w in enumerate(weights))
            assert found[q, t] == pytest.approx(math.log(mixed), abs=1e-12)


def test_sequence_mixture_mixes_whole_sequences(drawn):
    log_probs, similarities = drawn
    found = ensemble.sequence_mixture(log_probs, ensemble.log_weights(similarities, 1.0))
    for q in range(5):
        weights = naive_weights(similarities[q], 1.0)
        mixed = sum(w * math.exp(sum(log_probs[q, d])) for d, w in enumerate(weights))
        assert found[q].sum() == pytest.approx(math.log(mixed), abs=1e-10)
        first = sum(w * math.exp(log_probs[q, d, 0]) for d, w in enumerate(weights))
        assert found[q, 0] == pytest.approx(math.log(first), abs=1e-12)


@pytest.mark.parametrize("mix", ensemble.MIXTURES.values())
def test_one_document_is_its_own_ensemble(drawn, mix):
    log_probs, similarities = drawn
    weights = ensemble.log_weights(similarities[:, :1], 0.3)
    np.testing.assert_allclose(mix(log_probs[:, :1], weights), log_probs[:, 0], atol=1e-12)


@pytest.mark.parametrize("mix", ensemble.MIXTURES.values())
def test_very_unlikely_sequences_do_not_underflow(mix):
    log_probs = np.full((1, 2, 400), -30.0)
    found = mix(log_probs, ensemble.log_weights(np.zeros((1, 2)), 1.0))
    np.testing.assert_allclose(found, -30.0)


@pytest.mark.parametrize("mix", ensemble.MIXTURES.values())
def test_places_beyond_a_continuations_end_add_nothing(drawn, mix):
    log_probs, similarities = drawn
    weights = ensemble.log_weights(similarities, 1.0)
    filled = np.concatenate([log_probs, np.zeros((5, 4, 3))], axis=2)
    np.testing.assert_allclose(mix(filled, weights).sum(1), mix(log_probs, weights).sum(1), atol=1e-12)


def test_responsibilities_are_each_documents_share_of_the_token(drawn):
    log_probs, similarities = drawn
    found = ensemble.responsibilities(log_probs, ensemble.log_weights(similarities, 1.0))
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    weights = naive_weights(similarities[2], 1.0)
    parts = [w * math.exp(log_probs[2, d, 3]) for d, w in enumerate(weights)]
    np.testing.assert_allclose(found[2, :, 3], np.array(parts) / sum(parts), atol=1e-12)


def test_bits_per_byte_is_over_the_corpus_not_a_mean_of_means():
    nats, n_bytes = np.array([math.log(2) * 8, math.log(2) * 100]), np.array([8, 50])
    assert ensemble.bits_per_byte(nats.sum(), n_bytes.sum()) == pytest.approx(108 / 58)


def test_bm25_counts_as_a_share_of_the_best_score_and_random_as_nothing():
    scores = np.array([[8.0, 4.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
    assert ensemble.comparable(scores, "bm25").tolist() == [[1, 0.5, 0], [0, 0, 0]]
    assert ensemble.comparable(scores, "random").tolist() == [[0, 0, 0]] * 2
    assert ensemble.comparable(scores, "dense") is scores
