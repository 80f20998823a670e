"""Ending processes with all that they started, without taking their exit codes from those who wait for them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil


def stop(pids: Iterable[int], patience: float, alone: bool = False) -> None:
    """Ask processes, and those below them, to end; after `patience` seconds kill what is left.

    With `alone`, those below are not asked: their parents are to end them in good order.
    """
    roots, below = [], []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            below += process.children(recursive=True)
            roots.append(process)
    asked = roots if alone else [*below, *roots]
    for process in asked:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + patience
    while any(map(_works, asked)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in filter(_works, [*below, *roots]):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _works(process: psutil.Process) -> bool:
    """Whether it runs: psutil's own waiting would take a child's exit code from its parent."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
