"""Errors that a user can act on: one sentence, no traceback."""

import msgspec

from pipelines import safe_text

# what decoding JSON raises
BROKEN_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class LongtailError(Exception):
    """Bad input, params or environment; the message says what, where and what to do, in one
    harmless line.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(safe_text.message(str(message)))


def one_line(error: object) -> str:
    """A text, or what an error says, in one line with single blanks."""
    return " ".join(str(error).split())


class Unreachable(LongtailError):
    """A server gave no answer, or half of one, time and again: later it may well give it."""
