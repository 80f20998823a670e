"""Building an index in shards (REPLUG §3.1): centroids and codes learnt on a sample, then each document's place.

What FAISS itself adds document by document is made here in pieces that can run side by side and be kept: a killed run
goes on from its last whole shard, and ends with the same bytes.
"""

from __future__ import annotations

from functools import cache, lru_cache, partial
from pathlib import Path

import faiss
import numpy as np

from pipelines import draws, params, shards
from pipelines.pool import processes
from pipelines.retrieval.embeddings import Embeddings
from pipelines.retrieval.meta import fingerprint
from pipelines.retrieval.sizing import BITS, BLOCK, Plan

SHARD = 131_072  # documents encoded between two points that a killed run goes on from
GROUP = 256 << 20  # bytes of codes put into their lists at once
ITERATIONS = 10  # of k-means for the lists


def build(plan: Plan, folder: Path, seed: int, compute: params.Compute, most: int, name: str) -> None:
    """Write faiss.index over folder/embeddings to `folder`, and sq8.npy with scale.npy where the plan has them.

    Shards are made by at most `most` processes, and kept under `name` until the whole is written.
    """
    key = shards.key_of(plan, seed, compute.threads, fingerprint(folder / "embeddings"))
    faiss.omp_set_num_threads(compute.threads)
    learnt = _learn(folder / "embeddings", plan, seed, f"{name}.learn", key)
    stretches = [(start, min(start + SHARD, plan.count)) for start in range(0, plan.count, SHARD)]
    with processes(compute, min(most, len(stretches))) as executor:
        encode = partial(_encode, folder / "embeddings", learnt, plan)
        files = shards.map_shards(f"{name}.encode", key, encode, stretches, executor)
    faiss.write_index(_assemble(plan, learnt, files), str(folder / "faiss.index"))
    if plan.sq8:
        _join(plan, learnt, stretches, files, folder)
    for part in ("learn", "encode"):
        shards.forget(f"{name}.{part}", key)


def _learn(embeddings: Path, plan: Plan, seed: int, name: str, key: str) -> Path:
    """Centroids and codes from a drawn sample: an index without documents, and each dimension's least and step.

    An iteration of k-means at a time, each kept: together they can take hours.
    """
    folder = shards.SCRATCH / "shards" / f"{name}-{key}"

    @cache
    def sample() -> np.ndarray:
        drawn = draws.generator(seed, "index sample").choice(plan.count, plan.sample, replace=False, shuffle=False)
        return Embeddings(embeddings).take(np.sort(drawn))

    def step(number: int, path: Path) -> None:
        index, centroids = _untrained(plan), None
        if number:
            centroids = np.fromfile(folder / f"{number - 1:06d}", np.float32)
        if number < ITERATIONS:
            _iteration(sample(), index, centroids).tofile(path)
        else:
            _finish(sample(), index, centroids, path)

    return shards.map_shards(name, key, step, range(ITERATIONS + 1))[-1]


def _untrained(plan: Plan) -> faiss.IndexIVF:
    quantizer = faiss.IndexFlatIP(plan.dim)
    if plan.codes:
        shape = (plan.dim, plan.nlist, plan.codes, BITS[plan.kind])
        index = faiss.IndexIVFPQ(quantizer, *shape, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.min_points_per_centroid = 1
    else:
        fp16 = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(quantizer, plan.dim, plan.nlist, fp16, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = False  # one table of partial scores serves all lists of a query; the recall is the same
    index.cp.min_points_per_centroid = 1  # no warning where a few documents are asked for lists
    index.cp.niter = 1
    return index


def _iteration(sample: np.ndarray, index: faiss.IndexIVF, centroids: np.ndarray | None) -> np.ndarray:
    """The lists' centroids (nlist * dim,) after one more iteration of k-means; None before the first."""
    clustering = faiss.Clustering(index.d, index.nlist, index.cp)
    if centroids is not None:
        faiss.copy_array_to_vector(centroids, clustering.centroids)
    clustering.train(sample, faiss.IndexFlatIP(index.d))
    return faiss.vector_to_array(clustering.centroids)


def _finish(sample: np.ndarray, index: faiss.IndexIVF, centroids: np.ndarray, path: Path) -> None:
    index.quantizer.add(centroids.reshape(index.nlist, index.d))
    index.train(sample)  # the codes alone: the lists have their centroids
    path.mkdir()
    faiss.write_index(index, str(path / "faiss.index"))
    least, most = sample.min(0), sample.max(0)
    np.save(path / "scale.npy", np.stack([least, np.maximum(most - least, 1e-12) / 255]))


def _encode(embeddings: Path, learnt: Path, plan: Plan, stretch: tuple[int, int], path: Path) -> None:
    """Codes and positions of a stretch of documents, list by list, and where in them each list begins."""
    faiss.omp_set_num_threads(1)
    index, rows = _opened(learnt), Embeddings(embeddings)
    least, step = np.load(learnt / "scale.npy")
    (start, stop), width = stretch, index.coarse_code_size()
    codes = np.empty((stop - start, index.sa_code_size()), np.uint8)
    path.mkdir()
    with (path / "sq8").open("wb") as file:
        for first in range(start, stop, BLOCK):
            vectors = rows.rows(first, min(first + BLOCK, stop))
            codes[first - start : first - start + len(vectors)] = index.sa_encode(vectors)
            if plan.sq8:
                file.write(np.clip(np.rint((vectors - least) / step), 0, 255).astype(np.uint8))
    number = np.zeros((len(codes), 4), np.uint8)  # of the list, the low byte first
    number[:, :width] = codes[:, :width]
    number = number.view("<u4")[:, 0]
    order = np.argsort(number, kind="stable")
    np.save(path / "bounds.npy", np.searchsorted(number[order], np.arange(plan.nlist + 1)))
    np.save(path / "positions.npy", order + start)
    np.save(path / "codes.npy", codes[order, width:])


@lru_cache(maxsize=1)
def _opened(learnt: Path) -> faiss.Index:
    """In a worker, which lives for many shards."""
    return faiss.read_index(str(learnt / "faiss.index"))


def _assemble(plan: Plan, learnt: Path, files: list[Path]) -> faiss.Index:
    """The lists of all shards, each document's position its id; lists that are neighbours are filled together."""
    parts = ("bounds", "positions", "codes")
    opened = [[np.load(file / f"{part}.npy", mmap_mode="r") for part in parts] for file in files]
    sizes = np.sum([np.diff(bounds) for bounds, _, _ in opened], axis=0)
    group = np.cumsum(sizes * opened[0][2].shape[1]) // GROUP
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    part = faiss.read_index(str(learnt / "faiss.index"))
    whole = faiss.IndexIVFPQFastScan(part) if plan.kind == "ivf" else part
    for first, last in zip(starts, np.append(starts[1:], plan.nlist), strict=True):
        own = [slice(bounds[first], bounds[last]) for bounds, _, _ in opened]
        numbers = [np.repeat(np.arange(first, last), np.diff(bounds[first : last + 1])) for bounds, _, _ in opened]
        order = np.argsort(np.concatenate(numbers), kind="stable")
        positions = np.concatenate([one[where] for (_, one, _), where in zip(opened, own, strict=True)])[order]
        codes = np.concatenate([one[where] for (_, _, one), where in zip(opened, own, strict=True)])[order]
        ends = np.cumsum(sizes[first:last])
        for number, end, size in zip(range(first, last), ends.tolist(), sizes[first:last].tolist(), strict=True):
            begin = end - size
            of_list = (faiss.swig_ptr(positions[begin:end]), faiss.swig_ptr(codes[begin:end])) if size else (None, None)
            part.invlists.add_entries(number, size, *of_list)
        if whole is not part:  # FAISS packs codes for fast scans in whole blocks; zeros fill the last of a list
            whole.merge_from(faiss.IndexIVFPQFastScan(part), 0)
            part.reset()
    whole.ntotal = plan.count
    return whole


def _join(plan: Plan, learnt: Path, stretches: list[tuple[int, int]], files: list[Path], folder: Path) -> None:
    """All documents' bytes in one file, a row each, and the scale beside it."""
    np.save(folder / "scale.npy", np.load(learnt / "scale.npy"))
    joined = np.lib.format.open_memmap(folder / "sq8.npy", "w+", np.uint8, (plan.count, plan.dim))
    for (start, stop), file in zip(stretches, files, strict=True):
        joined[start:stop] = np.fromfile(file / "sq8", np.uint8).reshape(-1, plan.dim)
    joined.flush()
