"""Text to terms for BM25: one analyser serves documents and queries."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer

_LUCENES = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
STOP_WORDS = frozenset(_LUCENES.split())
BATCH = 4096  # texts taken apart at once
VOCABULARY = "vocab.index.json"  # of bm25s's folder
# What Python's \w leaves out; \p makes a table at every use, 2 ms, that ASCII needs none of
OF_ASCII, OF_ANY = "[^0-9A-Za-z_]+", r"[^\p{L}\p{N}_]+"


class Analyser:
    """Lower-cased words without stop words, stemmed."""

    name = "NFKC, lower case, words, Lucene's English stop words, Snowball english"

    def __init__(self) -> None:
        self._stemmer = Stemmer.Stemmer("english", 0)  # its own cache takes longer than it saves

    def terms(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """The terms of each text, in order."""
        for start in range(0, len(texts), BATCH):
            for words in self.words(texts[start : start + BATCH]).to_pylist():
                yield list(filter(None, self.stems(words)))

    @staticmethod
    def words(texts: Sequence[str]) -> pa.ListArray:
        """The words of each text, in order; among them may be "", which is none."""
        lower = [(text if text.isascii() else unicodedata.normalize("NFKC", text)).lower() for text in texts]
        return pc.split_pattern_regex(strings(lower), OF_ASCII if all(map(str.isascii, lower)) else OF_ANY)

    def stems(self, words: Sequence[str]) -> list[str]:
        """Each word's stem, "" for a stop word."""
        stems = self._stemmer.stemWords(words)
        return ["" if word in STOP_WORDS else stem for word, stem in zip(words, stems, strict=True)]


def strings(texts: Sequence[str]) -> pa.Array:
    """As pa.array makes it, which would import pandas, as would numpy's reading of an array but by from_dlpack."""
    pieces = [text.encode(errors="replace") for text in texts]  # of an argument that is no UTF-8
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(pieces), pa.py_buffer(ends), pa.py_buffer(b"".join(pieces)))
