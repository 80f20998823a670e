"""What takes long to make is made once, by the first of pytest's processes that asks for it."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` as `make` filled it. All processes of a test run share it: copy it before
    you change it.

    A failure of `make` is raised again for each test that asks, without a second try.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    failure = folder.with_suffix(".failure")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            try:
                make(folder)
            except BaseException as error:
                failure.write_text(repr(error), encoding="utf-8")
                raise
    assert not failure.exists(), failure.read_text(encoding="utf-8")
    return folder
