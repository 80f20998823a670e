"""Sides are decided by the document alone, and near-duplicates are found, others not."""

import numpy as np
import pytest

from pipelines import params
from pipelines.corpus.split import BLOCK, near_duplicates, side, signature

QUERIES = params.Queries(
    context_tokens=8,
    continuation_tokens=8,
    validation_share=0.2,
    test_share=0.3,
    per_document=1,
    max_per_split=10,
    near_duplicate=0.8,
)


def test_shares_come_out_and_a_document_stays_on_its_side() -> None:
    names = [f"document{i}" for i in range(4000)]
    sides = [side(0, name, 0.5, QUERIES) for name in names]
    shares = {name: sides.count(name) / len(sides) for name in set(sides)}
    assert shares == pytest.approx({"corpus": 0.5, "train": 0.25, "validation": 0.1, "test": 0.15}, abs=0.03)
    assert sides == [side(0, name, 0.5, QUERIES) for name in names]
    # With more queries wanted, documents leave the corpus; none of the queries changes its split.
    more = [side(0, name, 0.7, QUERIES) for name in names]
    assert all(old in ("corpus", new) for old, new in zip(sides, more, strict=True))
    assert {side(0, name, 0.0, QUERIES) for name in names} == {"corpus"}
    assert sides != [side(1, name, 0.5, QUERIES) for name in names]


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    one, two = ({tuple(x[i : i + 5].tolist()) for i in range(len(x) - 4)} for x in (a, b))
    return len(one & two) / len(one | two)


def test_signatures_estimate_the_jaccard_similarity() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 5000, 3000)
    for keep in (3000, 2800, 2000, 500):
        other = np.concatenate([base[:keep], rng.integers(0, 5000, 3000 - keep)])
        estimate = np.mean(signature(base) == signature(other))
        assert estimate == pytest.approx(jaccard(base, other), abs=0.12)


def test_a_document_longer_than_a_block_has_the_signature_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.random.default_rng(1).integers(0, 5000, 3000)
    whole = signature(tokens)
    monkeypatch.setattr("pipelines.corpus.split.BLOCK", 100)
    assert BLOCK > 3000
    assert np.array_equal(signature(tokens), whole)


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_near_duplicates_are_found_and_only_they(threshold: float) -> None:
    rng = np.random.default_rng(2)
    documents = rng.integers(0, 5000, (40, 400))
    queries = {f"q{i}": signature(tokens) for i, tokens in enumerate(documents)}
    edited = documents[:20].copy()
    edited[:10, 200] = 5001  # five of 396 runs differ: similarity 0.975
    edited[10:20, ::3] = 5001  # no run is left
    found = near_duplicates(queries, map(signature, [*edited, documents[30]]), threshold)
    expected = {"q30"} | ({f"q{i}" for i in range(10)} if threshold < 1 else set())
    assert found - {f"q{i}" for i in range(10)} == expected - {f"q{i}" for i in range(10)}
    if threshold < 1:
        assert found == expected


def test_without_queries_nothing_is_read() -> None:
    assert near_duplicates({}, iter([]), 0.8) == set()


def test_short_documents_have_signatures_too() -> None:
    one, two, none = (signature(np.array(tokens, dtype=np.int64)) for tokens in ([3, 4], [3, 5], []))
    assert not np.array_equal(one, two)
    assert one.shape == none.shape
