"""The ensembles equal the formulas computed another way: exact fractions of probabilities,
document by document.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipelines.replug import ensemble
from pipelines.scoring.bits_per_byte import bits_per_byte

SIMILARITY = st.one_of(st.floats(-2, 2), st.sampled_from([-1e4, 1e4, -math.inf]))


@st.composite
def tables(draw):
    """Log-probabilities (queries, k, tokens), similarities (queries, k), a temperature."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 8)))
    log_probs = draw(arrays.arrays(np.float64, shape, elements=st.floats(-20, 0)))
    return (
        log_probs,
        draw(arrays.arrays(np.float64, shape[:2], elements=SIMILARITY)),
        draw(st.sampled_from([1, 0.1])),
    )


def mixed(name, table):
    log_probs, similarities, temperature = table
    return ensemble.MIXTURES[name](log_probs, ensemble.log_weights(similarities, temperature))


def lambdas(similarities, temperature):
    """The softmax of one query's similarities as exact fractions of the exponentials' values."""
    top = max(similarities)
    exps = [
        Fraction(math.exp((s - top) / temperature)) if s != top else Fraction(1)
        for s in similarities
    ]
    return [e / sum(exps) for e in exps]


def directly(name, log_probs, similarities, temperature):
    """log p of each token, (tokens,): the equation of section 3.2, or whole sequences by the
    chain rule.
    """
    weights = lambdas(similarities, temperature)
    probabilities = [[Fraction(math.exp(x)) for x in document] for document in log_probs.tolist()]
    steps = range(log_probs.shape[1])
    pairs = list(zip(weights, probabilities, strict=True))
    if name == "token_mixture":
        return [_log(sum(w * p[t] for w, p in pairs)) for t in steps]
    so_far = [sum(w * math.prod(p[:t]) for w, p in pairs) for t in (*steps, len(steps))]
    return [_log(so_far[t + 1] / so_far[t]) for t in steps]


def _log(fraction):
    return math.log(fraction.numerator) - math.log(fraction.denominator)


@pytest.mark.parametrize("name", list(ensemble.MIXTURES))
@given(table=tables())
def test_the_mixture_is_the_papers_equation(name, table):
    """Empty places have similarity -inf and no weight; where all are empty, they have equal
    weights.
    """
    log_probs, similarities, temperature = table
    for row, own, found in zip(log_probs, similarities, mixed(name, table), strict=True):
        own = own if np.isfinite(own).any() else np.zeros_like(own)
        np.testing.assert_allclose(found, directly(name, row, own.tolist(), temperature), atol=1e-6)


@pytest.mark.parametrize("name", list(ensemble.MIXTURES))
def test_very_unlikely_sequences_do_not_underflow(name):
    """Places beyond their end add nothing."""
    log_probs = np.full((1, 2, 410), -30.0)
    log_probs[:, :, 400:] = 0.0
    found = mixed(name, (log_probs, np.array([[0.0, 0.7]]), 1))
    np.testing.assert_allclose(found, log_probs[:, 0], atol=1e-12)


def test_bits_per_byte_is_over_the_corpus_not_a_mean_of_means():
    nats, n_bytes = np.array([math.log(2) * 8, math.log(2) * 100]), np.array([8, 50])
    assert bits_per_byte(nats.sum(), n_bytes.sum()) == pytest.approx(108 / 58)
