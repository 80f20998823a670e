"""What is odd about a method's answers, which then tell little about what the model knows.

Answers are judged as they are, by the published match. Runs and the commands on files of
predictions say what is odd before they advise.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from pipelines.language.language import ENGLISH, Language
from pipelines.language.refusals import abstains
from pipelines.language.words import as_typed
from pipelines.questions import matching

FEWEST = 10  # answers that a share is taken of
MOST = 0.5  # a larger share of a method's answers can't be alike
MANY_REFUSALS = 0.2  # a larger share of refusals is said
TEXT_SHOWN = 60  # characters of a text
COLON_MARKS = (":", "\uff1a")

REFUSALS = "are refusals, which count as abstentions"
EMPTY = "are empty"
COLONS = "end in a colon, so what follows it is missing"
SAME = "are one and the same text, "
TYPOGRAPHY = (
    "are wrong by the published match, and right by whole words (word), for their typography "
    "alone: hyphens, apostrophes, spaces"
)

Oddities = dict[str, int]  # what is odd about answers -> how many of them are so


def find_oddities(
    texts: Sequence[str],
    golds: Sequence[Sequence[str]],
    right: Sequence[bool],
    rule: Callable[[str, Sequence[str]], bool] = matching.substring,
    language: Language = ENGLISH,
) -> Oddities:
    """What is odd about the answers `texts`, of which these are `right` by the `rule`."""
    oddities: Oddities = {}
    if not len(texts):
        return oddities
    n_refusals = 0
    n_typographic = 0
    for text, answers, is_right in zip(texts, golds, right, strict=True):
        if not is_right:
            n_refusals += abstains(text)
            n_typographic += _is_right_as_typed(text, answers, rule, language)
    if n_typographic:
        oddities[TYPOGRAPHY] = n_typographic
    if len(texts) < FEWEST:
        return oddities

    most = MOST * len(texts)
    ((common, n_common),) = Counter(texts).most_common(1)
    n_colons = sum(text.endswith(COLON_MARKS) for text in texts)
    if n_refusals > MANY_REFUSALS * len(texts):
        oddities[REFUSALS] = n_refusals
    if n_colons > most:
        oddities[COLONS] = n_colons
    elif n_common > most and not common:
        oddities[EMPTY] = n_common
    elif n_common > most and not abstains(common):
        oddities[SAME + repr(common[:TEXT_SHOWN])] = n_common
    return oddities


def _is_right_as_typed(
    text: str,
    answers: Sequence[str],
    rule: Callable[[str, Sequence[str]], bool],
    language: Language,
) -> bool:
    """Whether a wrong answer is right once it and the gold answers are written as people type."""
    if text.isascii() and all(map(str.isascii, answers)):
        return False
    typed_answers = [as_typed(answer) for answer in answers]
    return rule(as_typed(text), typed_answers) and matching.word(text, answers, language)
