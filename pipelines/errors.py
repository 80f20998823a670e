"""Errors that a user can act on: one sentence, no traceback."""


class LongtailError(Exception):
    """Bad input, params or environment; the message says what, where and what to do."""
