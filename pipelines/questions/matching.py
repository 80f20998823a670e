"""Whether an answer is right: PopQA's substring match, its variant by whole words, the letter of an
option, and what other systems report, SQuAD's exact match and token F1.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache

from pipelines.language import words
from pipelines.language.language import ENGLISH, Language

# Each method's answers to PopQA are compared with the same 54,522 gold answers.
TEXTS_KEPT = 131_072
_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
LETTERS = "ABCD"  # of the options
_LETTER = re.compile(rf"\b[{LETTERS}]\b")
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
    """SQuAD's normal form (`squad_form`), or the text in lower case where nothing is left of it, as
    of "The The", "A" and "@".
    """
    return squad_form(text, language) or _lower(text, language).strip()


@lru_cache(maxsize=TEXTS_KEPT)
def squad_form(text: str, language: Language = ENGLISH) -> str:
    """The text in lower case, without punctuation and articles, with single spaces; in English,
    SQuAD's normalisation.
    """
    lower = _lower(text, language)
    articles = language.match.articles
    if language.match.punctuation == "ascii":
        plain = lower.translate(_ASCII_PUNCTUATION)
    else:
        cut = _articles(articles, elided=True).sub(" ", lower)
        plain = words.without_punctuation(cut)
    return " ".join(_articles(articles).sub(" ", plain).split())


def _lower(text: str, language: Language) -> str:
    if language.match.punctuation == "ascii":
        return text.lower()
    return words.fold(text, language.match)


def exact(prediction: str, answers: Sequence[str], language: Language = ENGLISH) -> bool:
    """SQuAD's exact match: the prediction has the normal form of a gold answer.

    As in SQuAD's script, texts of which nothing is left, such as "" and "The The", are the same.
    """
    normal = squad_form(prediction, language)
    return any(normal == squad_form(answer, language) for answer in answers)


def exact_answer(prediction: str, answers: Sequence[str]) -> bool:
    """What a prediction says behind "answer is", or all of it, is an `exact` match, as REPLUG's
    authors judge Natural Questions and TriviaQA.
    """
    return exact(prediction.rpartition("answer is ")[2], answers)


def letter(prediction: str, answers: Sequence[str]) -> bool:
    """The first letter of an option that stands alone, as "B", "(B)" or "The answer is B.", is a
    gold answer.
    """
    return letter_of(prediction) in answers


def letter_of(text: str) -> str:
    """The first of the letters A to D that stands alone in a text, "" if none does."""
    match = _LETTER.search(text)
    return match[0] if match else ""


# catalogue.Protocol's `answer` -> the rule
RULES = {
    "substring": substring,
    "exact": exact_answer,
    "letter": letter,
}


def token_f1(prediction: str, answers: Sequence[str], language: Language = ENGLISH) -> float:
    """SQuAD's F1 of the words of normal forms, between 0 and 1, with the best of the gold answers.

    It is 0 where no word is shared; 1, as in SQuAD 2.0, where nothing is left of either, as of "A".
    """
    predicted = _tokens(prediction, language)
    count_of = Counter(predicted)
    best = 0.0
    for answer in answers:
        gold = _tokens(answer, language)
        if not predicted and not gold:
            return 1.0
        if count_of.keys().isdisjoint(gold):
            continue
        shared = count_of & Counter(gold)
        f1 = 2 * shared.total() / (len(predicted) + len(gold))
        best = max(best, f1)
    return best


def _tokens(text: str, language: Language) -> list[str]:
    """The words of a text's normal form.

    In other languages than English, each character of a script without spaces is a word.
    """
    normal = squad_form(text, language)
    if language.match.punctuation == "unicode":
        normal = words.ALONE.sub(r" \g<0> ", normal)
    return normal.split()


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
