"""Text from elsewhere made harmless to whoever looks at it: labels, titles, answers, file names,
what servers say.

Data files keep every character. Elsewhere U+FFFD stands for each that steers a screen, hides, or
reorders others.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from pipelines import redaction

MESSAGE_CHARS = 2000  # characters of a message, at most
END_CHARS = 400  # characters of a message's end that stay, because the end says what to do
# Half of a surrogate pair, or a byte that is not UTF-8 as Python reads names and lines with it.
UNREADABLE = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# marks that stand above and below a letter
_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_STEERING = re.compile(
    # controls, such as those that begin a terminal's escapes
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
    # characters that change the direction of writing
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    # characters that are not seen
    "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"
    # code points that are no characters, and not allowed in XML
    "\ufdd0-\ufdef\ufffe\uffff"
    # ends of lines
    "\u2028\u2029]"
    # marks on one letter that would cover the lines above
    f"|(?<=[{_MARKS}]{{8}})[{_MARKS}]+"
)


def mended(value: str) -> str:
    """`value` with U+FFFD for what could not be read, so that it can be written to a file."""
    return UNREADABLE.sub(REPLACEMENT, value)


def text(value: str) -> str:
    """`value` with U+FFFD for what steers or deceives; tabs and line ends stay."""
    return _STEERING.sub("\ufffd", re.sub("\r\n?", "\n", value))


def line(value: str) -> str:
    """`value` in one line, with U+FFFD for what steers or deceives."""
    return text(re.sub(r"[\t\r\n]+", " ", value))


def message(value: str) -> str:
    """`value` in one harmless line of at most MESSAGE_CHARS characters, without secrets.

    A longer text loses its middle.
    """
    shown = line(redaction.hidden(value))
    if len(shown) <= MESSAGE_CHARS:
        return shown
    beginning = shown[: MESSAGE_CHARS - END_CHARS - 3]
    return f"{beginning} … {shown[-END_CHARS:]}"


def markdown(value: str) -> str:
    """A text as Markdown that shows it in one line and does nothing else, in a table's cell too."""
    return re.sub(r"[\\`*\[\]<>|!&]", r"\\\g<0>", line(value))


def values(value: Any, form: Callable[[str], str] = text) -> Any:
    """`form` of every text in lists and dicts, however deep."""
    if isinstance(value, str):
        return form(value)
    if isinstance(value, list | tuple):
        return [values(entry, form) for entry in value]
    if isinstance(value, dict):
        return {values(key, form): values(entry, form) for key, entry in value.items()}
    return value


def dumps(value: Any, indent: int | None = 1) -> str:
    """`value` as JSON for people.

    It is exact: what `text` replaces is written in JSON's escapes.
    """
    return _STEERING.sub(_escaped, json.dumps(value, ensure_ascii=False, indent=indent))


def _escaped(match: re.Match) -> str:
    digits = match[0].encode("utf-16-be", "surrogatepass").hex()
    return re.sub("(....)", r"\\u\1", digits)
