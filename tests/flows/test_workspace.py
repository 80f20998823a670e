"""Two runs in one checkout: the second says so, or waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from flows import workspace
from pipelines.errors import LongtailError

HOLDER = """
import time
from flows import workspace
with workspace.alone():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(root, tmp_path, monkeypatch):
    """Another process that holds the checkout."""
    monkeypatch.chdir(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER], env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.communicate()


def test_the_second_is_refused_and_told_which_process_is_at_work(holder):
    assert not workspace.is_free()
    refused = pytest.raises(LongtailError, match=rf"another run is at work in this folder \(process {holder.pid}\)")
    with refused, workspace.alone():
        pass


def test_one_that_waits_says_so_once_and_begins_when_the_first_is_killed(holder, monkeypatch):
    monkeypatch.setattr(workspace, "LOOK_SECONDS", 0.01)
    said = []

    def waiting(line: str) -> None:
        said.append(line)
        os.kill(holder.pid, signal.SIGKILL)

    with workspace.alone(waiting):
        assert len(said) == 1
        assert f"process {holder.pid}" in said[0]
        with workspace.alone():  # what this process holds, it need not wait for
            assert not workspace.is_free()
    assert workspace.is_free()
