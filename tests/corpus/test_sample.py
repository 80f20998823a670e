"""A source document's split and key depend on the document alone; a bound on the keys reaches as far as is needed."""

import math

import numpy as np
import pytest
from corpora import chosen
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.sample import Draw, KeyHistogram, sampling_key

NAMES = [f"document{i}" for i in range(4000)]


def draw(share: float, seed: int = 0, **corpus) -> Draw:
    settings = chosen(share=share, **corpus)
    return Draw(seed, settings.corpus["pile"], settings.queries)


def splits(share: float, seed: int = 0, file: str = "00.jsonl.zst", **corpus) -> list[str]:
    drawn = draw(share, seed, **corpus)
    return [drawn.split(name, file) for name in NAMES]


def shares(splits: list[str]) -> dict[str, float]:
    return {split: splits.count(split) / len(splits) for split in set(splits)}


def test_shares_come_out_and_a_document_stays_in_its_split():
    half = splits(0.5)
    assert shares(half) == pytest.approx({"corpus": 0.5, "train": 0.25, "validation": 0.1, "test": 0.15}, abs=0.03)
    assert half == splits(0.5)
    # With more queries wanted, documents leave the corpus; none of the queries changes its split.
    assert all(old in ("corpus", new) for old, new in zip(half, splits(0.7), strict=True))
    assert set(splits(0.0)) == {"corpus"}
    assert half != splits(0.5, seed=1)


def test_files_can_say_their_split_and_the_others_give_queries_to_learn_from_and_no_more_test_text():
    test, both = {"test_files": "*test*"}, {"test_files": "*test*", "validation_files": "val*"}
    files = {"wiki.train.tokens": "corpus", "wiki.test.tokens": "test", "test-00000-of-00001.parquet": "test"}
    assert {file: draw(0.0, **test).split("document", file) for file in files} == files
    assert shares(splits(0.5, **test)) == pytest.approx({"corpus": 0.5, "train": 0.4, "validation": 0.1}, abs=0.03)
    assert shares(splits(0.5, **both)) == pytest.approx({"corpus": 0.5, "train": 0.5}, abs=0.03)
    assert set(splits(0.5, file="val.jsonl.zst", **both)) == {"validation"}
    assert set(splits(0.5, file="test.jsonl.zst", **both)) == {"test"}


def test_the_first_ones_are_drawn_in_proportion_to_their_weights():
    weights = np.where(np.arange(30_000) % 3 == 0, 4.0, 1.0)
    keys = np.array([sampling_key(0, f"document{i}", weight) for i, weight in enumerate(weights)])
    order = np.argsort(keys)
    # Of 10,000 of weight 4 and 20,000 of weight 1, two thirds of the first are of weight 4.
    assert np.mean(weights[order[:1500]] == 4) == pytest.approx(2 / 3, abs=0.04)
    # Of the first half, those with exp(-key) above 0.657: x ** 4 + 2 x = 1.5 is where half of them are.
    assert np.mean(weights[order[:15_000]] == 4) == pytest.approx((1 - 0.657**4) * 10_000 / 15_000, abs=0.02)
    assert keys.min() > 0


def test_a_key_follows_from_the_document_and_its_weight():
    weighted = draw(0.3, documents=5, weights={"A": 2.0, "B": 1.0})
    names = NAMES[:200]
    drawn = [weighted.split(name, "00.jsonl.zst") for name in names]
    keys = list(map(weighted.key, names, "B" * 200, drawn))
    assert list(map(weighted.key, names, "C" * 200, drawn)) == [None] * 200
    assert list(map(weighted.key, names, "A" * 200, drawn)) == [key and key / 2 for key in keys]
    assert keys.count(0.0) == pytest.approx(60, abs=20)  # the sources of queries are all read
    assert list(map(draw(0.3, documents=5).key, names, "C" * 200, drawn)) == keys


KEYS = st.floats(min_value=1e-20, max_value=1e6)


@given(st.lists(st.tuples(KEYS, st.integers(0, 1000)), min_size=1), st.integers(1, 5000), KEYS)
def test_a_bound_reaches_as_far_as_is_asked(documents, wanted, low):
    histogram = KeyHistogram()
    for key, characters in documents:
        histogram.add(key, characters)
    high = histogram.bound(wanted, -1.0)
    below = sum(size for key, size in documents if key <= high)
    assert below == histogram.characters_up_to(high)
    assert below >= wanted or high == math.inf
    if high < math.inf:  # a bucket less would not be enough
        assert sum(size for key, size in documents if key <= high / 2 ** (1.01 / 64)) < wanted
    assert histogram.bound(wanted, low) > low
    assert histogram.bound(sum(size for _, size in documents) + 1, -1.0) == math.inf
