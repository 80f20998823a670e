"""Is an answer right? PopQA's published rule, the same by whole words, and exact match (PopQA, section 3.2)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")


def substring(prediction: str, answers: Sequence[str]) -> bool:
    """The published metric: some gold answer, as written, lower-cased or capitalised, is a substring of the prediction.

    It gives spurious credit for short aliases ("W" is in "New York"); `word` does not. Empty aliases count for
    nothing.
    """
    return any(
        form in prediction
        for answer in answers
        if answer.strip()
        for form in (answer, answer.lower(), answer.capitalize())
    )


def word(text: str, answers: Sequence[str]) -> bool:
    """Some gold answer stands in the text as whole words, whatever the case."""
    folded = _fold(text)
    return any(
        re.search(rf"(?<!\w){re.escape(_fold(answer.strip()))}(?!\w)", folded) for answer in answers if answer.strip()
    )


def normalise(text: str) -> str:
    """Lower case, no punctuation, no English articles, single spaces: what open-domain QA compares and votes on.

    A text of which nothing would be left ("The The", "A", "@") is lower-cased only.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()) or text.lower().strip()


def exact(prediction: str, answers: Sequence[str]) -> bool:
    """The prediction equals some gold answer after `normalise`."""
    return normalise(prediction) in {normalise(answer) for answer in answers}


def namesake(title: str, subject: str, subject_title: str) -> bool:
    """The page `title` is another's than the subject's (`subject_title`), but goes by the same name.

    Wikipedia tells namesakes apart by a qualifier: "Name (film)", "Name, Ohio".
    """
    return title != subject_title and bool(_names(title) & (_names(subject_title) | {_fold(subject)}))


def _names(title: str) -> set[str]:
    bare = _QUALIFIER.sub("", title)
    return {_fold(title), _fold(bare), _fold(bare.split(", ")[0])} - {""}


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
