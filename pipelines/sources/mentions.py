"""Where names stand in texts, as whole words and as written; C4's texts to count them in (PopQA, appendix A)."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import ahocorasick_rs
import numpy as np
from tqdm import tqdm

from pipelines import draws
from pipelines.language import words
from pipelines.sources.rejects import Rejects
from pipelines.sources.source_documents import read_texts
from pipelines.sources.streams import in_batches

BATCH = 1 << 20  # characters of text searched at once
ALONE = 2  # a character that is a word by itself, as Chinese ones (words.py)
EDGE = "\x1f"  # marks where a word begins or ends; a control character that no text needs
STEPS = (
    1 << 20
)  # bounds of the draws that a sample can have: of all of C4's 800 GB, a step is 0.8 MB


class Names:
    """Names to look for. Needs about 0.5 kB of memory for each.

    The edges of words are marked in names and texts, so that the search finds whole words only; matches within words
    ("A" in "And") would be ten times as many. Overlapping names count too ("York" in "New York"), as in the paper.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._automaton = ahocorasick_rs.BytesAhoCorasick(_marked(names)) if names else None

    def find(self, texts: Iterable[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (numbers of texts, numbers of names), one for each occurrence, (occurrences,) int64, batch by batch."""
        first = 0
        for batch in in_batches(texts, len, BATCH) if self._automaton else ():
            marked = _marked(batch)
            joined = b"\n".join(marked)  # no match spans two texts
            found = self._automaton.find_matches_as_indexes(joined, overlapping=True)
            names, begin, _ = np.array(found, np.int64).reshape(-1, 3).T
            yield (
                first
                + np.searchsorted(np.cumsum([len(text) + 1 for text in marked]), begin, "right"),
                names,
            )
            first += len(batch)


def frequencies(names: Sequence[str], texts: Iterable[str]) -> np.ndarray:
    """How often each name occurs in the texts, which are read once: (names,) int64."""
    counts = np.zeros(len(names), np.int64)
    for _, found in Names(names).find(texts):
        counts += np.bincount(found, minlength=len(names))
    return counts


def _marked(texts: Sequence[str]) -> list[bytes]:
    """Each text as UTF-8 with EDGE wherever a word begins or ends; NUL and EDGE within a text become spaces."""
    joined = "\0".join(text.replace("\0", " ").replace(EDGE, " ") for text in texts)
    points = np.frombuffer(f"\0{joined}\0".encode("utf-32-le"), np.uint32)
    kinds = _kinds()[points]
    edges = np.flatnonzero((kinds[1:] != kinds[:-1]) | (kinds[1:] == ALONE)) + 1
    marked = np.insert(points, edges, ord(EDGE)).tobytes().decode("utf-32-le")
    return marked[1:-1].encode().split(b"\0")


@cache
def _kinds() -> np.ndarray:
    """Each code point's kind, (0x110000,) uint8: 0, or 1 in a word (letter, digit or combining mark), or ALONE."""
    characters = [chr(point) for point in range(0x110000)]
    kinds = np.fromiter(
        (unicodedata.category(c)[0] in "LNM" for c in characters), np.uint8, len(characters)
    )
    kinds[[match.start() for match in words.ALONE.finditer("".join(characters))]] = ALONE
    return kinds


class Sample(NamedTuple):
    """The texts of C4 whose draw, a hash of the seed and the text, is below a bound."""

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
