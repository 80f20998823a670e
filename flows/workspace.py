"""One run at a time in a checkout, whoever starts it: a person, a schedule, or two of them at once."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipelines import shards
from pipelines.errors import LongtailError

LOCK = shards.SCRATCH / "run.lock"  # ends with its process, however that ends
LOOK_SECONDS = 1.0

_held = False


@contextmanager
def alone(waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold this checkout for the block; what this process already holds, it need not wait for.

    Where another process holds it, tell `waiting` so once, and wait; without `waiting`, raise LongtailError.
    """
    global _held
    if _held:
        yield
        return
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("a+") as stream:
        told = False
        while not _lock(stream):
            stream.seek(0)
            holder = f"another run is at work in this folder (process {stream.read().strip() or 'unknown'})"
            if waiting is None:
                raise LongtailError(f"{holder}; wait for it or stop it")
            if not told:
                waiting(f"{holder}; waiting for it to end")
                told = True
            time.sleep(LOOK_SECONDS)
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        _held = True
        try:
            yield
        finally:
            _held = False


def is_free() -> bool:
    """Whether no process, this one included, holds the checkout now."""
    with LOCK.open("a") as stream:
        return not _held and _lock(stream)


def _lock(stream) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
