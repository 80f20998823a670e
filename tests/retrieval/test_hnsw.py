"""A graph that was killed while it grew goes on from where it was kept, and ends with the same bytes."""

from pathlib import Path

import faiss
import numpy as np
import pytest
import vectors

from pipelines.retrieval import hnsw, sizing

COUNT = 3000
DOCUMENTS = vectors.clustered(COUNT)
BLOCK = 200


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Blocks of 200 documents, and a graph that is kept after each two of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hnsw, "BLOCK", BLOCK)
    monkeypatch.setattr(hnsw, "LEAST", 2 * BLOCK)


def build(folder: Path, seed: int = 0) -> bytes:
    chosen = sizing.choose(COUNT, vectors.DIM, vectors.settings("hnsw"))
    hnsw.build(chosen, folder, seed, "index")
    return (folder / "faiss.index").read_bytes()


def test_a_killed_build_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    whole = build(vectors.write(tmp_path / "whole", DOCUMENTS))
    folder = vectors.write(tmp_path / "killed", DOCUMENTS, shard=900)
    read, starts, dies_at = hnsw.Embeddings.rows, [], [5 * BLOCK, 12 * BLOCK]

    def dying(self, start, stop):
        starts.append(start)
        if dies_at and start == dies_at[0]:
            raise KeyboardInterrupt(dies_at.pop(0))
        return read(self, start, stop)

    monkeypatch.setattr(hnsw.Embeddings, "rows", dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            build(folder)
        assert not (folder / "faiss.index").exists()
    assert build(folder) == whole
    again = [4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 13, 14]  # from what was kept, not from the beginning
    assert starts == [BLOCK * n for n in (0, 1, 2, 3, 4, 5, *again)]
    assert not list(Path(".longtail/shards").glob("*"))


def test_levels_differ_from_block_to_block_and_with_the_seed(tmp_path):
    folder = vectors.write(tmp_path / "index", DOCUMENTS)
    whole = build(folder)
    assert build(folder) == whole
    levels = faiss.vector_to_array(faiss.read_index(str(folder / "faiss.index")).hnsw.levels)
    blocks = levels.reshape(-1, BLOCK)
    assert len({bytes(block) for block in blocks}) == len(blocks)
    assert np.mean(levels > 1) == pytest.approx(1 / sizing.NEIGHBOURS, rel=0.5)
    assert build(folder, seed=1) != whole
