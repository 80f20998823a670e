"""Whether an answer is right: PopQA's substring match, its variant by whole words, and exact match
(PopQA, 3.2).
"""

import re
import string
import unicodedata
from collections.abc import Sequence
from functools import cache

from pipelines.language import words
from pipelines.language.language import ENGLISH, Language

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")


def substring(prediction: str, answers: Sequence[str]) -> bool:
    """The published metric: a gold answer is a substring of the prediction, as written, lower-cased
    or capitalised.

    Short aliases get credit that they don't deserve ("W" is in "New York"); `word` avoids that.
    Empty answers never match.
    """
    for answer in answers:
        if not answer.strip():
            continue
        for form in (answer, answer.lower(), answer.capitalize()):
            if form in prediction:
                return True
    return False


def word(text: str, answers: Sequence[str], language: Language = ENGLISH) -> bool:
    """A gold answer is in the text as whole words (words.py), whatever the case and the spelling
    that words.py's `fold` takes for the same.

    Empty answers never match.
    """
    folded = words.fold(text, language.match)
    for answer in answers:
        name = words.fold(answer.strip(), language.match)
        if name and any(True for _ in words.standing(folded, name)):
            return True
    return False


def normalise(text: str, language: Language = ENGLISH) -> str:
    """The text in lower case, without punctuation and articles, with single spaces; in English,
    SQuAD's normalisation.

    A text that would become empty ("The The", "A", "@") is only lower-cased.
    """
    articles = language.match.articles
    if language.match.punctuation == "ascii":
        lower = text.lower()
        plain = lower.translate(_ASCII_PUNCTUATION)
    else:
        lower = words.fold(text, language.match)
        cut = _articles(articles, elided=True).sub(" ", lower)
        plain = "".join(c for c in cut if unicodedata.category(c)[0] not in "PS")
    normal = " ".join(_articles(articles).sub(" ", plain).split())
    return normal or lower.strip()


def exact(prediction: str, answers: Sequence[str]) -> bool:
    """The prediction equals a gold answer when both are normalised."""
    return normalise(prediction) in {normalise(answer) for answer in answers}


def namesake(title: str, subject: str, subject_title: str) -> bool:
    """The page `title` is not the subject's page `subject_title`, but has the subject's name.

    Wikipedia tells such pages apart by a qualifier: "Name (film)", "Name, Ohio".
    """
    if title == subject_title:
        return False
    names = _names(subject_title) | {words.fold(subject, ENGLISH.match)}
    return bool(_names(title) & names)


def _names(title: str) -> set[str]:
    """The names that a page's title may stand for: with its qualifier and without."""
    bare = _QUALIFIER.sub("", title)
    before_comma = bare.split(", ")[0]
    names = {words.fold(name, ENGLISH.match) for name in (title, bare, before_comma)}
    return names - {""}


@cache
def _articles(articles: str, *, elided: bool = False) -> re.Pattern:
    """The articles as words; `elided`: the articles that end in an apostrophe, before a word."""
    patterns = []
    for article in articles.split():
        if article.endswith("'") == elided:
            patterns.append(re.escape(article))
    if not patterns:
        return re.compile(r"(?!)")
    pattern = rf"\b({'|'.join(patterns)})"
    return re.compile(pattern if elided else rf"{pattern}\b")
