"""What a stopped process started is stopped too, and whoever waits for it still learns how it ended."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil

from flows import processes

CHILD = "import subprocess, sys\nsubprocess.Popen(['sleep', '600'])\nprint('up', flush=True)\n{more}\nsys.stdin.read()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"


def start(more: str) -> tuple[subprocess.Popen, list[psutil.Process]]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(more=more)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for _ in range(2 if more else 1):
        child.stdout.readline()
    return child, psutil.Process(child.pid).children()


def test_the_exit_code_is_left_to_who_waits_for_it():
    child, below = start("")
    processes.stop([child.pid], patience=10)
    assert child.wait(10) == -signal.SIGTERM
    assert psutil.wait_procs(below, timeout=10)[1] == []


def test_what_does_not_listen_is_killed():
    child, below = start(DEAF)
    processes.stop([child.pid], patience=0.2)
    assert child.wait(10) == -signal.SIGKILL
    assert psutil.wait_procs(below, timeout=10)[1] == []
