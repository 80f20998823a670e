"""Of two runs in one checkout the second says so, or waits; and what a stopped process started is
stopped too.
"""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from waiting import PATIENCE

from flows import workspace
from pipelines.errors import LongtailError

HOLDER = """
import signal, time
from flows import workspace
signal.signal(signal.SIGTERM, signal.SIG_IGN)
workspace.END_SECONDS = 0.1
workspace.end_with_standard_input()
with workspace.alone():
    print("held", flush=True)
    time.sleep(600)
"""

CHILD = "import subprocess, sys\nsubprocess.Popen(['sleep', '600'])\nprint('up', flush=True)\n{more}\nsys.stdin.read()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"


@pytest.fixture
def holder(root, tmp_path, monkeypatch):
    """Another process that holds the checkout until its standard input closes, deaf to SIGTERM."""
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", HOLDER]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout.readline() == "held\n"
        yield child
        child.kill()


def test_the_second_run_is_refused_or_waits(holder, monkeypatch):
    assert not workspace.is_free()
    refused = pytest.raises(
        LongtailError, match=rf"another run is at work in this folder \(process {holder.pid}\)"
    )
    with refused, workspace.alone():
        pass
    monkeypatch.setattr(workspace, "LOOK_SECONDS", 0.01)
    said = []

    def waiting(line: str) -> None:
        said.append(line)
        holder.stdin.close()
        holder.wait(PATIENCE)

    with workspace.alone(waiting):
        assert len(said) == 1
        assert f"process {holder.pid}" in said[0]
        with workspace.alone():  # what this process holds, it need not wait for
            assert not workspace.is_free()
    assert workspace.is_free()


@pytest.mark.parametrize(("more", "code"), [("", -signal.SIGTERM), (DEAF, -signal.SIGKILL)])
def test_what_does_not_listen_is_killed(more, code):
    """The exit code is left to who waits for it."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(more=more)], stdin=pipe, stdout=pipe, text=True
    )
    for _ in range(2 if more else 1):
        child.stdout.readline()
    below = psutil.Process(child.pid).children()
    workspace.stop([child.pid], patience=0.2 if more else PATIENCE)
    assert child.wait(PATIENCE) == code
    assert psutil.wait_procs(below, timeout=PATIENCE)[1] == []
