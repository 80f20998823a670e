"""How much of an input is in memory at once: `ingest.record_mb`, which holds for a whole process and its workers.

It stands in the environment, which workers inherit, so that no reader has to hand it on to the next one.
"""

from __future__ import annotations

import os

from pipelines import params
from pipelines.errors import LongtailError

ENVIRONMENT = ("LONGTAIL_RECORD_MB",)
DEFAULT = "64"


def hold(ingest: params.Ingest) -> None:
    """Have this bound hold from now on; `stage.run` calls this."""
    os.environ[ENVIRONMENT[0]] = str(ingest.record_mb)


def record() -> int:
    """The most bytes of a record: a line, an article, an XML tag. A longer one is a reject, or its file is refused."""
    return int(float(os.environ.get(ENVIRONMENT[0], DEFAULT)) * (1 << 20))


def whole() -> int:
    """The most bytes of what is read as a whole: a list in JSON, an answer of a server."""
    return 4 * record()


def too_long(expected: str) -> str:
    """What is said of a longer record."""
    return f"longer than {record() / (1 << 20):g} MB (ingest.record_mb), expected {expected}"


def too_large(path: object, expected: str) -> LongtailError:
    """The error for what can't be read as a whole."""
    most = f"{whole() / (1 << 20):g} MB (4 * ingest.record_mb)"
    return LongtailError(f"{path}: more than {most} in one piece, expected {expected}")
