"""On a terminal a run is a table of what its stages do, which no width, failure or Ctrl-C breaks."""

from __future__ import annotations

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

from flows import board, durations, live
from flows.graph import Stage

COMPUTE = SimpleNamespace(workers=2, device="cpu")
NAMES = [f"answer_replug_lsr@entityquestions-tiny-{i:02}" for i in range(47)]


def stages(*names: str, needs: dict[str, tuple[str, ...]] | None = None, workers: str = "one") -> list[Stage]:
    return [Stage(name, "", (needs or {}).get(name, ()), workers, ()) for name in names]


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The time that the table goes by stands still at `now`."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(board, "time", clock)
    monkeypatch.setattr(live, "time", clock)
    return clock


@pytest.fixture
def table(clock) -> Callable[[int], live.Table]:
    """A table of 47 stages: of 30 that ended 20 ran, two run, one of them with a bar, one failed, 14 wait."""
    board.begin(NAMES)
    for i, name in enumerate(NAMES[:33]):
        board.WORK[name].begin()
        if i < 30:
            board.WORK[name].end(board.RAN if i < 20 else board.UNCHANGED)
    board.WORK[NAMES[30]].say(tqdm.format_meter(120, 260, 40.0, prefix="train", unit="step"))
    board.WORK[NAMES[31]].say("580 [bold]documents[/] " + "of 128 dimensions " * 9)
    board.WORK[NAMES[32]].say("the disk is full")
    board.WORK[NAMES[32]].end(board.FAILED)

    def made(columns: int) -> live.Table:
        console = Console(file=io.StringIO(), width=columns, color_system=None)
        return live.Table(console, stages(*NAMES), {}, COMPUTE, "http://127.0.0.1:4200")

    return made


def drawn(table: live.Table) -> list[str]:
    with table.live.console.capture() as lines:
        table.live.console.print(table.drawn())
    return lines.get().splitlines()


@pytest.mark.parametrize("columns", [45, 80, 200])
def test_a_table_of_47_stages_has_a_line_for_each_that_runs_or_failed_and_counts_the_others(table, clock, columns):
    made = table(columns)
    made.memory = {NAMES[30]: 3 << 29}
    lines = drawn(made)
    assert max(map(len, lines)) <= columns
    assert sum(line.startswith("answer_") for line in lines) == 3
    assert "30 of 47 stages done (20 ran, 10 unchanged), 14 wait" in " ".join(" ".join(lines).split())
    if columns == 80:
        assert re.fullmatch(r"answer_rep\S+… +runs 0:00 +46 % 120/260 ━+…? +bar 0:46 +1.5 GiB", lines[1].rstrip())
        assert " 580 [bold]doc" in lines[2]
        assert re.search(r" failed +the disk is", lines[3])
        made.earlier, made.memory = {NAMES[30]: 30.0}, {}
        assert drawn(made)[1].rstrip().endswith(" 0:30"), "an earlier time goes before the bar until it is over"
        clock.now += 31
        assert drawn(made)[1].rstrip().endswith(" bar 0:15")
        clock.now += 31
        assert drawn(made)[1].rstrip().endswith("…"), "a bar that stands still says no more what is left"
    if columns == 200:
        made.end()
        lines = made.live.console.file.getvalue().splitlines()
        assert lines[:20] == [f"{name} ran 0:00" for name in NAMES[:20]]
        assert lines[20] == f"{NAMES[32]} failed 0:00: the disk is full"
        assert lines[21:23] == [f"{name} interrupted 0:00" for name in NAMES[30:32]]


def test_how_much_is_left_of_the_run_is_said_when_each_stage_to_run_has_an_earlier_time(table):
    made = table(200)
    board.WORK[NAMES[32]].end(board.RAN)
    made.changed = {name: ["modified input"] for name in NAMES}
    made.earlier = dict.fromkeys(NAMES, 60.0)
    assert "up to 8:00 left by earlier runs" in " ".join(drawn(made)), "16 stages on two workers"
    del made.earlier[NAMES[46]]
    board.WORK[NAMES[40]].end(board.UNCHANGED)
    assert "left by" not in "".join(drawn(made)[-3:])


def test_what_is_left_follows_from_what_waits_for_what():
    of_graph = stages("a", "b", "c", "d", needs={"c": ("a", "b"), "d": ("c",)})
    seconds, alone = {"a": 10.0, "b": 4.0, "c": 3.0, "d": 2.0}, SimpleNamespace(workers=1, device="cpu")
    assert durations.left(of_graph, seconds, [], COMPUTE) == 15
    assert durations.left(of_graph, seconds, [], alone) == 19
    assert durations.left(of_graph[1:], seconds, ["b"], COMPUTE) == 9, "a has ended"
    assert durations.left(of_graph, {"a": 10.0}, [], COMPUTE) is None


def test_a_bar_is_read():
    for read, count, total, seconds, more in (
        ((46, "120/260", 46), 120, 260, 40.0, {"unit": "step"}),
        ((56, "5.37G/9.66G", 6400), 5 << 30, 9 << 30, 8000.0, {"unit": "B", "unit_scale": True}),
        ((0, "0/260", None), 0, 260, 0.0, {"prefix": "a: b"}),
        (None, 12, None, 3.0, {"prefix": "shards"}),
    ):
        assert durations.of_bar(tqdm.format_meter(count, total, seconds, **more)) == read


def test_warnings_appear_above_the_table_and_what_the_last_line_says_does_not():
    console = Console(file=io.StringIO(), width=80)
    log = logging.Logger("of a flow")
    log.addHandler(live._Above(console))
    log.info("a stage begins")
    log.warning("regression: [b]accuracy[/b] from 0.5 to 0.3\x1b[2J")
    log.error("Finished in state Failed('a: a bug')")
    (line,) = console.file.getvalue().splitlines()
    assert "regression: [b]accuracy[/b] from 0.5 to 0.3" in line
    assert "\x1b" not in line


@pytest.mark.parametrize(("stop", "code"), [(Terminal.interrupt, 130), (Terminal.terminate, 143)])
def test_a_run_that_is_stopped_leaves_the_terminal_in_good_order_and_no_process(project, stop, code):
    (project.folder / "input.txt").write_text("bar a")
    terminal = Terminal([sys.executable, "-m", "flows.cli", "run"], project.folder, project.environment)
    row = r"^a +runs \d+:\d\d +25 % 2/8 ━+"
    shown = terminal.until(lambda text: re.search(row + r".*\d\.\d GiB$", text, re.M))
    assert "\n0 of 4 stages done, 3 wait\nlogs: .longtail/logs; in a browser: http://127.0.0.1:" in shown
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
        done = project.longtail("run")
        assert "4 ran" in done.stdout, done.stderr
