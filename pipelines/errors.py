"""Errors that a user can act on: one sentence, no traceback."""

from pipelines import neutral


class LongtailError(Exception):
    """Bad input, params or environment; the message says what, where and what to do, in one harmless line."""

    def __init__(self, message: object = "") -> None:
        super().__init__(neutral.message(str(message)))


class WorkerLost(LongtailError):
    """A worker died, more than once, at the same work: as a rule, its machine's memory is too small."""


class NotShared(LongtailError):
    """A cluster's worker does not see the project's folder."""


class Unreachable(LongtailError):
    """A server gave no answer, or half of one, time and again: later it may well give it."""
