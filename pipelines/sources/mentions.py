"""Where names stand in texts, as whole words and exactly as written; all names in one pass (PopQA, appendix A)."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import ahocorasick_rs
import numpy as np

from pipelines.language import words
from pipelines.sources.streams import in_batches

BATCH = 1 << 20  # characters of text searched at once
ALONE = 2  # a character that is a word by itself, as Chinese ones (words.py)
EDGE = "\x1f"  # marks where a word begins or ends; a control character that no text needs


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
            yield first + np.searchsorted(np.cumsum([len(text) + 1 for text in marked]), begin, "right"), names
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
    kinds = np.fromiter((unicodedata.category(c)[0] in "LNM" for c in characters), np.uint8, len(characters))
    kinds[[match.start() for match in words.ALONE.finditer("".join(characters))]] = ALONE
    return kinds
