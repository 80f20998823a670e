"""A source document's split and key depend on the document alone; a bound on the keys reaches as far as is needed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import params
from pipelines.corpus.sample import Draw, KeyHistogram, sampling_key

QUERIES = params.Queries(
    context_tokens=8,
    continuation_tokens=8,
    validation_share=0.2,
    test_share=0.3,
    per_document=1,
    max_per_split=10,
    near_duplicate=0.8,
)


def corpus(share: float, test_files: str | None = None, validation_files: str | None = None) -> params.CorpusOf:
    return params.CorpusOf(
        documents=None, weights=None, query_share=share, test_files=test_files, validation_files=validation_files
    )


def splits(names: list[str], share: float, seed: int = 0) -> list[str]:
    return [Draw(seed, corpus(share), QUERIES).split(name, "a.txt") for name in names]


def test_shares_come_out_and_a_document_stays_in_its_split() -> None:
    names = [f"document{i}" for i in range(4000)]
    half = splits(names, 0.5)
    shares = {name: half.count(name) / len(half) for name in set(half)}
    assert shares == pytest.approx({"corpus": 0.5, "train": 0.25, "validation": 0.1, "test": 0.15}, abs=0.03)
    assert half == splits(names, 0.5)
    # With more queries wanted, documents leave the corpus; none of the queries changes its split.
    more = splits(names, 0.7)
    assert all(old in ("corpus", new) for old, new in zip(half, more, strict=True))
    assert set(splits(names, 0.0)) == {"corpus"}
    assert half != splits(names, 0.5, seed=1)


def test_files_can_say_their_split() -> None:
    files = {"wiki.train.tokens": "corpus", "wiki.test.tokens": "test", "test-00000-of-00001.parquet": "test"}
    assert {file: Draw(0, corpus(0.0, "*test*"), QUERIES).split("document", file) for file in files} == files


def test_published_splits_leave_queries_to_learn_from_and_no_other_test_text() -> None:
    names = [f"document{i}" for i in range(4000)]

    def shares(*globs: str | None) -> dict[str, float]:
        drawn = [Draw(0, corpus(0.5, *globs), QUERIES).split(name, "00.jsonl.zst") for name in names]
        return {split: drawn.count(split) / len(drawn) for split in set(drawn)}

    assert shares("test*", None) == pytest.approx({"corpus": 0.5, "train": 0.4, "validation": 0.1}, abs=0.03)
    assert shares("test*", "val*") == pytest.approx({"corpus": 0.5, "train": 0.5}, abs=0.03)
    draw = Draw(0, corpus(0.5, "test*", "val*"), QUERIES)
    assert {draw.split(name, "val.jsonl.zst") for name in names} == {"validation"}
    assert {draw.split(name, "test.jsonl.zst") for name in names} == {"test"}


def test_the_first_ones_are_drawn_in_proportion_to_their_weights() -> None:
    names = [f"document{i}" for i in range(30_000)]
    weights = np.where(np.arange(30_000) % 3 == 0, 4.0, 1.0)
    keys = np.array([sampling_key(0, name, weight) for name, weight in zip(names, weights, strict=True)])
    first = np.argsort(keys)[:1500]
    # Of 10,000 of weight 4 and 20,000 of weight 1, two thirds of the first are of weight 4.
    assert np.mean(weights[first] == 4) == pytest.approx(2 / 3, abs=0.04)
    # Of the first half, those with exp(-key) above 0.657: x ** 4 + 2 x = 1.5 is where half of them are.
    half = np.argsort(keys)[:15_000]
    assert np.mean(weights[half] == 4) == pytest.approx((1 - 0.657**4) * 10_000 / 15_000, abs=0.02)
    assert keys.min() > 0


def test_a_key_follows_from_the_document_and_its_weight() -> None:
    weighted = params.CorpusOf(
        documents=5, weights={"A": 2.0, "B": 1.0}, query_share=0.3, test_files=None, validation_files=None
    )
    draw = Draw(0, weighted, QUERIES)
    names = [f"document{i}" for i in range(200)]
    drawn = [draw.split(name, "00.jsonl.zst") for name in names]
    keys = list(map(draw.key, names, "B" * 200, drawn))
    assert list(map(draw.key, names, "C" * 200, drawn)) == [None] * 200
    assert list(map(draw.key, names, "A" * 200, drawn)) == [key and key / 2 for key in keys]
    assert keys.count(0.0) == pytest.approx(60, abs=20)  # the sources of queries are all read
    without = Draw(0, weighted.model_copy(update={"weights": None}), QUERIES)
    assert list(map(without.key, names, "C" * 200, drawn)) == keys


KEYS = st.floats(min_value=1e-20, max_value=1e6)


@given(st.lists(st.tuples(KEYS, st.integers(0, 1000)), min_size=1), st.integers(1, 5000), KEYS)
def test_a_bound_reaches_as_far_as_is_asked(documents: list[tuple[float, int]], wanted: int, low: float) -> None:
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
