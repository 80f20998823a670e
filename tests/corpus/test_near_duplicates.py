"""Near-duplicates of documents in earlier splits are found, and no others."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from pipelines.corpus.near_duplicates import (
    PERMUTATIONS,
    SHINGLE,
    SPLITS,
    bands,
    near_duplicates,
    signatures,
)


def signed(*texts: np.ndarray | list[int]) -> np.ndarray:
    return signatures([np.array(text, dtype=np.uint32) for text in texts])


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    one, two = (
        {tuple(x[i : i + SHINGLE].tolist()) for i in range(len(x) - SHINGLE + 1)} for x in (a, b)
    )
    return len(one & two) / len(one | two)


def test_signatures_estimate_the_jaccard_similarity():
    """They are the same in any company."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 5000, 3000)
    for keep in (3000, 2800, 2000, 500):
        other = np.concatenate([base[:keep], rng.integers(0, 5000, 3000 - keep)])
        estimates = [
            np.mean(one == two)
            for one, two in [signed(base, other), signed(base[::-1], other[::-1])]
        ]
        assert np.mean(estimates) == pytest.approx(jaccard(base, other), abs=0.1)
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 50, n) for n in (0, 1, 4, 5, 6, 300, 0, 2)]
    for text, signature in zip(texts, signed(*texts), strict=True):
        assert np.array_equal(signed(text)[0], signature)
        assert np.array_equal(signed([7, 7, 7], text, [9] * 20)[1], signature)
    assert signatures([]).shape == (0, PERMUTATIONS)
    one, two, three = signed([3, 4], [3, 5], [3, 4, 4])
    assert max(np.mean(one == two), np.mean(one == three)) < 0.1


def found(documents: dict[str, tuple[str, np.ndarray]], threshold: float) -> set[str]:
    minhashes = signed(*(tokens for _, tokens in documents.values()))
    return found_by(
        minhashes, list(documents), [split for split, _ in documents.values()], threshold
    )


def found_by(
    signatures: np.ndarray, names: list[str], splits: list[str], threshold: float
) -> set[str]:
    columns = {
        "source_document": names,
        "split": splits,
        "signature": pa.FixedSizeListArray.from_arrays(pa.array(signatures.ravel()), PERMUTATIONS),
        "bands": list(bands(signatures, threshold)),
    }
    with duckdb.connect() as db:
        db.register("documents", pa.table(columns))
        return near_duplicates(db, "documents", threshold)


def alike(rng: np.random.Generator, count: int, changed: float) -> np.ndarray:
    """Signatures of one text with a share of it changed, each time elsewhere."""
    same = np.tile(rng.integers(0, 2**32, PERMUTATIONS, dtype=np.uint32), (count, 1))
    return np.where(
        rng.random(same.shape) < changed, rng.integers(0, 2**32, same.shape, dtype=np.uint32), same
    )


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_near_duplicates_of_the_corpus_are_found_and_only_they(threshold):
    rng = np.random.default_rng(2)
    texts = rng.integers(0, 5000, (40, 400))
    documents = {f"q{i}": ("train", tokens) for i, tokens in enumerate(texts)}
    edited = texts[:20].copy()
    edited[:10, 200] = 5001  # five of 396 runs differ: similarity 0.975
    edited[10:20, ::3] = 5001  # no run is left
    documents |= {f"c{i}": ("corpus", tokens) for i, tokens in enumerate([*edited, texts[30]])}
    same = found(documents, threshold)
    assert same - {f"q{i}" for i in range(10)} == {"q30"}
    assert threshold == 1 or same == {"q30"} | {f"q{i}" for i in range(10)}


def test_of_many_documents_all_near_duplicates_are_found():
    rng = np.random.default_rng(5)
    minhashes = np.concatenate([alike(rng, 60, changed) for changed in (0.05, 0.1, 0.13, 0.2)])
    splits = rng.choice(SPLITS, len(minhashes), p=[0.6, 0.2, 0.1, 0.1])
    names = [f"d{i}" for i in range(len(minhashes))]
    ranks = np.array([SPLITS.index(split) for split in splits])
    together = (bands(minhashes, 0.8)[:, None] == bands(minhashes, 0.8)).any(axis=2)
    similar = (minhashes[:, None] == minhashes).mean(axis=2) >= 0.8
    expected = (together & similar & (ranks[:, None] > ranks)).any(axis=1)
    assert found_by(minhashes, names, splits.tolist(), 0.8) == {
        names[i] for i in np.flatnonzero(expected)
    }
    assert 20 < expected.sum() < (ranks > 0).sum()


@pytest.mark.parametrize("threshold", [0.3, 0.8, 0.95])
def test_pairs_at_the_threshold_are_rarely_missed(threshold):
    rng = np.random.default_rng(3)
    one, apart = rng.integers(0, 2**32, (2, 2000, PERMUTATIONS), dtype=np.uint32)
    other = np.where(rng.random(one.shape) < threshold, one, one + np.uint32(1))
    shared = [
        (bands(one, threshold) == bands(two, threshold)).any(axis=1).mean()
        for two in (other, apart)
    ]
    assert (shared[0] > 0.98, shared[1]) == (True, 0)
