"""Lists built in shards are what FAISS builds at once, as well learnt; an interrupted graph ends with its bytes."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import faiss
import numpy as np
import pytest
import tiny_models
import vectors

from pipelines import shards
from pipelines.errors import NotShared
from pipelines.retrieval import faiss_build, index_plan, kmeans
from pipelines.retrieval.embeddings import Embeddings

COUNT = 3000
DOCUMENTS = vectors.clustered(COUNT)
BLOCK = 200  # documents added to a graph at once
pytestmark = pytest.mark.usefixtures("workplace")


def build(folder, kind, nlist=16, **changes):
    plan = index_plan.choose(COUNT, vectors.DIM, vectors.settings(kind))._replace(nlist=nlist, **changes)
    faiss_build.build_lists(plan, folder, 0, vectors.compute(), 1, "index")
    return (folder / "faiss.index").read_bytes()


@pytest.mark.parametrize("kind", ["ivf", "ivf_pq", "ivf_flat"])
def test_lists_are_those_that_faiss_builds_at_once(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(faiss_build, "SHARD", 999)
    monkeypatch.setattr(faiss_build, "GROUP", 20_000)  # several groups of lists
    folder = vectors.write(tmp_path / "index", DOCUMENTS)
    learn, learnt = faiss_build._learn, []

    def keep(*args):
        path = learn(*args)
        learnt.append(faiss.read_index(str(path / "faiss.index")))
        return path

    monkeypatch.setattr(faiss_build, "_learn", keep)
    build(folder, kind, nlist=300)  # a list's number takes more than a byte
    built = faiss.read_index(str(folder / "faiss.index"))
    (expected,) = learnt
    expected.add(DOCUMENTS.astype(np.float16).astype(np.float32))
    if kind == "ivf":
        expected = faiss.IndexIVFPQFastScan(expected)
    for index in (built, expected):
        index.nprobe = 16
    assert built.ntotal == COUNT
    assert type(built) is type(expected)
    for ours, theirs in zip(built.search(DOCUMENTS[:50], 30), expected.search(DOCUMENTS[:50], 30), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_neither_shards_nor_groups_change_a_byte(tmp_path, monkeypatch):
    whole = build(vectors.write(tmp_path / "a", DOCUMENTS), "ivf")
    monkeypatch.setattr(faiss_build, "SHARD", 1000)
    assert whole == build(vectors.write(tmp_path / "b", DOCUMENTS, shard=128), "ivf")
    monkeypatch.setattr(faiss_build, "SHARD", 77)
    monkeypatch.setattr(faiss_build, "GROUP", 10_000)
    assert whole == build(vectors.write(tmp_path / "c", DOCUMENTS), "ivf")
    assert not list(Path(".longtail/shards").glob("*"))


def test_where_a_cluster_sees_no_embeddings_this_machine_builds(monkeypatch, capsys):
    def blind(compute, most):
        if compute.executor == "dask":
            raise NotShared("blind")
        return nullcontext(compute.executor)

    monkeypatch.setattr(faiss_build, "processes", blind)
    with faiss_build._executor(tiny_models.compute(executor="dask", dask="tcp://x:1"), 2, "index") as executor:
        assert executor == "local"
    assert "index: this machine alone builds the index; blind" in capsys.readouterr().out


def test_bytes_stand_for_dimensions(tmp_path, monkeypatch):
    monkeypatch.setattr(faiss_build, "SHARD", 999)
    folder = vectors.write(tmp_path / "index", DOCUMENTS)
    build(folder, "ivf", sq8=True, sample=200)  # some documents lie beyond the sample's extremes
    least, step = np.load(folder / "scale.npy")
    decoded = Embeddings(folder / "sq8").rows(0, COUNT) * step + least
    assert np.abs(decoded - np.clip(DOCUMENTS, least, least + 255 * step)).max() <= step.max()


def build_graph(folder: Path, seed: int = 0) -> bytes:
    plan = index_plan.choose(COUNT, vectors.DIM, vectors.settings("hnsw"))
    faiss_build.build_graph(plan, folder, seed, "index")
    return (folder / "faiss.index").read_bytes()


def test_an_interrupted_build_of_a_graph_goes_on_and_levels_differ_from_block_to_block_and_with_the_seed(
    tmp_path, monkeypatch
):
    """A graph that grows by 200 documents, and is saved after every second time."""
    monkeypatch.setattr(faiss_build, "BLOCK", BLOCK)
    monkeypatch.setattr(faiss_build, "LEAST_PART", 2 * BLOCK)
    whole = build_graph(vectors.write(tmp_path / "whole", DOCUMENTS))
    levels = faiss.vector_to_array(faiss.read_index(str(tmp_path / "whole/faiss.index")).hnsw.levels)
    blocks = levels.reshape(-1, BLOCK)
    assert len({bytes(block) for block in blocks}) == len(blocks)
    assert np.mean(levels > 1) == pytest.approx(1 / index_plan.NEIGHBOURS, rel=0.5)
    assert build_graph(tmp_path / "whole", seed=1) != whole

    folder = vectors.write(tmp_path / "killed", DOCUMENTS, shard=900)
    read, starts, dies_at = faiss_build.Embeddings.rows, [], [5 * BLOCK, 12 * BLOCK]

    def dying(self, start, stop):
        starts.append(start)
        if dies_at and start == dies_at[0]:
            raise KeyboardInterrupt(dies_at.pop(0))
        return read(self, start, stop)

    monkeypatch.setattr(faiss_build.Embeddings, "rows", dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            build_graph(folder)
        assert not (folder / "faiss.index").exists()
    assert build_graph(folder) == whole
    again = [4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 13, 14]  # from the last save, not from the beginning
    assert starts == [BLOCK * n for n in (0, 1, 2, 3, 4, 5, *again)]
    assert not list(Path(".longtail/shards").glob("*"))


LISTS = 40


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
