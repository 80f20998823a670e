"""Tests wait for events, and for minutes before they give up: the machine may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

PATIENCE = 300.0  # seconds


def until(happens: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until `happens()` gives something true, and return that. AssertionError if it never does."""
    deadline = time.monotonic() + seconds
    while not (found := happens()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return found


def recorders_end(folder: Path) -> None:
    """Wait until no process records runs of the project in `folder`.

    A recorder ends a while after its last record is gone, and another that begins meanwhile gives up.
    """
    until(lambda: not any(_records(process, folder) for process in psutil.process_iter()))


def _records(process: psutil.Process, folder: Path) -> bool:
    try:
        return "pipelines.tracking" in process.cmdline() and Path(process.cwd()) == folder
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return False
