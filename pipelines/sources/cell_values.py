"""Values of cells whose writer nobody knows: texts, ids and judgements, however they are spelled."""

import math
import re
import unicodedata
from collections.abc import Sequence
from html import unescape
from typing import Any

WHOLE = re.compile(r"(-?\d+)\.0+")  # an id that a table with empty cells made a fraction
TRUTH = {"true": True, "1": True, "1.0": True, "1,0": True, "yes": True}
TRUTH |= {"false": False, "0": False, "0.0": False, "0,0": False, "no": False}
MARKS = "\"' ?.!"  # which may stand at the ends of a question, or not
QUOTES = str.maketrans("\u2018\u2019\u201b\u2032`\u00b4\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", "'" * 6 + '"' * 7)


def clean_id(value: Any) -> str:
    """An id as text; 4222362.0, as tables with empty cells have it, is 4222362."""
    if type(value) is str and value.isdecimal():  # most are
        return value
    text = as_text(value)
    match = WHOLE.fullmatch(text)
    return match[1] if match else text


def as_text(value: Any) -> str:
    """A cell as NFC without white space around it; "" for none."""
    if type(value) is not str:  # most are
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        value = str(value)
    return composed(value.strip())


def folded(text: str) -> str:
    """A text for comparison: NFC, without capitals, with single blanks."""
    return " ".join(as_text(text).casefold().split())


def text_key(text: str) -> str:
    """A question for comparison: its `plain_text` without MARKS at its ends."""
    return plain_text(text).strip(MARKS)


def plain_text(text: str) -> str:
    """A text as NFC without capitals and HTML's entities, with single blanks and straight quotes."""
    text = unescape(text) if "&" in text else text
    return folded(text if text.isascii() else text.translate(QUOTES))


def as_set(answers: Sequence[str]) -> frozenset[str]:
    """Answers for comparison."""
    return frozenset(map(folded, answers)) - {""}


def composed(text: str) -> str:
    """A text as NFC."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def judgement(value: Any) -> bool | None:
    """Whether a cell says right or wrong; None if it says neither."""
    return TRUTH.get(as_text(value).lower())
