"""One run at a time in a checkout, and no process left of a run that is stopped."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import psutil

from pipelines.errors import LongtailError
from pipelines.storage.atomic import SCRATCH

LOCK = SCRATCH / "run.lock"  # the system frees it when the process that holds it ends
LOOK_SECONDS = 1.0  # between looks whether it is free
STOP_SECONDS = 10.0  # that processes usually have to end
KILL_SECONDS = 10.0  # that a killed process may take to end, as while it writes to a slow disk
END_SECONDS = 10.0  # that a process whose parent is gone has to end by SIGTERM

_held = False


@contextmanager
def alone(waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold this checkout for the block.

    Where another process holds it, tell `waiting` and wait for its end, or without `waiting` raise
    LongtailError.
    """
    global _held
    if _held:
        yield
        return

    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("a+") as stream:
        if not try_lock(stream):
            _wait_for_lock(stream, waiting)
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        _held = True
        try:
            yield
        finally:
            _held = False


def _wait_for_lock(stream: TextIO, waiting: Callable[[str], None] | None) -> None:
    stream.seek(0)
    pid = stream.read().strip() or "unknown"
    other_run = f"another run is at work in this folder (process {pid})"
    if waiting is None:
        raise LongtailError(f"{other_run}; wait for it or stop it")
    waiting(f"{other_run}; waiting for it to end")
    while not try_lock(stream):
        time.sleep(LOOK_SECONDS)


def is_free() -> bool:
    """Whether no process, this one included, holds the checkout now."""
    with LOCK.open("a") as stream:
        return not _held and try_lock(stream)


def stop(pids: Iterable[int], patience: float = STOP_SECONDS, roots_only: bool = False) -> None:
    """End processes and their descendants; after `patience` seconds kill all that still run.

    With `roots_only` only the processes themselves are asked to end.
    """
    roots = []
    descendants = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            descendants += process.children(recursive=True)
            roots.append(process)
    family = [*descendants, *roots]

    terminated = roots if roots_only else family
    for process in terminated:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _wait_for_end(terminated, patience)
    for process in filter(_runs, family):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _wait_for_end(family, KILL_SECONDS)


def _wait_for_end(processes: Sequence[psutil.Process], patience: float) -> None:
    deadline = time.monotonic() + patience
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)


def start_module(
    words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen:
    """Run `python -m WORDS` beside this process; what it says goes to `log`.

    Ctrl-C reaches this process alone.
    """
    with log.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            env=environment,
            start_new_session=True,
        )


def close(process: subprocess.Popen, patience: float) -> None:
    """End a process that ends when its standard input closes; after `patience` seconds kill it."""
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_with_standard_input(before: Callable[[], None] | None = None) -> None:
    """Have this process end by SIGTERM when its standard input closes, as it does with its parent.

    It calls `before` first. It is killed if SIGTERM does not end it within END_SECONDS: Prefect's
    worker would look on for a server that is gone.
    """

    def watch() -> None:
        sys.stdin.buffer.read()
        if before:
            before()
        signal.raise_signal(signal.SIGTERM)
        time.sleep(END_SECONDS)
        signal.raise_signal(signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def try_lock(stream: TextIO) -> bool:
    """Try to lock the file; False if another process has locked it."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _runs(process: psutil.Process) -> bool:
    """Whether a process runs.

    psutil's own waiting would take a child's exit code from its parent.
    """
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
