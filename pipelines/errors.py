"""Errors that a user can act on: one sentence, no traceback."""


class LongtailError(Exception):
    """Bad input, params or environment; the message says what, where and what to do.

    It is one line, and nothing in it steers a terminal, whatever a server, a file or a name put there.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class WorkerLost(LongtailError):
    """A worker died, more than once, at the same work: as a rule, its machine's memory is too small."""


class Unreachable(LongtailError):
    """A server gave no answer, or half of one, time and again: later it may well give it."""


def printable(text: str) -> str:
    """A text in one line, with a mark in place of each character that a terminal would obey or not show."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in str(text))
