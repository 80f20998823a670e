"""On a terminal a run is a table of what its stages do, which no width, failure or Ctrl-C
breaks.
"""

import io
import logging
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest
from rich.console import Console
from screen import Terminal
from tqdm import tqdm
from waiting import PATIENCE

from flows import live

NAMES = [f"answer_replug_lsr@entityquestions-tiny-{i:02}" for i in range(47)]


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The time that the table goes by stands still at `now`."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(live, "time", clock)
    return clock


@pytest.fixture
def table(clock, workplace) -> Callable[[int], live.Table]:
    """A table of 47 stages: of 30 that ended 20 ran, two run, one of them with a bar, one failed,
    14 wait.
    """
    live.begin(NAMES)
    for i, name in enumerate(NAMES[:33]):
        live.WORK[name].begin()
        if i < 30:
            live.WORK[name].end(live.RAN if i < 20 else live.UNCHANGED)
    live.WORK[NAMES[30]].say(tqdm.format_meter(120, 260, 40.0, prefix="train", unit="step"))
    live.WORK[NAMES[31]].say("580 [bold]documents[/] " + "of 128 dimensions " * 9)
    live.WORK[NAMES[32]].say("the disk is full")
    live.WORK[NAMES[32]].end(live.FAILED)

    def made(columns: int) -> live.Table:
        console = Console(file=io.StringIO(), width=columns, color_system=None)
        return live.Table(console, "http://127.0.0.1:4200")

    return made


def drawn(table: live.Table) -> list[str]:
    with table.console.capture() as lines:
        table.console.print(table.drawn())
    return lines.get().splitlines()


@pytest.mark.parametrize("columns", [45, 80, 200])
def test_a_table_of_47_stages_counts_those_that_wait(table, columns, monkeypatch):
    made = table(columns)
    lines = drawn(made)
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith("answer_") for line in lines) == 3
    assert "30 of 47 stages done (20 ran, 10 unchanged), 14 wait" in " ".join(
        " ".join(lines).split()
    )
    if columns == 80:
        assert re.fullmatch(r"answer_rep\S+… +runs 0:00 +train:  46%.*…", lines[1].rstrip())
        assert " 580 [bold]doc" in lines[2]
        assert re.search(r" failed 0:00 +the disk is", lines[3])
    if columns == 200:
        monkeypatch.setattr(live, "_shown", made)
        live.end(NAMES[33], live.RAN)
        live.end(NAMES[34], live.UNCHANGED)
        live.end(NAMES[32], live.FAILED)
        live.stop()
        lines = made.console.file.getvalue().splitlines()
        assert lines[0] == f"{NAMES[33]} ran 0:00"
        assert lines[1] == f"{NAMES[32]} failed 0:00: the disk is full"
        assert lines[2:4] == [f"{name} interrupted 0:00" for name in NAMES[30:32]]


def test_warnings_appear_above_the_table():
    console = Console(file=io.StringIO(), width=80)
    log = logging.Logger("of a flow")
    log.addHandler(live._AboveTable(console))
    log.info("a stage begins")
    log.warning("regression: [b]accuracy[/b] from 0.5 to 0.3\x1b[2J")
    log.error("Finished in state Failed('a: a bug')")
    (line,) = console.file.getvalue().splitlines()
    assert "regression: [b]accuracy[/b] from 0.5 to 0.3" in line
    assert "\x1b" not in line


@pytest.mark.parametrize(
    ("stop", "code"),
    [(Terminal.interrupt, 130), pytest.param(Terminal.terminate, 143, marks=pytest.mark.slow)],
)
def test_a_stopped_run_leaves_the_terminal_in_order(project, stop, code):
    (project.folder / "input.txt").write_text("bar a")
    terminal = Terminal(
        [sys.executable, "-m", "flows.cli", "run"], project.folder, project.environment
    )
    table = (
        r"^a +runs \d+:\d\d +a:  25%.*2/8 .*\n"
        r"0 of 4 stages done, 3 wait\n"
        r"logs: \.longtail/logs; in a browser: http://127\.0\.0\.1:"
    )
    terminal.until(lambda text: re.search(table, text, re.M))
    assert terminal.screen.cursor_hidden
    family = psutil.Process(terminal.process.pid).children(recursive=True)
    stop(terminal)
    assert terminal.end() == code
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    assert not terminal.screen.cursor_hidden
    lines = [line for line in terminal.screen.text.splitlines() if line]
    assert re.fullmatch(r"a   interrupted \d+:\d\d", lines[1])
    assert [line.partition(";")[0] for line in lines[2:]] == ["interrupted"] * (code == 130)
    if code == 130:
        (project.folder / "on").touch()
        done = project.dvc("repro", "--single-item", "a")
        assert done.returncode == 0, done.stderr
