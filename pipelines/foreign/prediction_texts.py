"""What a system said, in whatever object or list of messages a file has it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

from pipelines.errors import LongtailError
from pipelines.foreign.answer_lists import written_value
from pipelines.foreign.cell_values import as_text, composed
from pipelines.foreign.layouts import PREDICTION
from pipelines.foreign.records import listed, plain
from pipelines.sources.streams import parse_json

# Fields whose list is one text in parts, not several answers.
PARTS = ("content", "parts")
# Fields that hold an answer, or an object with one, the likeliest first. OpenAI's Responses API has
# a setting `text`.
ANSWER_FIELDS = (
    *("answer", *PREDICTION[:-1], "choices", "candidates", "message", "body", *PARTS),
    *("text", "result", "answers", "value", "data"),
)
# Fields of an object without an answer, because a request failed or a system gave sources alone.
FIELDS_WITHOUT_ANSWER = {
    *("id", "index", "object", "created", "model", "role", "type", "status", "code", "param"),
    *("status_code", "request_id", "stop_reason", "provenance", "meta", "metadata", "usage"),
    *("finish_reason", "logprobs", "message"),
}
# Types and fields of what a model does not say to the user.
UNSAID = re.compile(
    "think|thought|reason|tool|function|_call|refus|image|audio|input_text", re.IGNORECASE
)
ASSISTANTS = ("assistant", "model", "ai", "gpt", "bot")
OTHER_ROLES = ("human", "user", "system", "developer", "tool", "function")
# An object as programs write it into a text, or print it.
OBJECT_BEGINNING = re.compile(
    r"""[\[(\s]*(?:\{\s*(?:["'][^"'{}]*["']\s*:|\w+=)|[A-Z]\w+\(\s*\w+=|\[object Object\])"""
    r"""|content=['"]"""
)


class UnreadableError(ValueError):
    """A prediction that holds no text; the message says what it is."""


def texts_of(value: Any) -> list[str]:
    """What was said, as NFC: no text where there is no answer, several where there are several.

    An object counts by the likeliest of ANSWER_FIELDS that it has. Messages of a user or a tool,
    and reasoning, never count. Raises UnreadableError for anything that no text is known of.
    """
    try:
        texts = _texts(value)
        "".join(texts).encode()
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except UnicodeEncodeError:
        raise UnreadableError("half of a surrogate pair") from None
    return texts


def _texts(value: Any, *, in_parts: bool = False) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        written = _written(value.strip())
        return [composed(value)] if written is None else _texts(written)
    if isinstance(value, dict):
        return _texts_of_object(value)
    if isinstance(value, list | tuple):
        return _texts_of_list(value, in_parts=in_parts)
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
        with suppress(ValueError):  # without an escape, the quotes may be a title's
            return parse_json(text)
    value = written_value(text) if text[:1] in ("[", "{") else None
    if value is not None or not OBJECT_BEGINNING.match(text):
        return value
    raise UnreadableError(f"an object that is cut, damaged or oddly spelled ({text[:40]})")


def _texts_of_list(values: Sequence[Any], *, in_parts: bool) -> list[str]:
    """The texts of a list: its last message, its parts put together, or its answers."""
    objects = [value for value in values if isinstance(value, dict)]
    if any(map(_speaker, objects)):
        last = objects[-1]
        speaker = _speaker(last) or last.get("type")
        if speaker not in ASSISTANTS:
            raise UnreadableError(f"a list of messages, the last of which is of the role {speaker}")
        return _texts_of_object(last)

    has_numbers = any(type(value) in (int, float) for value in values)
    if has_numbers and len(values) > 1 and not in_parts:
        raise UnreadableError("a list of numbers")
    texts = []
    for value in values:
        texts += _texts(value)

    types = [str(value.get("type")) for value in objects]
    has_types = any("text" in name or UNSAID.search(name) for name in types)
    if texts and (in_parts or has_types):
        return _texts("".join(texts))
    return texts


def _texts_of_object(value: dict[str, Any]) -> list[str]:
    """The texts of a message, or of an answer with its sources."""
    speaker = _speaker(value)
    if speaker and speaker not in ASSISTANTS:
        raise UnreadableError(f"a message of the role {speaker}")
    if UNSAID.search(str(value.get("type"))) or value.get("thought"):
        return []

    fields = {plain(str(name)): inside for name, inside in value.items()}
    is_error = isinstance(fields.get("message"), str)
    names = [name for name in ANSWER_FIELDS if name in fields]
    if is_error and "message" in names:
        names.remove("message")
    for name in names:
        if fields[name] is not None:  # Parquet has all objects' fields in each
            return _texts(fields[name], in_parts=name in PARTS)

    if names or fields.get("error"):
        return []
    if all(name in FIELDS_WITHOUT_ANSWER or UNSAID.search(name) for name in fields):
        return []
    raise UnreadableError(f"an object with the fields {listed(map(str, value))}")


def _speaker(message: Mapping[str, Any]) -> str:
    """Whose message an object is, in small letters; "" for no message.

    ShareGPT calls the role `from`, and LangChain's messages have a type in its place.
    """
    role = message.get("role")
    if role is None and "value" in message:
        role = message.get("from")
    if role is not None:
        return str(role).lower()
    name = str(message.get("type"))
    return name if name in (*ASSISTANTS, *OTHER_ROLES) else ""


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
        reason = " ".join(str(error).split())[:200].removeprefix("Invalid regular expression: ")
        if "Rewrite schema" in reason:
            reason = "it has no group"
        raise LongtailError(
            f"--answer-pattern {pattern}: {reason}; expected a pattern with a group, "
            "as '<answer>(.*?)</answer>'"
        ) from None

    pairs = zip(parts.to_pylist(), has_match, strict=True)
    return [part if matches else None for part, matches in pairs]
