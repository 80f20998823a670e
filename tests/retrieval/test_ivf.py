"""Lists built in shards are what FAISS builds at once, by any number of processes, killed or not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import faiss
import numpy as np
import pytest
import vectors

from pipelines.retrieval import ivf, sizing

COUNT = 3000
DOCUMENTS = vectors.clustered(COUNT)
RUN = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import vectors
from pipelines.retrieval import ivf, sizing
if __name__ == "__main__":
    ivf.SHARD = 100
    real = ivf._encode
    def slow(*given):
        real(*given)
        time.sleep(0.02)
    ivf._encode = slow
    chosen = sizing.choose(3000, vectors.DIM, vectors.settings("ivf", nlist=16))
    ivf.build(chosen, Path("."), 0, vectors.compute(), 1, "index")
"""


def build(folder, kind, workers=1, nlist=16, **changes):
    chosen = sizing.choose(COUNT, vectors.DIM, vectors.settings(kind, nlist=nlist))._replace(**changes)
    ivf.build(chosen, folder, 0, vectors.compute(workers), workers, "index")
    return (folder / "faiss.index").read_bytes()


@pytest.mark.parametrize("kind", ["ivf", "ivf_pq", "ivf_flat"])
def test_lists_are_those_that_faiss_builds_at_once(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ivf, "SHARD", 999)
    monkeypatch.setattr(ivf, "GROUP", 20_000)  # several groups of lists
    folder = vectors.write(tmp_path / "index", DOCUMENTS)
    learn, learnt = ivf._learn, []

    def keep(*given):
        path = learn(*given)
        learnt.append(faiss.read_index(str(path / "faiss.index")))
        return path

    monkeypatch.setattr(ivf, "_learn", keep)
    build(folder, kind, nlist=300)  # more than a byte numbers
    found = faiss.read_index(str(folder / "faiss.index"))
    (expected,) = learnt
    expected.add(DOCUMENTS.astype(np.float16).astype(np.float32))
    if kind == "ivf":
        expected = faiss.IndexIVFPQFastScan(expected)
    for index in (found, expected):
        index.nprobe = 16
    assert found.ntotal == COUNT
    assert type(found) is type(expected)
    for own, other in zip(found.search(DOCUMENTS[:50], 30), expected.search(DOCUMENTS[:50], 30), strict=True):
        np.testing.assert_array_equal(own, other)


def test_neither_shards_nor_processes_nor_groups_change_a_byte(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = build(vectors.write(tmp_path / "a", DOCUMENTS), "ivf")
    monkeypatch.setattr(ivf, "SHARD", 1000)
    assert whole == build(vectors.write(tmp_path / "b", DOCUMENTS, shard=128), "ivf", workers=2)
    monkeypatch.setattr(ivf, "SHARD", 77)
    monkeypatch.setattr(ivf, "GROUP", 10_000)
    assert whole == build(vectors.write(tmp_path / "c", DOCUMENTS), "ivf")
    assert not list(Path(".longtail/shards").glob("*"))


def test_a_killed_build_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = build(vectors.write(tmp_path / "whole", DOCUMENTS), "ivf")
    vectors.write(tmp_path / "killed", DOCUMENTS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUN, str(Path(__file__).parent)]
    process = subprocess.Popen(command, cwd=tmp_path / "killed", env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(_encoded(tmp_path / "killed")) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 3 <= len(_encoded(tmp_path / "killed")) < 30
    assert subprocess.run(command, cwd=tmp_path / "killed", env=environment, capture_output=True).returncode == 0
    assert (tmp_path / "killed/faiss.index").read_bytes() == whole


def test_learning_that_is_killed_goes_on_from_its_last_iteration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = build(vectors.write(tmp_path / "whole", DOCUMENTS), "ivf")
    folder = vectors.write(tmp_path / "killed", DOCUMENTS)
    iterations = []

    class Dying(faiss.Clustering):
        def train(self, *given):
            iterations.append(faiss.vector_to_array(self.centroids).any())
            if len(iterations) == 4:
                raise KeyboardInterrupt
            super().train(*given)

    monkeypatch.setattr(ivf.faiss, "Clustering", Dying)
    with pytest.raises(KeyboardInterrupt):
        build(folder, "ivf")
    assert build(folder, "ivf") == whole
    assert iterations == [False, *[True] * 10]  # ten, of which the fourth twice; only the first finds its own start
    assert not list(Path(".longtail/shards").glob("*"))


def _encoded(folder):
    return [path for path in folder.glob(".longtail/shards/index.encode-*/*") if path.is_dir()]


def test_bytes_stand_for_dimensions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ivf, "SHARD", 999)
    folder = vectors.write(tmp_path / "index", DOCUMENTS)
    build(folder, "ivf", sq8=True, sample=200)  # others lie beyond the sample's extremes
    least, step = np.load(folder / "scale.npy")
    again = np.load(folder / "sq8.npy") * step + least
    assert np.abs(again - np.clip(DOCUMENTS, least, least + 255 * step)).max() <= step.max()
