"""How many bytes of an input are in memory at once, and what is said of more."""

from __future__ import annotations

from pipelines.errors import LongtailError

MIB = 1 << 20
# bytes of a record: a line, an article, an XML tag. A longer one is a reject, or its file is
# refused
RECORD = 64 * MIB
WHOLE = 4 * RECORD  # bytes of what is read as a whole: a list in JSON, an answer of a server


def too_long(expected: str) -> str:
    """What is said of a longer record."""
    return f"longer than {RECORD / MIB:g} MB, expected {expected}"


def too_large(path: object, expected: str) -> LongtailError:
    """The error for what can't be read as a whole."""
    return LongtailError(f"{path}: more than {WHOLE / MIB:g} MB in one piece, expected {expected}")
