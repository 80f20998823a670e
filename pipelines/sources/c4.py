"""C4's shards (gzipped JSON lines), and how often names occur in a sample of C4 (PopQA, appendix A: term frequency)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import ahocorasick_rs
import msgspec
import numpy as np

from pipelines import words
from pipelines.sources.rejects import Rejects
from pipelines.sources.streams import open_lines

BATCH = 1 << 20  # characters of text searched at once
ALONE = 2  # a character that is a word by itself, as Chinese ones (words.py)
EDGE = "\x1f"  # marks where a word begins or ends; a control character that no text needs


class _Document(msgspec.Struct):
    text: str


def read_sample(paths: Iterable[Path], megabytes: int, rejects: Rejects) -> Iterator[str]:
    """Yield texts from the first shard on, until they have `megabytes` * 10^6 bytes of UTF-8.

    Bad lines go to `rejects` (bad_json, unexpected_layout).
    """
    decoder, remaining_bytes = msgspec.json.Decoder(_Document), megabytes * 1_000_000
    for path in paths:
        for row, line in enumerate(open_lines(path), start=1):
            rejects.read += 1
            try:
                text = decoder.decode(line).text
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                reason = "unexpected_layout" if isinstance(error, msgspec.ValidationError) else "bad_json"
                rejects.add(path, row, reason, str(error))
                continue
            yield text
            remaining_bytes -= len(text.encode())
            if remaining_bytes <= 0:
                return


def term_frequencies(names: list[str], texts: Iterable[str]) -> np.ndarray:
    """How often each name occurs in the texts as whole words, exactly as written: (names,) int64.

    All names are searched in one pass, overlapping ones included ("York" counts in "New York"). The edges of words are
    marked in names and texts, so that the search finds whole words only; matches within words ("A" in "And") would be
    ten times as many. Needs about 0.5 kB of memory per name.
    """
    counts = np.zeros(len(names), np.int64)
    if not names:
        return counts
    automaton = ahocorasick_rs.BytesAhoCorasick(_marked(names))
    for batch in _batches(texts):
        matches = automaton.find_matches_as_indexes(batch, overlapping=True)
        np.add.at(counts, [name for name, _, _ in matches], 1)
    return counts


def _batches(texts: Iterable[str]) -> Iterator[bytes]:
    """Marked texts, about BATCH characters together, with newlines between them so that no match spans two texts."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH:
            yield b"\n".join(_marked(batch))
            batch, size = [], 0
    yield b"\n".join(_marked(batch))


def _marked(texts: list[str]) -> list[bytes]:
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
