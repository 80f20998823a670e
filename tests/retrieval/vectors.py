"""Clustered vectors as a folder of embeddings, for tests of the vector index."""

from pathlib import Path

import numpy as np

from pipelines.params import params

DIM = 32


def clustered(count: int, seed: int = 0, *, dim: int = DIM, of: int = 50) -> np.ndarray:
    """(count, dim) float32 of length 1, in clusters of `of`."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(-(-count // of), dim))
    found = centres[np.arange(count) // of] + 1.2 * draw.normal(size=(count, dim))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def write(folder: Path, vectors: np.ndarray, shard: int = 700) -> Path:
    (folder / "embeddings").mkdir(parents=True)
    for number, start in enumerate(range(0, len(vectors), shard)):
        np.save(
            folder / f"embeddings/{number:06d}.npy",
            vectors[start : start + shard].astype(np.float16),
        )
    return folder


MEMORY_GB = 4.0


def compute() -> params.Compute:
    return params.Compute(threads=1, workers=1, dask=None, device="cpu")
