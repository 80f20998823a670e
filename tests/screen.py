"""A terminal for tests: a command in a pseudo-terminal, and the text that its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

from waiting import PATIENCE

CONTROL = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]|\x1b[^\[]")


class Screen:
    """The lines that a terminal of so many columns shows, with those that went up out of it."""

    def __init__(self, columns: int, rows: int = 24) -> None:
        self.columns, self.rows = columns, rows
        self.lines, self.row, self.column = [""], 0, 0
        self.cursor_hidden = False
        self._rest = ""

    def feed(self, text: str) -> None:
        """Show what a program writes. AssertionError at a control that this terminal does not know."""
        text = self._rest + text
        cut = re.search(r"\x1b(\[[\d;?]*)?$", text)  # half a control: the rest is yet to come
        self._rest = cut[0] if cut else ""
        for match in CONTROL.finditer(text[: len(text) - len(self._rest)]):
            self._do(match[0], match[1], match[2])

    def _do(self, text: str, numbers: str | None, control: str | None) -> None:
        if text == "\r":
            self.column = 0
        elif text == "\n":
            self._down()
        elif not text.startswith("\x1b"):
            if self.column == self.columns:
                self.column = 0
                self._down()
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + text + line[self.column + 1 :]
            self.column += 1
        elif control == "A":
            top = max(0, len(self.lines) - self.rows)
            self.row = max(top, self.row - int(numbers or 1))
        elif control == "K":
            assert numbers == "2", text
            self.lines[self.row] = ""
        elif numbers == "?25":
            self.cursor_hidden = control == "l"
        else:
            assert control == "m", f"an unknown control: {text!r}"

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


class Terminal:
    """A command that runs in a pseudo-terminal, and its screen."""

    def __init__(self, command: list[str], cwd: Path, environment: dict[str, str], columns: int = 80) -> None:
        self.screen = Screen(columns)
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.screen.rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environment, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_have_terminal,
        )
        os.close(slave)

    def until(self, shown: Callable[[str], object], seconds: float = PATIENCE) -> str:
        """Wait until the screen's text is as it should be; returns that text. AssertionError if it never is."""
        deadline = time.monotonic() + seconds
        while not shown(self.screen.text):
            assert self._read(deadline), f"never shown:\n{self.screen.text}"
        return self.screen.text

    def end(self, seconds: float = PATIENCE) -> int:
        """Read all that is still to come; returns the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        os.close(self.master)
        return self.process.wait(seconds)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self.master, b"\x03")

    def terminate(self) -> None:
        """Have the system ask the command to end, as at a shutdown."""
        self.process.terminate()

    def _read(self, deadline: float) -> bool:
        """Whether there was more to read."""
        ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"nothing more came:\n{self.screen.text}"
        try:
            read = os.read(self.master, 1 << 16)
        except OSError:  # the command and all its children have closed the terminal
            return False
        self.screen.feed(read.decode(errors="replace"))
        return bool(read)


def _have_terminal() -> None:
    """Make standard input the terminal that Ctrl-C comes from; a shell's background has it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
