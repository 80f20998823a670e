"""Lists are learnt as well as FAISS learns them, whoever assigns the sample's parts, and none is empty."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
import vectors

from pipelines import shards
from pipelines.retrieval import kmeans

COUNT, LISTS = 3000, 40


@pytest.fixture
def sample(workplace) -> Path:
    np.save("sample.npy", vectors.clustered(COUNT).astype(np.float16))
    return Path("sample.npy").absolute()


def learnt(sample, executor=None, seed=0) -> np.ndarray:
    made = np.load(kmeans.learn(sample, LISTS, seed, executor, "learn", "key"))
    shards.forget("learn", "key")
    assert not list((shards.SCRATCH / "shards").iterdir())
    return made


def nearness(centroids: np.ndarray, sample: Path) -> float:
    return float((np.load(sample).astype(np.float32) @ centroids.T).max(1).mean())


def of_faiss(sample: Path, seed: int) -> np.ndarray:
    made = faiss.Kmeans(vectors.DIM, LISTS, niter=kmeans.ITERATIONS, spherical=True, seed=seed)
    made.train(np.load(sample).astype(np.float32))
    return made.centroids


def test_documents_are_as_near_to_their_lists_as_faiss_has_them_whoever_assigns_parts(sample, monkeypatch):
    ours, theirs = ([nearness(made(sample, seed=i), sample) for i in range(5)] for made in (learnt, of_faiss))
    assert np.mean(ours) > 0.995 * np.mean(theirs)
    monkeypatch.setattr(kmeans, "PART", 700)
    made = learnt(sample)
    assert made.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    drawn = np.load(sample)[np.random.default_rng(0).choice(COUNT, LISTS, replace=False)].astype(np.float32)
    assert nearness(made, sample) > 1.05 * nearness(drawn, sample)
    with ThreadPoolExecutor(2) as executor:
        assert learnt(sample, executor).tobytes() == made.tobytes()


def test_a_centroid_is_the_mean_of_its_documents_and_an_empty_list_takes_half_of_the_largest(sample):
    stored = np.load(sample).astype(np.float32)
    lists = np.where(np.arange(COUNT) < 2000, 0, 2)
    means = kmeans.moved(sample, [lists[:1100], lists[1100:]], np.zeros((3, vectors.DIM), np.float32))
    expected = np.stack([stored[:2000].mean(0), stored[:2000].mean(0), stored[2000:].mean(0)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    halves = means[:2].mean(0)
    np.testing.assert_allclose([halves, means[2]], expected[1:], atol=2e-5)
    assert 1e-4 < np.abs(means[0] - means[1]).max() < 4e-3
