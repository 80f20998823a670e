"""Find errors in answers of status 200, which some servers send in place of a refusal."""

import re
from typing import Any

import msgspec
import requests

from pipelines.errors import BROKEN_JSON

# An error within an answer of status 200 -> its HTTP status; the first pattern that fits counts.
STATUSES = (
    # A single prompt or its answer that a filter blocks.
    (
        r"content.?(filter|policy|management)|block.?reason|data.?inspection|prohibited|moderat"
        r"|responsible.?ai",
        400,
    ),
    (r"rate.?limit|too.?many|throttl|exhausted|quota|capacity|concurren|qps|slow.?down", 429),
    (
        r"overload|unavailable|loading|busy|warming|time.?out|timed.out|deadline|bad.?gateway"
        r"|upstream|provider",
        503,
    ),
    (r"api.?key|authenti|unauthori|credential", 401),
    (
        r"credit|billing|payment|balance|permission|forbidden|denied|not.?found|not.?exist"
        r"|no such",
        404,
    ),
    (
        r"invalid|bad.?request|context.?length|too.?l(ong|arge)|supported|value.?error",
        400,
    ),
    (r"server.?error|internal|api.?error|exception|failed|\"finish_reason\":\s*\"error", 503),
)
# The status that an error names, in JSON and in other text.
CODE = re.compile(r"(?i)(?:code|status)\w*\"?:\s*\"?([45]\d\d)\b|^[^{\[]*?\b([45]\d\d)\b")
ERROR_BYTES = 2000  # bytes of an answer that may say what is wrong


class _End(msgspec.Struct):
    """How a choice ended."""

    error: Any = None
    finish_reason: Any = None


class _Head(msgspec.Struct):
    """The fields that say whether an answer holds an error. The long rest is not read."""

    choices: list[_End]
    error: Any = None


def unwrap(answer: requests.Response) -> None:
    """Give an answer of status 200 that holds an error the status of that error."""
    if answer.status_code != 200:
        return
    message = _error_in(answer.content)
    status = _status_named(message) if message is not None else None
    if status is not None:
        answer.status_code = status
        answer.reason = "within an answer of status 200"


def _error_in(body: bytes) -> str | None:
    """The part of an answer's body that may name an error; None for an answer without one."""
    beginning = body[:ERROR_BYTES].decode("utf-8", "replace")
    try:
        head = msgspec.json.decode(body, type=_Head)
    except msgspec.ValidationError:  # JSON of another kind
        return beginning
    except BROKEN_JSON:
        is_cut_json = beginning.lstrip()[:1] in ("{", "[")
        return None if is_cut_json else beginning

    for choice in head.choices:
        if choice.error or choice.finish_reason == "error":
            return msgspec.json.encode(choice).decode()
    if head.choices and not head.error:
        return None
    return msgspec.json.encode(head).decode()


def _status_named(message: str) -> int | None:
    """The HTTP status that an error's text names or means; None for another text."""
    code = CODE.search(message)
    if code:
        return int(code[1] or code[2])
    for words, status in STATUSES:
        if re.search(words, message, re.IGNORECASE):
            return status
    return None
