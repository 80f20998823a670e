"""How much of an input is in memory at once: the params of `ingest`, which hold for a whole process and its workers.

They stand in the environment, which workers inherit, so that no reader has to hand them on to the next one.
"""

from __future__ import annotations

import os

from pipelines import params
from pipelines.errors import LongtailError

ENVIRONMENT = ("LONGTAIL_RECORD_MB", "LONGTAIL_REJECTS_KEPT")
DEFAULTS = ("64", "100000")


def hold(ingest: params.Ingest) -> None:
    """Have these bounds hold from now on; `stage.run` calls this."""
    values = (ingest.record_mb, ingest.rejects_kept)
    os.environ.update({name: str(value) for name, value in zip(ENVIRONMENT, values, strict=True)})


def _value(place: int) -> float:
    return float(os.environ.get(ENVIRONMENT[place], DEFAULTS[place]))


def record() -> int:
    """The most bytes of a record: a line, an article, an XML tag. A longer one is a reject, or its file is refused."""
    return int(_value(0) * (1 << 20))


def whole() -> int:
    """The most bytes of what is read as a whole: a list in JSON, an answer of a server."""
    return 4 * record()


def rejects() -> int:
    """How many bad rows of an input are kept; further ones are only counted."""
    return int(_value(1))


def too_long(expected: str) -> str:
    """What is said of a longer record."""
    return f"longer than {record() / (1 << 20):g} MB (ingest.record_mb), expected {expected}"


def too_large(path: object, expected: str) -> LongtailError:
    """The error for what can't be read as a whole."""
    most = f"{whole() / (1 << 20):g} MB (4 * ingest.record_mb)"
    return LongtailError(f"{path}: more than {most} in one piece, expected {expected}")
