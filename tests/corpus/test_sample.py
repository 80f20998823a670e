"""Source documents are drawn by weight, each by itself, and no more are read than are needed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_query_split import QUERIES

from pipelines import params
from pipelines.corpus.sample import Draw, Sizes, key


def test_the_first_ones_are_drawn_in_proportion_to_their_weights() -> None:
    names = [f"document{i}" for i in range(30_000)]
    weights = np.where(np.arange(30_000) % 3 == 0, 4.0, 1.0)
    keys = np.array([key(0, name, weight) for name, weight in zip(names, weights, strict=True)])
    first = np.argsort(keys)[:1500]
    # Of 10,000 of weight 4 and 20,000 of weight 1, two thirds of the first are of weight 4.
    assert np.mean(weights[first] == 4) == pytest.approx(2 / 3, abs=0.04)
    # Of the first half, those with exp(-key) above 0.657: x ** 4 + 2 x = 1.5 is where half of them are.
    half = np.argsort(keys)[:15_000]
    assert np.mean(weights[half] == 4) == pytest.approx((1 - 0.657**4) * 10_000 / 15_000, abs=0.02)
    assert keys.min() > 0


def test_a_place_follows_from_the_document_and_its_weight() -> None:
    corpus = params.CorpusOf(documents=5, weights={"A": 2.0, "B": 1.0}, query_share=0.3, query_files=None)
    draw = Draw(0, corpus, QUERIES)
    names = [f"document{i}" for i in range(200)]
    sides = [draw.side(name, "00.jsonl.zst") for name in names]
    places = list(map(draw.place, names, "B" * 200, sides))
    assert list(map(draw.place, names, "C" * 200, sides)) == [None] * 200
    assert list(map(draw.place, names, "A" * 200, sides)) == [place and place / 2 for place in places]
    assert places.count(0.0) == pytest.approx(60, abs=20)  # the sources of queries are all read
    without = Draw(0, corpus.model_copy(update={"weights": None}), QUERIES)
    assert list(map(without.place, names, "C" * 200, sides)) == places


keys = st.floats(min_value=1e-20, max_value=1e6)


@given(st.lists(st.tuples(keys, st.integers(0, 1000)), min_size=1), st.integers(1, 5000), keys)
def test_a_bound_reaches_as_far_as_is_asked(documents: list[tuple[float, int]], wanted: int, low: float) -> None:
    sizes = Sizes()
    for one in documents:
        sizes.add(*one)
    high = sizes.reach(wanted, -1.0)
    below = sum(size for place, size in documents if place <= high)
    assert below == sizes.upto(high)
    assert below >= wanted or high == math.inf
    if high < math.inf:  # a bucket less would not be enough
        assert sum(size for place, size in documents if place <= high / 2 ** (1.01 / 64)) < wanted
    assert sizes.reach(wanted, low) > low
    assert sizes.reach(sum(size for _, size in documents) + 1, -1.0) == math.inf
