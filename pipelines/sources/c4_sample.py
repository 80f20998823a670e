"""C4's texts, and a sample of them that names are counted in (PopQA, appendix A)."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from pipelines import draws
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_texts
from pipelines.sources.streams import is_parquet, read_head, visible_files
from pipelines.storage.file_kinds import head_of

# A sample's bound is a multiple of 1 / STEPS. Of all of C4's 800 GB, a step is 0.8 MB.
STEPS = 1 << 20


class Sample(NamedTuple):
    """The texts of C4 whose draw, a hash of the seed and the text, is below a bound."""

    seed: int
    below: float
    texts: int
    size: int  # bytes of UTF-8

    def has(self, text: str) -> bool:
        return self.below == 1 or draws.uniform(self.seed, "c4", text) < self.below


def files_of_c4(folder: Path) -> list[Path]:
    """The files of C4 in a folder, each text in one of them: files that begin with the same texts
    are copies, such as one that was unpacked beside its archive. A line names each copy.
    """
    first_files: dict[bytes, Path] = {}
    for file in visible_files(folder):
        first_file = first_files.setdefault(_beginning(file), file)
        if first_file != file:
            print(f"{file} is a copy of {first_file}, and is left out")
    return list(first_files.values())


def _beginning(file: Path) -> bytes:
    """A hash of what begins no other file of C4."""
    beginning = head_of(file) if is_parquet(file) else read_head(file)
    return hashlib.blake2b(beginning).digest()


def draw_c4_sample(paths: Iterable[Path], megabytes: int, seed: int, rejects: Rejects) -> Sample:
    """A sample of `megabytes` * 10^6 bytes, or little more, of the texts of all files; all texts
    where they have less.

    Whether a text is in the sample depends on the text alone, not on the files and their order. Bad
    lines go to `rejects`.
    """
    texts = np.zeros(STEPS, np.int64)
    sizes = np.zeros(STEPS, np.int64)
    files = tqdm(list(paths), desc="sample of C4", unit="file", mininterval=2)
    for text in read_c4(files, rejects):
        step = int(draws.uniform(seed, "c4", text) * STEPS)
        texts[step] += 1
        sizes[step] += len(text.encode())

    enough = int(np.searchsorted(np.cumsum(sizes), megabytes * 1_000_000)) + 1
    steps = min(enough, STEPS)
    return Sample(
        seed=seed,
        below=steps / STEPS,
        texts=int(texts[:steps].sum()),
        size=int(sizes[:steps].sum()),
    )


def read_c4_sample(paths: Iterable[Path], sample: Sample) -> Iterator[str]:
    """Yield the sample's texts, in the files' order; bad lines, which `draw_c4_sample` named, are
    left out.
    """
    return filter(sample.has, read_c4(paths, Rejects(1.0)))


def read_c4(paths: Iterable[Path], rejects: Rejects) -> Iterator[str]:
    """Yield all texts; bad lines go to `rejects`."""
    for path in paths:
        for _, text, _ in read_texts(path, rejects):
            yield text
