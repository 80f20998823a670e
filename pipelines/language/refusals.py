"""How answers say that they name nothing, in each language: refusals.yaml."""

from pathlib import Path

import msgspec

from pipelines.language import words
from pipelines.language.language import Match

FILE = Path(__file__).with_name("refusals.yaml")
MATCH = Match(form="NFKC")  # how answers of any language are compared with refusals


class Refusals(msgspec.Struct, forbid_unknown_fields=True):
    """The refusals of a language."""

    within: list[str]  # words anywhere in an answer
    alone: list[str]  # whole answers, without punctuation


BY_LANGUAGE = msgspec.yaml.decode(FILE.read_bytes(), type=dict[str, Refusals])
WITHIN: list[str] = []
ALONE: set[str] = set()
for _refusals in BY_LANGUAGE.values():
    WITHIN += _refusals.within
    ALONE |= set(_refusals.alone)


def abstains(text: str) -> bool:
    """Whether an answer says that it names nothing, as "I don't know" or "unknown"."""
    folded = words.fold(text, MATCH)
    if words.without_punctuation(folded) in ALONE:
        return True
    for refusal in WITHIN:
        if refusal in folded and any(True for _ in words.standing(folded, refusal)):
            return True
    return False
