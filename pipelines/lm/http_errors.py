"""Errors that a server puts into an answer of status 200, read as the status that they stand for."""

import math
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import requests

from pipelines.work import web

STATUSES = (  # what an error says of itself -> the HTTP status of such an error; the first that fits counts
    (r"rate.?limit|too.?many|throttl|exhausted|quota|capacity|concurren|qps|slow.?down", 429),
    (r"overload|unavailable|loading|busy|warming|time.?out|timed.out|deadline|bad.?gateway|upstream|provider", 503),
    (r"api.?key|authenti|unauthori|credential", 401),
    (r"credit|billing|payment|balance|permission|forbidden|denied|moderat|not.?found|not.?exist|no such", 404),
    (r"invalid|bad.?request|context.?length|too.?l(ong|arge)|supported|value.?error|content.?filter", 400),
    (r"server.?error|internal|api.?error|exception|failed", 503),
)
CODES = ("code", "status", "status_code", "statuscode", "error_code", "type", "error_type", "__type", "title")
WORDS = ("message", "msg", "detail", "error", "errors", "error_msg", "status_msg", "error_message", "raw")
WAITS = (  # the key of a time to wait -> seconds of its unit
    (r"retry[-_]?after[-_]?(ms|millis\w*)", 0.001),
    (r"retry[-_]?(after|delay|in)([-_]?s(ec\w*)?)?|estimated_time|x-ratelimit-reset\S*", 1.0),
)
SPAN = r"[\d.]+\s*(?:ms|h|m|s|$)[a-z]*\s*"  # a part of a time such as 1m12.5s, 120 ms, 6 seconds
IN_WORDS = re.compile(rf"(?:again|retry|wait)\s+(?:in|after|for)?\s*((?:{SPAN})+)", re.IGNORECASE)
UNITS = {"ms": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
ENDED = 502  # the status of an answer whose model ended in an error of which nothing is said


class _End(msgspec.Struct):
    error: Any = None
    finish_reason: Any = None


class _Head(msgspec.Struct):
    """What says whether an answer holds an error; the rest, which may be long, is not read."""

    choices: list[_End]
    error: Any = None


def unwrap(answer: requests.Response) -> None:
    """Give an answer of status 200 that holds an error the status of that error, and the time that it asks to wait."""
    if answer.status_code != 200 and answer.status_code not in web.RETRIED:
        return
    problem = _problem(answer.content)
    if problem is None:
        return
    pairs = list(_pairs(problem))
    if answer.status_code == 200:
        if (status := _status(pairs)) is None:
            return
        answer.status_code, answer.reason = status, "within an answer of status 200"
    asks = answer.status_code in web.RETRIED and "Retry-After" not in answer.headers
    if asks and (seconds := _wait(pairs)) is not None:
        answer.headers["Retry-After"] = str(math.ceil(seconds))


def _problem(body: bytes) -> Any:
    """The part of a body that may be an error: of JSON, or of other text; None if it has answers."""
    with suppress(*web.BROKEN):
        head = msgspec.json.decode(body, type=_Head)
        if ended := next((one for one in head.choices if one.error or one.finish_reason == "error"), None):
            return {"error": ended.error or head.error, "otherwise": ENDED}
        if head.choices or head.error:
            return {"error": head.error} if head.error else None
    try:
        parsed = msgspec.json.decode(body)
    except web.BROKEN:
        text = body[:1000].decode("utf-8", "replace").strip()
        if text[:1] in ("{", "["):  # JSON that was cut
            return None
        code = re.search(r"\b[45]\d\d\b", text)
        return {"code": code[0] if code else "", "message": text}
    if isinstance(parsed, list):  # Gemini's
        parsed = next((one for one in parsed if isinstance(one, dict)), None)
    return parsed if isinstance(parsed, dict) else None


def _pairs(problem: Any) -> Iterator[tuple[str, Any]]:
    """The keys and values of an error, the outer ones first; items of a list have the list's key."""
    level = [("", problem)]
    while level:
        below = []
        for key, value in level:
            if isinstance(value, dict):
                below += [(str(name).lower(), part) for name, part in value.items()]
            elif isinstance(value, list):
                below += [(key, part) for part in value]
            elif value is not None:
                yield key, value
        level = below


def _status(pairs: list[tuple[str, Any]]) -> int | None:
    codes = [(key, str(value)) for key, value in pairs if key in CODES]
    for _, value in codes:
        if value.isdecimal() and len(value) == 3 and value[0] in "45":
            return int(value)
    codes.sort(key=lambda pair: CODES.index(pair[0]))  # a type says less than a code
    for said in (*codes, *((key, str(value)) for key, value in pairs if key in WORDS)):
        for words, status in STATUSES:
            if re.search(words, said[1], re.IGNORECASE):
                return status
    return next((value for key, value in pairs if key == "otherwise"), None)


def _wait(pairs: list[tuple[str, Any]]) -> float | None:
    """Seconds that an error asks to wait, by its own field or in its words."""
    for words, unit in WAITS:
        for key, value in pairs:
            if re.fullmatch(words, key) and (seconds := _seconds(str(value))) is not None:
                if seconds < 1e8:
                    return seconds * unit
                return max(0.0, seconds / (1000 if seconds > 1e11 else 1) - time.time())  # since 1970, in ms or s
    spans = (IN_WORDS.search(str(value)) for key, value in pairs if key in WORDS)
    return next((_seconds(span[1]) for span in spans if span), None)


def _seconds(text: str) -> float | None:
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|h|m|s|)", text.strip().lower())
    return sum(float(number) * UNITS[unit] for number, unit in parts) if parts else None
