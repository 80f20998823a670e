"""The centroids of an index's lists: k-means over a sample of the embeddings, in parts that many processes assign.

Which process assigns a part, and how many there are, changes no byte. A killed run goes on in the iteration it was in.
"""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import faiss
import numpy as np

from pipelines import draws, shards

ITERATIONS = 10
PART = 65_536  # documents that a process assigns at once
SPLIT = 1 / 1024  # by this share the halves of a list that is split differ from it


def learn(sample: Path, nlist: int, seed: int, executor: Executor | None, name: str, key: str) -> Path:
    """Learn `nlist` centroids of length 1 from a sample, a .npy file (n, dim); returns their .npy file.

    The unfinished iteration's parts and the centroids of each are kept under `name` and `key`, until the caller
    forgets (`name`, `key`).
    """
    count = len(np.load(sample, mmap_mode="r"))
    parts = [(start, min(start + PART, count)) for start in range(0, count, PART)]
    folder = shards.SCRATCH / "shards" / f"{name}-{key}"

    def iterate(number: int, path: Path) -> None:
        if number == 0:
            drawn = draws.generator(seed, "index lists").choice(count, nlist, replace=False, shuffle=False)
            _save(path, _of_length_1(np.load(sample, mmap_mode="r")[np.sort(drawn)].astype(np.float32)))
            return
        before = folder / f"{number - 1:06d}"
        of_iteration = f"{name}.assign", shards.key_of(key, number)
        assigned = shards.map_shards(*of_iteration, partial(_assign, sample, before), parts, executor)
        _save(path, moved(sample, [np.fromfile(file, np.int64) for file in assigned], np.load(before)))
        shards.forget(*of_iteration)

    return shards.map_shards(name, key, iterate, range(ITERATIONS + 1))[-1]


def moved(sample: Path, assigned: list[np.ndarray], centroids: np.ndarray) -> np.ndarray:
    """The mean of each list's documents, as a vector of length 1; `assigned` are their lists, part by part.

    A list without documents takes half of the largest one's.
    """
    stored, start = np.load(sample, mmap_mode="r"), 0
    sums, sizes = np.zeros_like(centroids), np.zeros(len(centroids), np.int64)
    for lists in assigned:
        order = np.argsort(lists, kind="stable")
        present, firsts = np.unique(lists[order], return_index=True)
        vectors = stored[start : start + len(lists)].astype(np.float32)
        sums[present] += np.add.reduceat(vectors[order], firsts)
        sizes += np.bincount(lists, minlength=len(centroids))
        start += len(lists)
    means = sums / np.maximum(sizes, 1).astype(np.float32)[:, None]
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        apart = np.where(np.arange(means.shape[1]) % 2, SPLIT, -SPLIT).astype(np.float32)
        means[empty], means[largest] = means[largest] * (1 + apart), means[largest] * (1 - apart)
        sizes[empty] = sizes[largest] // 2
        sizes[largest] -= sizes[empty]
    return _of_length_1(means)


def _assign(sample: Path, centroids: Path, rows: tuple[int, int], path: Path) -> None:
    """Write the list of each of these documents: that of the centroid with the largest inner product."""
    faiss.omp_set_num_threads(1)
    vectors = np.load(sample, mmap_mode="r")[slice(*rows)].astype(np.float32)
    faiss.knn(vectors, np.load(centroids), 1, faiss.METRIC_INNER_PRODUCT)[1].ravel().tofile(path)


def _of_length_1(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _save(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array)
