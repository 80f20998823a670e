"""The terms by which BM25 finds documents.

They are a language's words without its stop words, stemmed. Words are spelt as answers are compared
(words.py's `fold`), and in scripts without spaces pairs of characters stand for words.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer

from pipelines.language import words
from pipelines.language.language import ENGLISH, Language

TEXTS_AT_ONCE = 4096  # texts split into words at once
# What parts words: no letters, marks and digits, and two letters that people type as apostrophes.
NOT_WORD = rf"(?:[^\p{{L}}\p{{M}}\p{{N}}_{words.INVISIBLE}]|[\x{{2bb}}\x{{2bc}}])+"


class Analyser:
    """Splits texts into the terms of a language."""

    def __init__(self, language: Language = ENGLISH) -> None:
        terms = language.terms
        self._match = msgspec.structs.replace(language.match, form="NFKC")
        # What is no letter may part words, so it is replaced before; the rest is, in folding words.
        same = language.match.same.items()
        self._same_in_texts = [pair for pair in same if not pair[0].isalpha()]
        stop_words = words.fold(terms.stop_words, self._match)
        self._stop_words = frozenset(stop_words.split())

        if terms.stemmer:
            stems = f"Snowball {terms.stemmer}"
            # A cache size of 0 turns off the stemmer's cache, which takes longer than it saves.
            self._stem = Stemmer.Stemmer(terms.stemmer, 0).stemWords
        else:
            stems = "no stemmer"
            self._stem = list
        self.name = f"folded NFKC, words and pairs, {terms.stop_words_by} stop words, {stems}"

    def terms(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """The terms of each text, in order."""
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            words_of_texts = self.words(texts[start : start + TEXTS_AT_ONCE])
            for words_of_text in words_of_texts.to_pylist():
                yield [stem for stem in self.stems(words_of_text) if stem]

    def words(self, texts: Sequence[str]) -> pa.ListArray:
        """The words of each text, in order and not yet folded; one may have no meaning, as ""."""
        lower = [self._lower(text) for text in texts]
        return pc.split_pattern_regex(arrow_strings(lower), NOT_WORD)

    def _lower(self, text: str) -> str:
        """The text in lower case, as far as it has to be folded before it is cut into words."""
        if text.isascii():
            lower = text.lower()
        else:
            # NFKC would make a space and a mark of U+00B4, which is typed as an apostrophe.
            normal = unicodedata.normalize("NFKC", text.replace("\u00b4", "'"))
            lower = normal.lower()
            if words.MAY_BE_RUN.search(lower):
                lower = words.RUNS.sub(_pairs, words.SILENT.sub("", lower))
        for written, counted in self._same_in_texts:
            lower = lower.replace(written, counted)
        return lower

    def stems(self, words_of_texts: Sequence[str]) -> list[str]:
        """Each word's stem, "" for a stop word and for a word without meaning."""
        # One text is folded faster than many words. No word has a line break.
        folded = words.fold("\n".join(words_of_texts), self._match).split("\n")
        stop_words = self._stop_words
        stems = self._stem(folded)
        return [
            "" if word in stop_words else stem for word, stem in zip(folded, stems, strict=True)
        ]


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
