"""A sample of C4's shards (gzipped JSON lines), drawn by hash, in which names are counted (PopQA, appendix A)."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from pipelines import draws
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_texts

STEPS = 1 << 20  # bounds of the draws that a sample can have: of all of C4's 800 GB, a step is 0.8 MB


class Sample(NamedTuple):
    """The texts whose draw, a hash of the seed and the text, is below a bound."""

    seed: int
    below: float
    texts: int
    size: int  # bytes of UTF-8

    def has(self, text: str) -> bool:
        return self.below == 1 or draws.uniform(self.seed, "c4", text) < self.below


def draw_c4_sample(paths: Iterable[Path], megabytes: int, seed: int, rejects: Rejects) -> Sample:
    """A sample of `megabytes` * 10^6 bytes or little more, of the texts of all files; all texts where they have less.

    A text is in it or not by itself, whatever the files and their order. Bad lines go to `rejects`.
    """
    texts, sizes = np.zeros((2, STEPS), np.int64)
    files = tqdm(list(paths), desc="sample of C4", unit="file", mininterval=2)
    for text in read_c4(files, rejects):
        step = int(draws.uniform(seed, "c4", text) * STEPS)
        texts[step] += 1
        sizes[step] += len(text.encode())
    steps = min(int(np.searchsorted(np.cumsum(sizes), megabytes * 1_000_000)) + 1, STEPS)
    return Sample(seed, steps / STEPS, int(texts[:steps].sum()), int(sizes[:steps].sum()))


def read_c4_sample(paths: Iterable[Path], sample: Sample) -> Iterator[str]:
    """Yield the sample's texts, in the files' order; bad lines, which `draw_c4_sample` named, are left out."""
    return filter(sample.has, read_c4(paths, Rejects(1.0)))


def read_c4(paths: Iterable[Path], rejects: Rejects) -> Iterator[str]:
    """Yield all texts; bad lines go to `rejects`."""
    for path in paths:
        yield from (text for _, text, *_ in read_texts(path, rejects))
