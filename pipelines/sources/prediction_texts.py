"""What a system said, of a prediction that is a text, a list, or an object of some API or library.

An object counts by the one of its fields that is known to hold an answer, in one table for all systems. Its spelling,
messages of a user or a tool, and reasoning never count.
"""

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

from pipelines.sources.answer_lists import written_list
from pipelines.sources.cell_values import as_text, composed
from pipelines.sources.prediction_layouts import PREDICTION
from pipelines.sources.record_files import listed, plain
from pipelines.sources.streams import parse_json

PARTS = ("content", "parts")  # fields whose list is one text in parts, not several answers
# Fields that hold an answer, or an object with one, the likeliest first. OpenAI's Responses API has a setting `text`.
FIELDS = ("answer", *PREDICTION[:-1], "choices", "candidates", "message", "body", *PARTS, "text", "result", "answers")
FIELDS += ("value", "data")
# Fields of an object that holds no answer, because a request failed or a system gave nothing but sources.
NO_ANSWER = {"id", "index", "type", "object", "code", "status", "status_code", "param", "request_id", "stop_reason"}
NO_ANSWER |= {"provenance", "meta", "metadata", "usage", "finish_reason", "logprobs"}
NOT_SAID = re.compile("think|thought|reason|tool|function|_call|refus|image|audio|input_text", re.IGNORECASE)
ASSISTANT = ("assistant", "model", "ai", "gpt", "bot")
OTHERS = ("human", "user", "system", "developer", "tool", "function")
OBJECT = re.compile(  # as programs begin to write one, and as Python and JavaScript write one in a text
    r"\"?[\[(\s]*(?:\{\s*(?:\\*([\"'])[^\"'{}]*\1\s*(?::|=>)|:?\w+=)"
    r"|[A-Z]\w+\(\s*\w+=|content=['\"]|<[\w.]+ object at 0x|\[object Object\])"
)


class UnreadableError(ValueError):
    """A prediction that holds no text; the message says what it is."""


def texts_of(value: Any) -> list[str]:
    """What was said, as NFC: no text where there is no answer, several where there are several answers.

    Raises UnreadableError for anything that no text is known of.
    """
    try:
        texts = _texts_of(value)
        "".join(texts).encode()
    except RecursionError:
        raise UnreadableError("nested too deeply") from None
    except UnicodeEncodeError:
        raise UnreadableError("half of a surrogate pair") from None
    return texts


def _texts_of(value: Any, *, in_parts: bool = False) -> list[str]:
    if isinstance(value, str):
        written = _written(value.strip())
        return [composed(value)] if written is None else _texts_of(written)
    if isinstance(value, dict):
        return _of_object(value)
    if isinstance(value, list):
        return _of_list(value, in_parts=in_parts)
    if value is None:
        return []
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | date):
        raise UnreadableError(str(value).lower() if isinstance(value, bool) else f"of the type {type(value).__name__}")
    return [as_text(int(value) if isinstance(value, float) and value.is_integer() else value)]


def _written(text: str) -> Any:
    """What a text spells: a text in JSON, a list or an object, as JSON or as Python does; None for another text."""
    if text[:1] == '"' == text[-1:] and "\\" in text:  # without an escape, the quotes may be a title's
        with suppress(ValueError):
            return parse_json(text)
    if not OBJECT.match(text):
        return written_list(text) if text[:1] == "[" else None
    for parse in (parse_json, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return parse(text)
    raise UnreadableError(f"an object that is cut, damaged or oddly spelled ({text[:40]})")


def _of_list(values: list[Any], *, in_parts: bool) -> list[str]:
    objects = [value for value in values if isinstance(value, dict)]
    if any(map(_speaker, objects)):
        if (speaker := _speaker(objects[-1]) or objects[-1].get("type")) not in ASSISTANT:
            raise UnreadableError(f"a list of messages, the last of which is of the role {speaker}")
        return _of_object(objects[-1])
    types = [str(value.get("type")) for value in objects]
    if not in_parts and len(values) > 1 and any(type(value) in (int, float) for value in values):
        raise UnreadableError("a list of numbers")
    said = [text for value in values for text in _texts_of(value)]
    if said and (in_parts or any("text" in type_ or NOT_SAID.search(type_) for type_ in types)):
        return _texts_of("".join(said))
    return said


def _of_object(value: dict[str, Any]) -> list[str]:
    speaker = _speaker(value)
    if speaker and speaker not in ASSISTANT:
        raise UnreadableError(f"a message of the role {speaker}")
    if NOT_SAID.search(str(value.get("type"))) or value.get("thought"):
        return []
    fields = {plain(str(name)): inside for name, inside in value.items()}
    if isinstance(fields.get("message"), str):  # as errors have it
        del fields["message"]
    known = [name for name in FIELDS if name in fields]
    for name in known:
        if fields[name] is not None:  # Parquet has all objects' fields in each
            return _texts_of(fields[name], in_parts=name in PARTS)
    if known or fields.get("error") or all(name in NO_ANSWER or NOT_SAID.search(name) for name in fields):
        return []
    raise UnreadableError(f"an object with the fields {listed(map(str, value))}")


def _speaker(message: Mapping[str, Any]) -> str:
    """Whose message an object is, in small letters; "" for no message. LangChain's have a type in place of a role."""
    role, kind = message.get("role", message.get("from") if "value" in message else None), str(message.get("type"))
    return str(role).lower() if role is not None else kind * (kind in (*ASSISTANT, *OTHERS))
