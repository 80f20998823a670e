"""Values of cells whose writer nobody knows: texts, ids, answer lists and judgements, however they are spelled."""

from __future__ import annotations

import ast
import math
import re
import unicodedata
from collections import Counter
from typing import Any

from pipelines.sources.streams import parse_json

WHOLE = re.compile(r"(-?\d+)\.0+")  # an id that a table with empty cells made a fraction
SEPARATORS = ("|", ";")  # characters that may separate several answers in one text
TRUTH = {"true": True, "1": True, "1.0": True, "yes": True, "false": False, "0": False, "0.0": False, "no": False}


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


def composed(text: str) -> str:
    """A text as NFC."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def answer_list(value: Any) -> tuple[str, ...]:
    """The texts of an answer list, without white space around them; nothing for what is no list."""
    if isinstance(value, dict):
        value = value.get("target", value.get("aliases"))
    return tuple(filter(None, map(as_text, text_list(value) or ())))


def gold_answers(cell: Any, separator: str, marked: Counter[str]) -> list[str]:
    """The gold answers of a cell, as they are written: a list, or one text, or several with a separator between them.

    Without a separator, a text is one answer. `marked` counts the texts that hold the separator, or one of SEPARATORS.
    """
    texts = text_list(cell)
    if texts is not None:
        return texts
    text = as_text(cell) if isinstance(cell, str | int | float) else ""
    marks = [mark for mark in ((separator,) if separator else SEPARATORS) if mark in text]
    marked.update(marks)
    parts = text.split(separator) if separator else [text]
    return [part for part in map(str.strip, parts) if part]


def text_list(value: Any) -> list[str] | None:
    """The texts of a list, which may be written as JSON or as Python writes lists, as NFC; None for what is no list."""
    value = written_list(value) if isinstance(value, str) else value
    return [composed(text) for text in value if isinstance(text, str)] if isinstance(value, list | tuple) else None


def written_list(text: str) -> list | None:
    if not (text[:1] == "[" and text.rstrip()[-1:] == "]"):
        return None
    for parse in (parse_json, ast.literal_eval):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, list) else None
    return None


def judgement(value: Any) -> bool | None:
    """Whether a cell says right or wrong; None if it says neither."""
    return TRUTH.get(as_text(value).lower())
