"""The terms by which BM25 finds documents.

They are a language's lower-cased words without its stop words, stemmed.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer

from pipelines.language import words
from pipelines.language.language import ENGLISH, Language

TEXTS_AT_ONCE = 4096  # texts split into words at once
NOT_WORD = r"[^\p{L}\p{N}_]+"  # what Python's \w does not match


class Analyser:
    """Splits texts into the terms of a language."""

    def __init__(self, language: Language = ENGLISH) -> None:
        terms = language.terms
        self._stop_words = frozenset(terms.stop_words.split())
        self._has_pairs = terms.pairs

        units = "words and pairs of characters" if terms.pairs else "words"
        if terms.stemmer:
            stems = f"Snowball {terms.stemmer}"
            # A cache size of 0 turns off the stemmer's cache, which takes longer than it saves.
            self._stem = Stemmer.Stemmer(terms.stemmer, 0).stemWords
        else:
            stems = "no stemmer"
            self._stem = list
        self.name = f"NFKC, lower case, {units}, {terms.stop_words_by} stop words, {stems}"

    def terms(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """The terms of each text, in order."""
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            words_of_texts = self.words(texts[start : start + TEXTS_AT_ONCE])
            for words_of_text in words_of_texts.to_pylist():
                yield [stem for stem in self.stems(words_of_text) if stem]

    def words(self, texts: Sequence[str]) -> pa.ListArray:
        """The words of each text, in order; a word may be "", which has no meaning."""
        lower = [_normalised(text).lower() for text in texts]
        if self._has_pairs:
            lower = [_with_pairs(text) for text in lower]
        return pc.split_pattern_regex(arrow_strings(lower), NOT_WORD)

    def stems(self, words: Sequence[str]) -> list[str]:
        """Each word's stem, "" for a stop word."""
        stop_words = self._stop_words
        stems = self._stem(words)
        return ["" if word in stop_words else stem for word, stem in zip(words, stems, strict=True)]


def _normalised(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _with_pairs(text: str) -> str:
    return text if text.isascii() else words.RUNS.sub(_pairs, text)


def _pairs(run: re.Match) -> str:
    """The pairs of neighbouring characters of a run without spaces; a single character stays."""
    text = run[0]
    starts = range(max(len(text) - 1, 1))
    pairs = " ".join(text[start : start + 2] for start in starts)
    return f" {pairs} "


def arrow_strings(texts: Sequence[str]) -> pa.Array:
    """The same array as pa.array(texts), without importing pandas.

    Characters that UTF-8 has no bytes for become "?".
    """
    encoded = [text.encode(errors="replace") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    content = pa.py_buffer(b"".join(encoded))
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), content)
