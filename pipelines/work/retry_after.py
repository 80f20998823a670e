"""The seconds that a server asks to wait before the next request, in whatever form."""

import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import requests

SECONDS_OF_UNIT = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
UNIT = re.compile("ms|milli|[smh]|", re.IGNORECASE)  # how a word for a unit begins
NUMBER = r"\d+(?:\.\d*)?"
AMOUNT = re.compile(rf"({NUMBER})\s*([a-z]*)", re.IGNORECASE)
# A span of time, such as 16, 1.5, 16s, 857ms, 6m0s, 7m12.48s, 26 seconds.
SPAN = rf"(?:{NUMBER}\s*[a-z]+\s*)+|{NUMBER}\s*"
TEXT_BYTES = 4000  # bytes of an answer in which a span is looked for
# Where an answer's text names a span.
IN_TEXT = (
    # google.rpc.RetryInfo
    rf"retryDelay\W+(?P<span>{SPAN})",
    # OpenAI and Groq: "Please try again in 6m0s". Azure: "Please retry after 26 seconds".
    rf"(?:try again|retry) (?:in|after) (?P<span>{SPAN})",
    # a field: "retry_after": 16
    rf"retry_?after\W+(?P<span>{SPAN})",
    # the Hugging Face Hub, of a model that it loads
    rf"estimated_time\W+(?P<span>{SPAN})",
)
LIMITS = ("requests", "tokens")  # of OpenAI's headers x-ratelimit-reset-<limit>


def seconds_asked(answer: requests.Response) -> float | None:
    """The seconds that an answer asks to wait, 0 for a time that is over; None if it names none.

    The headers retry-after-ms and Retry-After come first, then the text, then the reset of a rate
    limit that is used up.
    """
    milliseconds = _seconds(answer.headers.get("retry-after-ms", "") + "ms")
    if milliseconds is not None:
        return milliseconds
    header = answer.headers.get("Retry-After", "").strip()
    spans = [_seconds(part.strip()) for part in header.split(",")]  # a proxy joins two headers
    seconds = None if None in spans else max(spans)
    if seconds is None:
        seconds = _until(header, answer.headers.get("Date", ""))
    if seconds is None:
        seconds = _in_text(answer.content[:TEXT_BYTES].decode("utf-8", "replace"))
    if seconds is None:
        seconds = _until_reset(answer)
    return seconds


def _seconds(span: str) -> float | None:
    """The seconds of a span of time; None for another text."""
    if not re.fullmatch(SPAN, span, re.IGNORECASE):
        return None
    seconds = 0.0
    for number, word in AMOUNT.findall(span):
        unit = UNIT.match(word)[0].lower()
        if word and not unit:
            return None
        seconds += float(number) * SECONDS_OF_UNIT[unit]
    return seconds


def _until(date: str, now: str) -> float | None:
    """The seconds from the date `now` to `date`, both in a form that servers use.

    None if `date` is none, 0 if it is over. `now` is the server's own clock. Where it shows none,
    this machine's counts.
    """
    until = _unix_seconds(date)
    if until is None:
        return None
    since = _unix_seconds(now)
    if since is None:
        since = time.time()
    return max(0.0, until - since)


def _unix_seconds(text: str) -> float | None:
    """A date of HTTP or of RFC 3339 in seconds since 1970."""
    try:
        is_iso = text[:4].isdigit()
        date = datetime.fromisoformat(text) if is_iso else parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:  # HTTP's dates are all in GMT
        date = date.replace(tzinfo=UTC)
    return date.timestamp()


def _in_text(text: str) -> float | None:
    for pattern in IN_TEXT:
        match = re.search(pattern, text, re.IGNORECASE)
        if match:
            return _seconds(match["span"])
    return None


def _until_reset(answer: requests.Response) -> float | None:
    """The seconds until the last limit that is used up is whole again."""
    resets = []
    for limit in LIMITS:
        if answer.headers.get(f"x-ratelimit-remaining-{limit}") == "0":
            reset = _seconds(answer.headers.get(f"x-ratelimit-reset-{limit}", ""))
            resets.append(reset or 0.0)
    return max(resets, default=None)
