"""What each stage of the run at hand does now, and the live table of it that `longtail run` shows.

Above the table a line stays for each stage that has ended, and for each warning. Where there is no
terminal, Prefect's plain lines are the log.
"""

from __future__ import annotations

import logging
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows import graph
from pipelines import safe_text

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table as RichTable

# what became of a stage
UNCHANGED = "unchanged"
RESTORED = "restored from the cache"
RAN = "ran"
FAILED = "failed"

# what a stage does that has not ended
WAITS = "waits"
RUNS = "runs"
AWAY = "asks again"  # its server does not answer

STYLES = {RAN: "green", RESTORED: "green", FAILED: "red", AWAY: "yellow", RUNS: "cyan"}
OF_DVC = re.compile("Running stage '|> |(Generating|Updating) lock file |ERROR: ")
REPEATED = ("Finished in state ", "Crash detected!")  # Prefect's log says it, the last line too
REFRESHES_PER_SECOND = 2


@dataclass
class Work:
    """What one stage does."""

    state: str = WAITS
    began: float = 0.0  # seconds of time.monotonic; so is `ended`
    ended: float = 0.0
    last_line: str = ""  # of its output, or its progress bar
    record: dict[str, Any] | None = None  # to be logged, if it did its work or failed

    def begin(self) -> None:
        self.state = RUNS
        self.began = time.monotonic()
        self.last_line = ""

    def say(self, line: str) -> None:
        if not OF_DVC.match(line):
            self.last_line = line

    def end(self, state: str) -> None:
        self.state = state
        self.ended = time.monotonic()

    @property
    def clock(self) -> str:
        """For how long it works, or did, as 0:07 or 62:30; 0:00 if it never began."""
        if not self.began:
            return "0:00"
        seconds = round((self.ended or time.monotonic()) - self.began)
        return f"{seconds // 60}:{seconds % 60:02}"


WORK: dict[str, Work] = {}  # the stage's name -> its work; a push is called `push`
_shown: Table | None = None


def begin(stages: Iterable[str]) -> None:
    """A run of these stages begins."""
    WORK.clear()
    for stage in stages:
        WORK[stage] = Work()


def end(stage: str, state: str) -> None:
    """A stage has ended in this state; on a terminal a line says so, which stays."""
    WORK[stage].end(state)
    if _shown and state != UNCHANGED:
        _shown.tell(stage, state, STYLES[state])


@contextmanager
def showing(stages: list[str], page: str) -> Iterator[None]:
    """Show the table, with Prefect's `page`, during the block, if there is a terminal.

    Prefect must be imported before.
    """
    global _shown
    from rich.console import Console

    begin(stages)
    console = Console(highlight=False)
    if not (sys.stdout.isatty() and sys.stderr.isatty()) or console.is_dumb_terminal:
        yield
        return

    _shown = Table(console, page)
    loggers = [logging.getLogger(name) for name in ("", "prefect")]
    handlers = [logger.handlers for logger in loggers]
    for logger in loggers:
        logger.handlers = [_AboveTable(console)]
    # Prefect ends the flow on SIGTERM and then sends it again, which would end the process at once
    on_termination = signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        _shown.live.start()
        setattr(sys.stderr, "isatty", _no_terminal)  # noqa: B010  else DVC draws bars
        yield
    finally:
        signal.signal(signal.SIGTERM, on_termination)
        for logger, before in zip(loggers, handlers, strict=True):
            logger.handlers = before
        stop()


def _no_terminal() -> bool:
    return False


def _exit_on_signal(number: int, _frame: Any) -> None:
    sys.exit(128 + number)


def stop() -> None:
    """Take the table away, if there is one; a process that ends by os._exit calls this before."""
    global _shown
    table = _shown
    _shown = None
    if not table:
        return
    for stage, work in WORK.items():
        if work.state in (RUNS, AWAY):
            table.tell(stage, "interrupted", "yellow")
    table.live.stop()


class _AboveTable(logging.Handler):
    """Prints warnings above the table."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not message.startswith(REPEATED):
            self.console.print(safe_text.line(message), style="yellow", markup=False)


class Table:
    """A row for each stage that runs or failed, and a line with the counts."""

    def __init__(self, console: Console, page: str) -> None:
        from rich.live import Live

        self.console = console
        self.page = page
        self.live = Live(
            console=console,
            get_renderable=self.drawn,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
        )

    def tell(self, stage: str, word: str, style: str) -> None:
        """Print a line on what became of a stage, which stays."""
        from rich.text import Text

        work = WORK[stage]
        width = max(map(len, WORK))
        line = Text.assemble(f"{stage:{width}} ", (word, style), f" {work.clock}")
        if work.state == FAILED:
            line.append(f": {work.last_line}")
        self.console.print(line)

    def drawn(self) -> Group:
        """The table as it is now."""
        from rich.console import Group
        from rich.text import Text

        links = f"logs: {graph.LOGS}; in a browser: {self.page}"
        return Group(
            self._rows(),
            Text(_counts()),
            Text(links, "dim", no_wrap=True, overflow="ellipsis"),
        )

    def _rows(self) -> RichTable:
        from rich.table import Table
        from rich.text import Text

        narrow: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
        table = Table(
            box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold"
        )
        table.add_column("stage", max_width=max(16, self.console.width * 2 // 5), **narrow)
        table.add_column("state", min_width=10, **narrow)
        table.add_column("progress", ratio=1, min_width=8, **narrow)

        shown = [stage for stage, work in WORK.items() if work.state in (RUNS, AWAY, FAILED)]
        for stage in sorted(shown, key=lambda stage: WORK[stage].began):
            work = WORK[stage]
            state = Text(f"{work.state} {work.clock}", STYLES[work.state])
            table.add_row(Text(stage), state, Text(work.last_line))
        return table


def _counts() -> str:
    """How many stages are done, by what became of them, and how many wait."""
    states = Counter(work.state for work in WORK.values())
    ended = {kind: states[kind] for kind in (RAN, RESTORED, UNCHANGED) if states[kind]}
    text = f"{sum(ended.values())} of {len(WORK)} stages done"
    if ended:
        counts = [f"{count} {kind}" for kind, count in ended.items()]
        text += f" ({', '.join(counts)})"
    if states[WAITS]:
        text += f", {states[WAITS]} wait"
    return text
