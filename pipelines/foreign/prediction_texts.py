"""What a system said: a text, or a list or an object that is known to hold one."""

import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from pipelines.errors import LongtailError, one_line
from pipelines.foreign.answer_lists import written_value
from pipelines.foreign.cell_values import as_text, composed
from pipelines.foreign.layouts import ANSWER, CLEAR_PREDICTION
from pipelines.foreign.record_file import listed, plain
from pipelines.sources.streams import parse_json

# Fields of an object that hold an answer, or an object with one, the likeliest first.
ANSWER_FIELDS = (ANSWER, *CLEAR_PREDICTION, "choices", "message", "content", "text", "result")
TEXT_PARTS = ("text", "output_text")  # types of a message's parts that the user is told
ASSISTANTS = ("assistant", "model")  # roles
# An object as programs write it into a text, or print it.
OBJECT_BEGINNING = re.compile(
    r"""[\[(\s]*(?:\{\s*(?:["'][^"'{}]*["']\s*:|\w+=)|[A-Z]\w+\(\s*\w+=|\[object Object\])"""
    r"""|content=['"]"""
)


class UnreadableError(ValueError):
    """A prediction that holds no text; the message says what it is."""


def texts_of(value: Any) -> list[str]:
    """What was said, as NFC: no text where there is no answer, several where there are several.

    Of messages the last one counts, which must be the assistant's. Raises UnreadableError for
    anything that no text is known of.
    """
    try:
        texts = _texts(value)
        "".join(texts).encode()
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except UnicodeEncodeError:
        raise UnreadableError("half of a surrogate pair") from None
    return texts


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        written = _written(value.strip())
        return [composed(value)] if written is None else _texts(written)
    if isinstance(value, dict):
        return _texts_of_object(value)
    if isinstance(value, list):
        return _texts_of_list(value)
    if isinstance(value, bool):
        raise UnreadableError(str(value).lower())
    if not isinstance(value, int | float | Decimal | date):
        raise UnreadableError(f"of the type {type(value).__name__}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return [as_text(value)]


def _written(text: str) -> Any:
    """The list or object that a text is, as JSON or as Python writes it; None for another text."""
    if text[:1] == '"' == text[-1:] and "\\" in text:
        try:
            return parse_json(text)
        except ValueError:  # without an escape, the quotes may be a title's
            return None
    value = written_value(text) if text[:1] in ("[", "{") else None
    if value is not None or not OBJECT_BEGINNING.match(text):
        return value
    raise UnreadableError(f"an object that is cut, damaged or oddly spelled ({text[:40]})")


def _texts_of_list(values: Sequence[Any]) -> list[str]:
    """The texts of a list: its last message, a message's parts put together, or its answers."""
    objects = [value for value in values if isinstance(value, dict)]
    if any("role" in value for value in objects):
        return _texts_of_object(objects[-1])
    if objects == values and any("type" in value for value in objects):
        return _texts_of_parts(objects)
    if len(values) > 1 and any(type(value) in (int, float) for value in values):
        raise UnreadableError("a list of numbers")

    texts = []
    for value in values:
        texts += _texts(value)
    return texts


def _texts_of_parts(parts: Sequence[dict[str, Any]]) -> list[str]:
    """The text of a message's parts, without reasoning and calls of tools."""
    texts = []
    for part in parts:
        if part.get("type") in TEXT_PARTS:
            texts += _texts(part.get("text"))
    return _texts("".join(texts)) if texts else []


def _texts_of_object(value: dict[str, Any]) -> list[str]:
    """The texts of a message, or of an answer with its sources."""
    speaker = value.get("role")
    if speaker is not None and str(speaker).lower() not in ASSISTANTS:
        raise UnreadableError(f"a message of the role {speaker}")
    if speaker is None and value.get("type", TEXT_PARTS[0]) not in TEXT_PARTS:
        raise UnreadableError(f"an object of the type {value['type']}")

    fields = {plain(str(name)): inside for name, inside in value.items()}
    if isinstance(fields.get("message"), str):  # an error's
        del fields["message"]
    names = [name for name in ANSWER_FIELDS if name in fields]
    for name in names:
        if fields[name] is not None:  # Parquet has all objects' fields in each
            return _texts(fields[name])
    if names:
        return []
    raise UnreadableError(f"an object with the fields {listed(map(str, value))}")


def cut_answers(texts: Sequence[str], pattern: str) -> list[str | None]:
    """What the first group of `pattern` holds in each text, at the match that begins last.

    None where a text has no match. The pattern is of RE2's kind, which takes time in proportion to
    the text, whatever the pattern; `.` matches line ends too. Raises LongtailError for a pattern
    that is none or has no group, also if there are no texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pa.array(texts, pa.large_string())
    last_match = rf"(?s)\A.*(?:{pattern}).*\z"
    try:
        # The pattern is tried alone, as `last_match` could close a parenthesis or a bracket of it.
        empty = pa.array([""], pa.large_string())
        pc.match_substring_regex(empty, pattern)
        pc.replace_substring_regex(empty, last_match, r"\1", max_replacements=1)
        has_match = pc.match_substring_regex(values, last_match).to_pylist()
        parts = pc.replace_substring_regex(values, last_match, r"\1", max_replacements=1)
    except pa.ArrowInvalid as error:
        reason = one_line(error)[:200].removeprefix("Invalid regular expression: ")
        if "Rewrite schema" in reason:
            reason = "it has no group"
        raise LongtailError(
            f"--answer-pattern {pattern}: {reason}; expected a pattern with a group, "
            "as '<answer>(.*?)</answer>'"
        ) from None

    pairs = zip(parts.to_pylist(), has_match, strict=True)
    return [part if matches else None for part, matches in pairs]
