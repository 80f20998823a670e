"""What each stage of the run at hand does now. The flow writes it down, and live.py shows it on a terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

UNCHANGED, RESTORED, RAN = "unchanged", "restored from the cache", "ran"  # what became of a stage
WAITS, RUNS, AWAY, FAILED = "waits", "runs", "asks again", "failed"
OF_DVC = re.compile("Running stage '|> |(Generating|Updating) lock file |ERROR: ")


@dataclass
class Work:
    """What one stage does."""

    state: str = WAITS
    began: float = 0.0  # in seconds of time.monotonic, as `ended`
    ended: float = 0.0
    pid: int | None = None  # of DVC, whose child does the work
    said: str = ""  # its last line, or its progress bar's
    said_at: float = 0.0
    record: dict[str, Any] | None = None  # what the stage left to be logged, if it did its work or failed

    def begin(self) -> None:
        self.state, self.began, self.said = RUNS, time.monotonic(), ""

    def say(self, line: str) -> None:
        if not OF_DVC.match(line):
            self.said, self.said_at = line, time.monotonic()

    def end(self, state: str) -> None:
        self.state, self.ended, self.pid = state, time.monotonic(), None

    @property
    def seconds(self) -> float:
        """How long it works, or did; 0 if it never began."""
        return (self.ended or time.monotonic()) - self.began if self.began else 0.0


WORK: dict[str, Work] = {}  # by the stage's name; a push is the work `push`


def begin(stages: Iterable[str]) -> None:
    """A run of these stages begins."""
    WORK.clear()
    WORK.update({stage: Work() for stage in stages})
