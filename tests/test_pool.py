"""Workers bring results and errors home, and none outlives the process that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.errors import LongtailError
from pipelines.pool import processes


def square(n: int) -> int:
    return n * n


def refuse(name: str) -> None:
    raise LongtailError(f"{name}: no")


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_one_worker_needs_no_process() -> None:
    with processes(1) as executor:
        assert executor is None


def test_results_and_errors_come_home() -> None:
    with processes(2) as executor:
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]
        with pytest.raises(LongtailError, match="a: no"):
            executor.submit(refuse, "a").result()


def test_a_worker_that_dies_is_an_error_a_user_can_act_on() -> None:
    with (
        pytest.raises(LongtailError, match=r"a worker process died .* fewer compute\.workers"),
        processes(2) as executor,
    ):
        executor.submit(die, 0).result()


SLEEPER = """
import os, sys, time
from pipelines.pool import processes

def report(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    with processes(2) as executor:
        executor.submit(report, sys.argv[1]).result()
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path, root: Path) -> None:
    script, note = tmp_path / "sleeper.py", tmp_path / "pid"
    script.write_text(SLEEPER)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    parent = subprocess.Popen([sys.executable, script, note], env=environment)
    assert until(lambda: note.exists() and note.read_text())
    parent.kill()
    parent.wait()
    assert until(lambda: ended(int(note.read_text())))


def ended(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state or state.startswith("Z")  # Z: whoever inherited it hasn't waited for it yet


def until(condition, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False
