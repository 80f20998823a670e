"""Text to terms for BM25: one analyser serves documents and queries."""

from __future__ import annotations

import re
import unicodedata

import Stemmer

_LUCENES = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
STOP_WORDS = frozenset(_LUCENES.split())
REMEMBERED = 1_000_000  # words


class Analyser:
    """Lower-cased words without stop words, stemmed."""

    name = "NFKC, lower case, words, Lucene's English stop words, Snowball english"

    def __init__(self) -> None:
        self._known = _Known()

    def terms(self, text: str) -> list[str]:
        words = _find((text if text.isascii() else unicodedata.normalize("NFKC", text)).lower())
        return list(filter(None, map(self._known.__getitem__, words)))


_find = re.compile(r"\w+").findall


class _Known(dict[str, str]):
    """Word -> its stem, "" for a stop word; each word is stemmed once."""

    def __init__(self) -> None:
        self._stem = Stemmer.Stemmer("english").stemWord

    def __missing__(self, word: str) -> str:
        if len(self) >= REMEMBERED:
            self.clear()
        self[word] = stem = "" if word in STOP_WORDS else self._stem(word)
        return stem
