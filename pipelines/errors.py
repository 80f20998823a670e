"""Errors that a user can act on: one sentence, no traceback."""

from pipelines import neutral


class LongtailError(Exception):
    """Bad input, params or environment; the message says what, where and what to do, in one harmless line."""

    def __init__(self, message: object = "") -> None:
        super().__init__(neutral.message(str(message)))


class Unreachable(LongtailError):
    """A server gave no answer, or half of one, time and again: later it may well give it."""
