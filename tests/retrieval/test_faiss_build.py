"""Lists built in shards are what FAISS builds at once, as well learnt; the same each time."""

from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
import vectors

from pipelines.retrieval import dense_build

COUNT = 3000
DOCUMENTS = vectors.clustered(COUNT)
pytestmark = pytest.mark.usefixtures("workplace")


def build(folder, nlist=16, seed=0, **changes):
    chosen = dense_build.plan_lists(COUNT, vectors.DIM, vectors.MEMORY_GB)
    plan = replace(chosen, nlist=nlist, **changes)
    dense_build.build_lists(plan, folder, seed, vectors.compute(), 1, "index")
    return (folder / "faiss.index").read_bytes()


def test_lists_are_those_that_faiss_builds_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(dense_build, "SHARD_DOCUMENTS", 999)
    monkeypatch.setattr(dense_build, "GROUP_BYTES", 20_000)  # several groups of lists
    folder = vectors.write(tmp_path / "index", DOCUMENTS)
    learn, learnt = dense_build._learn, []

    def keep(embeddings, seed, plan, path):
        learn(embeddings, seed, plan, path)
        learnt.append(faiss.read_index(str(path)))

    monkeypatch.setattr(dense_build, "_learn", keep)
    build(folder, nlist=300)  # a list's number takes more than a byte
    built = faiss.read_index(str(folder / "faiss.index"))
    (expected,) = learnt
    expected.add(DOCUMENTS.astype(np.float16).astype(np.float32))
    expected = faiss.IndexIVFPQFastScan(expected)
    for index in (built, expected):
        index.nprobe = 16
    assert built.ntotal == COUNT
    assert type(built) is type(expected)
    for ours, theirs in zip(
        built.search(DOCUMENTS[:50], 30), expected.search(DOCUMENTS[:50], 30), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_neither_shards_nor_groups_change_a_byte(tmp_path, monkeypatch):
    whole = build(vectors.write(tmp_path / "a", DOCUMENTS))
    monkeypatch.setattr(dense_build, "SHARD_DOCUMENTS", 1000)
    assert whole == build(vectors.write(tmp_path / "b", DOCUMENTS, shard=128))
    monkeypatch.setattr(dense_build, "SHARD_DOCUMENTS", 77)
    monkeypatch.setattr(dense_build, "GROUP_BYTES", 10_000)
    assert whole == build(vectors.write(tmp_path / "c", DOCUMENTS))
    assert not list(Path(".longtail/work").glob("*"))


def test_each_run_learns_the_same_centroids(tmp_path):
    folder = vectors.write(tmp_path / "index", DOCUMENTS)
    whole = build(folder, nlist=40)
    lists = faiss.read_index(str(folder / "faiss.index"))
    centroids = faiss.downcast_index(lists.quantizer).reconstruct_n(0, 40)
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-5)
    theirs = faiss.Kmeans(vectors.DIM, 40, niter=10, spherical=True, seed=5)
    theirs.train(DOCUMENTS)
    near = [float((DOCUMENTS @ them.T).max(1).mean()) for them in (centroids, theirs.centroids)]
    assert near[0] > 0.99 * near[1]
    assert build(vectors.write(tmp_path / "again", DOCUMENTS), nlist=40) == whole
    assert build(vectors.write(tmp_path / "other", DOCUMENTS), nlist=40, seed=1) != whole
