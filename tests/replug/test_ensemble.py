"""The ensembles equal the formulas computed another way: exact fractions of probabilities, document by document."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipelines.replug import ensemble

MIXTURES = list(ensemble.MIXTURES)
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 8))
SIMILARITY = st.one_of(st.floats(-2, 2), st.sampled_from([-1e4, 1e4, -math.inf]))


@st.composite
def tables(draw, similarity=SIMILARITY, shapes=SHAPES):
    """Log-probabilities (queries, k, tokens), similarities (queries, k), a temperature."""
    shape = draw(shapes)
    log_probs = draw(arrays.arrays(np.float64, shape, elements=st.floats(-20, 0)))
    return log_probs, draw(arrays.arrays(np.float64, shape[:2], elements=similarity)), draw(st.sampled_from([1, 0.1]))


def mixed(name, table, k=None):
    log_probs, similarities, temperature = table
    weights = ensemble.log_weights(similarities[:, :k], temperature)
    return ensemble.MIXTURES[name](log_probs[:, :k], weights)


def lambdas(similarities, temperature):
    """The softmax of one query's similarities as exact fractions of the exponentials' values."""
    top = max(similarities)
    exps = [Fraction(math.exp((s - top) / temperature)) if s != top else Fraction(1) for s in similarities]
    return [e / sum(exps) for e in exps]


def directly(name, log_probs, similarities, temperature):
    """log p of each token, (tokens,): the equation of section 3.2, or whole sequences by the chain rule."""
    weights = lambdas(similarities, temperature)
    probabilities = [[Fraction(math.exp(x)) for x in document] for document in log_probs.tolist()]
    steps = range(log_probs.shape[1])
    if name == "token_mixture":
        return [_log(sum(w * p[t] for w, p in zip(weights, probabilities, strict=True))) for t in steps]
    so_far = [
        sum(w * math.prod(p[:t]) for w, p in zip(weights, probabilities, strict=True)) for t in (*steps, len(steps))
    ]
    return [_log(so_far[t + 1] / so_far[t]) for t in steps]


def _log(fraction):
    return math.log(fraction.numerator) - math.log(fraction.denominator)


def check_mixture(name, table):
    log_probs, similarities, temperature = table
    for row, own, found in zip(log_probs, similarities, mixed(name, table), strict=True):
        own = own if np.isfinite(own).any() else np.zeros_like(own)
        np.testing.assert_allclose(found, directly(name, row, own.tolist(), temperature), atol=1e-6)


@settings(deadline=None)
@given(table=tables())
def test_token_mixture_is_the_papers_equation_in_exact_arithmetic(table):
    check_mixture("token_mixture", table)


@settings(deadline=None)
@given(table=tables())
def test_sequence_mixture_is_the_equation_of_whole_sequences_in_exact_arithmetic(table):
    check_mixture("sequence_mixture", table)


@settings(deadline=None)
@given(table=tables(st.floats(-2, 2)))
def test_log_weights_are_the_logs_of_the_softmax_in_exact_arithmetic(table):
    _, similarities, temperature = table
    for own, found in zip(similarities, ensemble.log_weights(similarities, temperature), strict=True):
        np.testing.assert_allclose(found, [_log(share) for share in lambdas(own.tolist(), temperature)], atol=1e-9)


@pytest.mark.parametrize("name", MIXTURES)
@settings(deadline=None)
@given(table=tables())
def test_one_document_is_scored_as_it_is(name, table):
    np.testing.assert_allclose(mixed(name, table, 1), table[0][:, 0], atol=1e-9)


@pytest.mark.parametrize("name", MIXTURES)
@settings(deadline=None)
@given(table=tables(), k=st.integers(1, 6))
def test_equal_documents_change_nothing(name, table, k):
    log_probs = np.repeat(table[0][:, :1], table[0].shape[1], axis=1)
    np.testing.assert_allclose(mixed(name, (log_probs, *table[1:]), k), log_probs[:, 0], atol=1e-9)


@pytest.mark.parametrize("name", MIXTURES)
@settings(deadline=None)
@given(table=tables(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_documents_changes_nothing(name, table, order):
    places = list(range(table[0].shape[1]))
    order.shuffle(places)
    shuffled = (table[0][:, places], table[1][:, places], table[2])
    np.testing.assert_allclose(mixed(name, shuffled), mixed(name, table), atol=1e-9)


@settings(deadline=None)
@given(table=tables())
def test_weights_sum_to_one_and_empty_places_weigh_nothing(table):
    _, similarities, temperature = table
    weights = np.exp(ensemble.log_weights(similarities, temperature))
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)
    empty = np.isneginf(similarities)
    assert (weights[empty & ~empty.all(1, keepdims=True)] == 0).all()


@pytest.mark.parametrize("name", MIXTURES)
@settings(deadline=None)
@given(table=tables(st.floats(-2, 2)), empty=st.integers(1, 3))
def test_empty_places_change_nothing_and_none_but_those_is_no_document(name, table, empty):
    log_probs, similarities, temperature = table
    n, _, tokens = log_probs.shape
    alone = np.full((n, empty, tokens), -1.25)
    places = np.full((n, empty), -np.inf)
    wider = np.concatenate([log_probs, alone], axis=1), np.concatenate([similarities, places], axis=1), temperature
    np.testing.assert_allclose(mixed(name, wider), mixed(name, table), atol=1e-9)
    np.testing.assert_allclose(mixed(name, (alone, places, temperature)), alone[:, 0], atol=1e-9)


@pytest.mark.parametrize("name", MIXTURES)
def test_places_beyond_a_continuations_end_add_nothing(name):
    draw = np.random.default_rng(0)
    log_probs, similarities = -draw.gamma(2.0, size=(5, 4, 7)), draw.normal(size=(5, 4))
    filled = np.concatenate([log_probs, np.zeros((5, 4, 3))], axis=2)
    np.testing.assert_allclose(mixed(name, (filled, similarities, 1))[:, 7:], 0, atol=1e-12)


@pytest.mark.parametrize("name", MIXTURES)
def test_very_unlikely_sequences_do_not_underflow(name):
    np.testing.assert_allclose(mixed(name, (np.full((1, 2, 400), -30.0), np.zeros((1, 2)), 1)), -30.0)


@given(weight=st.sampled_from([0.0, 0.25, 0.5, 0.9]), pairs=st.lists(st.tuples(*[st.integers(1, 99)] * 2), min_size=1))
def test_the_model_without_documents_is_a_member_of_the_ensemble_by_its_weight(weight, pairs):
    exact = [(1 - Fraction(weight)) * Fraction(mix, 100) + Fraction(weight) * Fraction(p, 100) for mix, p in pairs]
    mixed, alone = (np.log(np.array([column], np.float64) / 100) for column in zip(*pairs, strict=True))
    np.testing.assert_allclose(ensemble.with_alone(mixed, alone, weight)[0], [math.log(p) for p in exact], rtol=1e-12)


def test_beyond_a_continuations_end_the_model_without_documents_adds_nothing():
    np.testing.assert_allclose(ensemble.with_alone(np.zeros((2, 3)), np.zeros((2, 3)), 0.3), 0, atol=1e-15)


@given(
    nats=arrays.arrays(
        np.int64, st.tuples(st.integers(1, 4), st.just(2), st.integers(1, 5)), elements=st.integers(0, 9)
    )
)
def test_each_half_is_judged_by_the_first_of_the_settings_that_are_best_on_the_other(nats):
    expected = []
    for first, second in nats.tolist():
        expected.append(second[first.index(min(first))] + first[second.index(min(second))])
    assert ensemble.cross_fitted(nats).tolist() == expected


def test_bits_per_byte_is_over_the_corpus_not_a_mean_of_means():
    nats, n_bytes = np.array([math.log(2) * 8, math.log(2) * 100]), np.array([8, 50])
    assert ensemble.bits_per_byte(nats.sum(), n_bytes.sum()) == pytest.approx(108 / 58)
