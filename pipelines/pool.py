"""The process pool that shards are mapped over; its size never changes a result."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait

from pipelines.errors import LongtailError


@contextmanager
def processes(workers: int) -> Iterator[Executor | None]:
    """Yield an executor of `workers` processes, or None for one worker: the work is then done in this process.

    An error stops what has not begun. Raises LongtailError where a worker died (out of memory, as a rule).
    """
    if workers == 1:
        yield None
        return
    # Spawned, not forked: this process may hold threads of DuckDB or a tokenizer, and their locks.
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    try:
        yield executor
    except BrokenProcessPool:
        raise LongtailError("a worker process died (out of memory?); run again, with fewer compute.workers") from None
    finally:
        executor.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
