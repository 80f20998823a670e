"""The live table of `longtail run` on a terminal: what runs and how far it is, what failed, how much is left.

Above the table a line stays for each stage that has ended, and for each warning. All that stages say is in
.longtail/logs. Where there is no terminal, as in a pipe, Prefect's plain lines are the log.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

from flows import board, durations, graph
from pipelines import neutral, params

if TYPE_CHECKING:
    from rich.console import Console, Group

REDRAW_SECONDS = 0.5
MEMORY_SECONDS = 5  # reading it takes the system milliseconds for each GiB
WIDE = 60  # columns; a narrower table has no times and memory
SAID_AGAIN = ("Finished in state ", "Crash detected!")  # what Prefect logs, and a command's last line has too
STYLES = {board.RAN: "green", board.RESTORED: "green", board.FAILED: "red", board.AWAY: "yellow"}

_shown: Table | None = None


@contextmanager
def showing(
    stages: list[graph.Stage], changed: Mapping[str, list[str]], compute: params.Compute, page: str
) -> Iterator[None]:
    """Show the table during the block, if there is a terminal; `page` is where Prefect shows the run.

    Call this when Prefect is imported. `changed` is as `graph.read` gives it.
    """
    global _shown
    from rich.console import Console

    console = Console(highlight=False)
    if not (sys.stdout.isatty() and sys.stderr.isatty()) or console.is_dumb_terminal:
        yield
        return
    table = _shown = Table(console, stages, changed, compute, page)
    loggers = [logging.getLogger(name) for name in ("", "prefect")]
    handlers = [logger.handlers for logger in loggers]
    for logger in loggers:
        logger.handlers = [_Above(console)]
    # Prefect ends the flow on SIGTERM and then sends it again, which without this would end the process at once
    on_termination = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        table.begin()
        yield
    finally:
        signal.signal(signal.SIGTERM, on_termination)
        for logger, before in zip(loggers, handlers, strict=True):
            logger.handlers = before
        stop()


def stop() -> None:
    """Take the table away, if there is one; a process that ends by os._exit calls this before."""
    global _shown
    table, _shown = _shown, None
    if table:
        table.end()


class _Above(logging.Handler):
    """Prints warnings and errors above the table."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not message.startswith(SAID_AGAIN):
            self.console.print(neutral.line(message), style="yellow", markup=False)


class Table:
    """Draws itself again and again in a thread."""

    def __init__(
        self,
        console: Console,
        stages: list[graph.Stage],
        changed: Mapping[str, list[str]],
        compute: params.Compute,
        page: str,
    ) -> None:
        from rich.live import Live

        self.stages, self.changed, self.compute, self.page = stages, changed, compute, page
        self.live = Live(console=console, auto_refresh=False, transient=True, redirect_stderr=False)
        self.stderr = sys.stderr
        self.earlier: dict[str, float] = {}
        self.told: set[str] = set()
        self.memory: dict[str, int] = {}
        self.states: dict[str, str] = {}  # those that `forecast` was made for
        self.forecast: float | None = None
        self.forecast_at = 0.0
        self.measured = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def begin(self) -> None:
        from rich.file_proxy import FileProxy

        self.live.start()
        sys.stderr = FileProxy(self.live.console, self.stderr)  # what is written there appears above the table
        sys.stderr.isatty = lambda: False  # DVC's bars do not
        self.earlier = durations.earlier(self.stages, self.changed)
        self.thread.start()

    def end(self) -> None:
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()
        self._tell(self._ended())
        self._tell(self._in(board.RUNS, board.AWAY), "interrupted")
        self.live.stop()
        sys.stderr = self.stderr

    def _follow(self) -> None:
        while not self.over.wait(REDRAW_SECONDS):
            if time.monotonic() > self.measured + MEMORY_SECONDS:
                self.memory = {stage: memory(work.pid) for stage, work in self._in(board.RUNS) if work.pid}
                self.measured = time.monotonic()
            ended = self._ended()
            self.live.update(self.drawn())
            self._tell(ended)
            self.live.refresh()

    def _in(self, *states: str) -> list[tuple[str, board.Work]]:
        works = [(name, work) for name, work in (self._works() | board.WORK).items() if work.state in states]
        return sorted(works, key=lambda each: each[1].began)

    def _works(self) -> dict[str, board.Work]:
        return {stage.name: board.WORK.get(stage.name) or board.Work() for stage in self.stages}

    def _ended(self) -> list[tuple[str, board.Work]]:
        """The stages that have done their work, or failed, and have no line yet."""
        ended = self._in(board.RAN, board.RESTORED, board.FAILED)
        return sorted((each for each in ended if each[0] not in self.told), key=lambda each: each[1].ended)

    def _tell(self, stages: list[tuple[str, board.Work]], word: str = "") -> None:
        """Print a line for each of these stages, which stays; `word` is what became of them."""
        from rich.text import Text

        width = max(len(stage.name) for stage in self.stages)
        for stage, work in stages:
            self.told.add(stage)
            kind = (word or work.state, STYLES.get(work.state, "yellow"))
            said = f": {work.said}" if work.state == board.FAILED else ""
            self.live.console.print(Text.assemble(f"{stage:{width}} ", kind, f" {durations.clock(work.seconds)}{said}"))

    def drawn(self) -> Group:
        """The table as it is now, and a line with the counts."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        narrow = {"no_wrap": True, "overflow": "ellipsis"}
        table.add_column("stage", max_width=max(16, self.live.console.width * 2 // 5), **narrow)
        table.add_column("state", min_width=10, **narrow)
        table.add_column("progress", ratio=1, min_width=8, **narrow)
        if self.live.console.width >= WIDE:
            table.add_column("time left", justify="right", min_width=9, **narrow)
            table.add_column("memory", justify="right", min_width=8, **narrow)
        for stage, work in self._in(board.RUNS, board.AWAY):
            size = self.memory.get(stage)
            memory = f"{size / (1 << 30):.1f} GiB" if size and work.state == board.RUNS else ""
            state = Text(f"{work.state} {durations.clock(work.seconds)}", STYLES.get(work.state, "cyan"))
            cells = [Text(stage), state, _progress(work.said), self._left(stage, work), memory]
            table.add_row(*cells[: len(table.columns)])
        for stage, work in self._in(board.FAILED):
            table.add_row(Text(stage), Text(work.state, "red"), Text(work.said))
        where = Text(f"logs: {graph.LOGS}; in a browser: {self.page}", "dim", **narrow)
        return Group(table, Text(self._counts()), where)

    def _left(self, stage: str, work: board.Work) -> str:
        """By the stage's earlier time; without it, or after it, by its bar, which may not be its last one."""
        if work.seconds < self.earlier.get(stage, 0.0):
            return durations.clock(self.earlier[stage] - work.seconds)
        bar = durations.of_bar(work.said)
        seconds = bar[2] - (time.monotonic() - work.said_at) if bar and bar[2] else 0.0
        return f"bar {durations.clock(seconds)}" if seconds > 0 else ""

    def _counts(self) -> str:
        states = [work.state for work in self._works().values()]
        done = [(kind, states.count(kind)) for kind in (board.RAN, board.RESTORED, board.UNCHANGED)]
        line = f"{sum(count for _, count in done)} of {len(states)} stages done"
        if parts := ", ".join(f"{count} {kind}" for kind, count in done if count):
            line += f" ({parts})"
        if waiting := states.count(board.WAITS):
            line += f", {waiting} {'wait' if waiting > 1 else 'waits'}"
        if (seconds := self._seconds_left()) and seconds > 0:
            line += f"; up to {durations.clock(seconds)} left by earlier runs"
        return line

    def _seconds_left(self) -> float | None:
        """Of the whole run, if each stage that is not up to date has an earlier time."""
        states = {name: work.state for name, work in self._works().items()}
        if states != self.states:
            self.states, self.forecast_at = states, time.monotonic()
            self.forecast = self._forecast(states)
        return self.forecast and self.forecast - (time.monotonic() - self.forecast_at)

    def _forecast(self, states: Mapping[str, str]) -> float | None:
        """As `_seconds_left`, from now on. With 50 stages it takes 20 milliseconds."""
        if {board.AWAY, board.FAILED} & set(states.values()):
            return None
        behind, works = graph.behind(self.stages, self.changed), self._works()
        remaining = [stage for stage in self.stages if states[stage.name] in (board.WAITS, board.RUNS)]
        times = {stage.name: 0.0 for stage in remaining if stage.name not in behind} | {
            stage.name: max(0.0, self.earlier[stage.name] - works[stage.name].seconds)
            for stage in remaining
            if stage.name in behind and stage.name in self.earlier
        }
        running = [stage.name for stage in remaining if states[stage.name] == board.RUNS]
        return durations.left(remaining, times, running, self.compute)


def _progress(said: str):
    from rich.text import Text

    if not (bar := durations.of_bar(said)):
        return Text(said, "dim")
    percent, count, _ = bar
    full = percent // 10
    return Text.assemble(f"{percent:2} % {count} ", ("━" * full, "cyan"), ("━" * (10 - full), "dim"))


def memory(pid: int) -> int:
    """The bytes of a process and its children; what forked processes share counts once, where the system says so."""
    total = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                info = each.memory_full_info()
                total += getattr(info, "pss", info.rss)
    return total
