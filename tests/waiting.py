"""Tests wait for events, and for minutes before they give up: the machine may be busy."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 300.0  # seconds


def until(happens: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until `happens()` gives something true, and return that.

    AssertionError if it never does.
    """
    deadline = time.monotonic() + seconds
    while not (found := happens()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return found
