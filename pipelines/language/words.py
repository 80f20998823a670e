"""Where a name stands as whole words: the rules of Unicode (UAX #29) as far as names need them.

Letters, digits and combining marks make up words. In scripts that are written without spaces each
character stands alone, so that 東京 is found in 東京都; a word of katakana stays whole, as Unicode
has it.

`fold` says which spellings of a word are the same word, for answers and for BM25.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.language.language import Match

# Thai, Lao, Burmese, Khmer; radicals; 々〆〇; hiragana; Chinese characters
_ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"
    "\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001b001-\U0001b11f"
    "\U00020000-\U000323af"
)
ALONE = re.compile(f"[{_ALONE}]")
# runs of characters that BM25 takes in pairs; katakana too, because its compounds have no spaces
RUNS = re.compile(f"[{_ALONE}\u30a1-\u30fa\u30fc-\u30fe]+")
# Finds a character outside the scripts below Thai's and outside punctuation. A text without any has
# no RUNS, and is told fast.
MAY_BE_RUN = re.compile("[^\0-\u0dff\u2000-\u206f]")

# soft hyphen, joiners, marks of direction, variants of a character, tags: Unicode's default
# ignorable characters, without U+200B, which parts words
INVISIBLE = (
    "\u00ad\u034f\u061c\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e0fff"
)
# Hebrew points and accents; Arabic vowel marks, tatweel and Koranic marks; Devanagari's nukta
_LEFT_OUT = (
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u0652\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u093c"
)
# Characters without which a word is still the same word. Two accents count only after a Cyrillic
# vowel, where they mark stress; the dot only after i, where lower case makes it of U+0130.
SILENT = re.compile(
    f"[{INVISIBLE}{_LEFT_OUT}\u0300\u0301\u0307]"
    "(?<![^аеёиоуыэюяєіїѣъ][\u0300\u0301])(?<![^i]\u0307)"
)
# character that people type -> those that are printed in its place: apostrophes, quotes, hyphens
# and dashes, spaces
PRINTED = {
    "'": "\u2018\u2019\u201b\u00b4\u02bb\u02bc\u2032\uff07\u05f3",
    '"': "\u201c\u201d\u201e\u201f\u2033\uff02\u05f4",
    "-": "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d\u05be",
    " ": "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f"
    "\u3000",
}
TYPED_AS: dict[int, str] = {}  # code of a printed character -> the one that people type
for _typed, _printed in PRINTED.items():
    TYPED_AS |= {ord(character): _typed for character in _printed}
UNSEEN = re.compile(f"[{INVISIBLE}\u200b]")


def as_typed(text: str) -> str:
    """The text in composed characters that people type, without invisible ones."""
    composed = unicodedata.normalize("NFC", text)
    return UNSEEN.sub("", composed).translate(TYPED_AS)


def without_punctuation(text: str) -> str:
    """The text without punctuation and symbols, and with single spaces."""
    letters = "".join(c for c in text if unicodedata.category(c)[0] not in "PS")
    return " ".join(letters.split())


def fold(text: str, match: Match) -> str:
    """The text as it is compared, which is the same for all spellings of a word.

    Case, Unicode's normal forms, the characters of SILENT, those of TYPED_AS and what the
    language's file calls the same do not count. Vowel signs and other accents do.
    """
    folded = text.lower()
    if not text.isascii():
        folded = unicodedata.normalize(match.form, text).casefold()
        folded = SILENT.sub("", folded).translate(TYPED_AS)
    for written, counted in match.same.items():
        folded = folded.replace(written, counted)
    return folded


def standing(text: str, name: str) -> Iterator[int]:
    """Where `name`, which is not empty, stands in the text as whole words; both are compared as
    they are.
    """
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        joined_before = _joined(text[start - 1 : start], name[0])
        joined_after = _joined(text[end : end + 1], name[-1])
        if not joined_before and not joined_after:
            yield start
        start = text.find(name, start + 1)


def split(text: str, names: Sequence[str]) -> list[str]:
    """The text in parts; every second one is a name that stands there, whatever its case.

    The longest name wins.
    """
    lower = _lower(text)
    spans = []
    for name in {_lower(name) for name in names if name}:
        for start in standing(lower, name):
            spans.append((start, start + len(name)))
    spans.sort(key=_longest_first)

    parts = []
    last_end = 0
    for start, end in spans:
        if start >= last_end:
            parts += [text[last_end:start], text[start:end]]
            last_end = end
    return [*parts, text[last_end:]]


def _longest_first(span: tuple[int, int]) -> tuple[int, int]:
    """The order of spans by their start, and of two that start together the longer one first."""
    start, end = span
    return start, -end


def beginning(text: str, most: int) -> str:
    """The text, or of a longer one than `most` characters its first words and " …".

    A longer first word is cut.
    """
    if len(text) <= most:
        return text
    end = most
    while end and _joined(text[end - 1], text[end]) and _joined(text[end], text[end - 1]):
        end -= 1
    return f"{text[: end or most].rstrip()} …"


def _joined(neighbour: str, edge: str) -> bool:
    """Whether a name's first or last character is within one word with its neighbour, which may be
    "".
    """
    if not neighbour or ALONE.match(neighbour) or ALONE.match(edge):
        return False
    return neighbour.isalnum() or neighbour == "_" or unicodedata.category(neighbour)[0] == "M"


def _lower(text: str) -> str:
    """The text in lower case, with as many characters: of U+0130 alone the lower case has two."""
    return text.replace("\u0130", "i").lower()
