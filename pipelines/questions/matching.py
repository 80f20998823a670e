"""Whether an answer is right: PopQA's substring match, its variant by whole words, and exact match (PopQA, 3.2)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")


def substring(prediction: str, answers: Sequence[str]) -> bool:
    """The published metric: a gold answer is a substring of the prediction, as written, lower-cased or capitalised.

    Short aliases get credit that they don't deserve ("W" is in "New York"); `word` avoids that. Empty answers never
    match.
    """
    return any(
        form in prediction
        for answer in answers
        if answer.strip()
        for form in (answer, answer.lower(), answer.capitalize())
    )


def word(text: str, answers: Sequence[str]) -> bool:
    """A gold answer is in the text as whole words, whatever the case. Empty answers never match."""
    folded, names = _fold(text), (_fold(answer.strip()) for answer in answers)
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", folded) for name in names if name)


def normalise(text: str) -> str:
    """The text in lower case, without punctuation and English articles, with single spaces (SQuAD's normalisation).

    A text of which nothing would be left ("The The", "A", "@") is only lower-cased.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()) or text.lower().strip()


def exact(prediction: str, answers: Sequence[str]) -> bool:
    """The prediction equals a gold answer when both are normalised."""
    return normalise(prediction) in {normalise(answer) for answer in answers}


def namesake(title: str, subject: str, subject_title: str) -> bool:
    """The page `title` is not the subject's page `subject_title`, but has the subject's name.

    Wikipedia tells such pages apart by a qualifier: "Name (film)", "Name, Ohio".
    """
    return title != subject_title and bool(_names(title) & (_names(subject_title) | {_fold(subject)}))


def _names(title: str) -> set[str]:
    bare = _QUALIFIER.sub("", title)
    return {_fold(title), _fold(bare), _fold(bare.split(", ")[0])} - {""}


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
