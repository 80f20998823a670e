"""Where names stand in texts, as whole words and exactly as written (PopQA, appendix A)."""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

import ahocorasick_rs
import numpy as np

from pipelines.language import words
from pipelines.sources.batches import in_batches

BATCH_CHARS = 1 << 20  # characters of text searched at once
EDGE = "\x1f"  # marks where a word begins or ends; a control character that no text needs
CODE_POINTS = 0x110000  # of Unicode

NO_WORD = 0  # classes of code points
IN_WORD = 1  # a letter, digit or combining mark
WORD_ALONE = 2  # a character that is a word by itself, as Chinese ones are (words.py)


def frequencies(names: Sequence[str], texts: Iterable[str]) -> np.ndarray:
    """How often each name occurs in the texts, which are read once: (names,) int64.

    The edges of words are marked in names and texts, so that the search finds whole words only.
    Matches within words ("A" in "And") would be ten times as many. Overlapping names count too
    ("York" in "New York"), as in the paper. A name needs about 0.5 kB of memory.
    """
    counts = np.zeros(len(names), np.int64)
    if not names:
        return counts
    automaton = ahocorasick_rs.BytesAhoCorasick(_mark_edges(names))
    for batch in in_batches(texts, len, BATCH_CHARS):
        joined = b"\n".join(_mark_edges(batch))  # no match spans two texts
        matches = automaton.find_matches_as_indexes(joined, overlapping=True)
        mentioned = np.array(matches, np.int64).reshape(-1, 3)[:, 0]
        counts += np.bincount(mentioned, minlength=len(names))
    return counts


def _mark_edges(texts: Sequence[str]) -> list[bytes]:
    """Each text as UTF-8 with EDGE wherever a word begins or ends; NUL and EDGE within a text
    become spaces.
    """
    joined = "\0".join(text.replace("\0", " ").replace(EDGE, " ") for text in texts)
    points = np.frombuffer(f"\0{joined}\0".encode("utf-32-le"), np.uint32)
    classes = _classes()[points]
    is_edge = (classes[1:] != classes[:-1]) | (classes[1:] == WORD_ALONE)
    marked = np.insert(points, np.flatnonzero(is_edge) + 1, ord(EDGE))
    text = marked.tobytes().decode("utf-32-le")
    return text[1:-1].encode().split(b"\0")


@cache
def _classes() -> np.ndarray:
    """The class of each code point, (CODE_POINTS,) uint8: NO_WORD, IN_WORD or WORD_ALONE."""
    characters = [chr(point) for point in range(CODE_POINTS)]
    in_word = (unicodedata.category(character)[0] in "LNM" for character in characters)
    classes = np.fromiter(in_word, np.uint8, CODE_POINTS)
    for match in words.ALONE.finditer("".join(characters)):
        classes[match.start()] = WORD_ALONE
    return classes
