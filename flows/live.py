"""What each stage of the run at hand does now, and the live table of it, which `longtail run` shows on a terminal.

Above the table a line stays for each stage that has ended, and for each warning. Where there is no terminal, Prefect's
plain lines are the log.
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

UNCHANGED, RESTORED, RAN = "unchanged", "restored from the cache", "ran"  # what became of a stage
WAITS, RUNS, AWAY, FAILED = "waits", "runs", "asks again", "failed"
STYLES = {RAN: "green", RESTORED: "green", FAILED: "red", AWAY: "yellow", RUNS: "cyan"}
OF_DVC = re.compile("Running stage '|> |(Generating|Updating) lock file |ERROR: ")
SAID_AGAIN = (
    "Finished in state ",
    "Crash detected!",
)  # what Prefect logs, and a command's last line has too


@dataclass
class Work:
    """What one stage does."""

    state: str = WAITS
    began: float = 0.0  # seconds of time.monotonic; so is `ended`
    ended: float = 0.0
    said: str = ""  # its last line, or its progress bar
    record: dict[str, Any] | None = (
        None  # what the stage left to be logged, if it did its work or failed
    )

    def begin(self) -> None:
        self.state, self.began, self.said = RUNS, time.monotonic(), ""

    def say(self, line: str) -> None:
        if not OF_DVC.match(line):
            self.said = line

    def end(self, state: str) -> None:
        self.state, self.ended = state, time.monotonic()

    @property
    def clock(self) -> str:
        """For how long it works, or did, as 0:07 or 62:30; 0:00 if it never began."""
        seconds = (self.ended or time.monotonic()) - self.began if self.began else 0.0
        return "{}:{:02}".format(*divmod(round(seconds), 60))


WORK: dict[str, Work] = {}  # the stage's name -> its work; a push is called `push`
_shown: Table | None = None


def begin(stages: Iterable[str]) -> None:
    """A run of these stages begins."""
    WORK.clear()
    WORK.update({stage: Work() for stage in stages})


def end(stage: str, state: str) -> None:
    """A stage has ended in this state; on a terminal a line says so, which stays."""
    WORK[stage].end(state)
    if _shown and state != UNCHANGED:
        _shown.tell(stage, state, STYLES[state])


@contextmanager
def showing(stages: list[str], page: str) -> Iterator[None]:
    """Show the table, with Prefect's `page`, during the block, if there is a terminal. Prefect is imported before."""
    global _shown
    from rich.console import Console

    begin(stages)
    console = Console(highlight=False)
    if not (sys.stdout.isatty() and sys.stderr.isatty()) or console.is_dumb_terminal:
        yield
        return
    _shown = Table(console, page)
    handlers = {logger: logger.handlers for logger in map(logging.getLogger, ("", "prefect"))}
    for logger in handlers:
        logger.handlers = [_Above(console)]
    # Prefect ends the flow on SIGTERM and then sends it again, which without this would end the process at once
    on_termination = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        _shown.live.start()
        sys.stderr.isatty = lambda: False  # else DVC draws bars
        yield
    finally:
        signal.signal(signal.SIGTERM, on_termination)
        for logger, before in handlers.items():
            logger.handlers = before
        stop()


def stop() -> None:
    """Take the table away, if there is one; a process that ends by os._exit calls this before."""
    global _shown
    table, _shown = _shown, None
    if table:
        for stage, work in WORK.items():
            if work.state in (RUNS, AWAY):
                table.tell(stage, "interrupted", "yellow")
        table.live.stop()


class _Above(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        if not (message := record.getMessage()).startswith(SAID_AGAIN):
            self.console.print(safe_text.line(message), style="yellow", markup=False)


class Table:
    """A row for each stage that runs or failed, and a line with the counts."""

    def __init__(self, console: Console, page: str) -> None:
        from rich.live import Live

        self.console, self.page = console, page
        self.live = Live(
            console=console, get_renderable=self.drawn, refresh_per_second=2, transient=True
        )

    def tell(self, stage: str, word: str, style: str) -> None:
        """Print a line on what became of a stage, which stays."""
        from rich.text import Text

        work, width = WORK[stage], max(map(len, WORK))
        said = f": {work.said}" if work.state == FAILED else ""
        self.console.print(
            Text.assemble(f"{stage:{width}} ", (word, style), f" {work.clock}{said}")
        )

    def drawn(self) -> Group:
        """The table as it is now."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        narrow = {"no_wrap": True, "overflow": "ellipsis"}
        table = Table(
            box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold"
        )
        table.add_column("stage", max_width=max(16, self.console.width * 2 // 5), **narrow)
        table.add_column("state", min_width=10, **narrow)
        table.add_column("progress", ratio=1, min_width=8, **narrow)
        works = [
            (stage, work) for stage, work in WORK.items() if work.state in (RUNS, AWAY, FAILED)
        ]
        for stage, work in sorted(works, key=lambda each: each[1].began):
            table.add_row(
                Text(stage), Text(f"{work.state} {work.clock}", STYLES[work.state]), Text(work.said)
            )
        states = Counter(work.state for work in WORK.values())
        kinds = [f"{states[kind]} {kind}" for kind in (RAN, RESTORED, UNCHANGED) if states[kind]]
        done = states[RAN] + states[RESTORED] + states[UNCHANGED]
        counts = f"{done} of {len(WORK)} stages done" + f" ({', '.join(kinds)})" * bool(kinds)
        counts += f", {states[WAITS]} wait" * bool(states[WAITS])
        return Group(
            table,
            Text(counts),
            Text(f"logs: {graph.LOGS}; in a browser: {self.page}", "dim", **narrow),
        )
