"""A terminal for tests: a command in a pseudo-terminal, and the text that its screen shows."""

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

CONTROL = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


class Screen:
    """The lines that a terminal shows whose programs go up, and erase a line before they write
    it anew.
    """

    def __init__(self) -> None:
        self.lines, self.row, self.cursor_hidden, self._rest = [""], 0, False, ""

    def feed(self, text: str) -> None:
        """Show what a program writes.

        AssertionError at a control that this terminal does not know.
        """
        text = self._rest + text
        cut = re.search(r"\x1b(\[[\d;?]*)?$", text)  # half a control: the rest is yet to come
        self._rest = cut[0] if cut else ""
        for match in CONTROL.finditer(text[: len(text) - len(self._rest)]):
            numbers, control = match[1], match[2]
            if match[0] == "\n":
                self.row += 1
                self.lines += [""] * (self.row == len(self.lines))
            elif control == "A":
                self.row = max(0, self.row - int(numbers or 1))
            elif control == "K":
                self.lines[self.row] = ""
            elif numbers == "?25":
                self.cursor_hidden = control == "l"
            elif not control:
                self.lines[self.row] += match[0].strip("\r")
            else:
                assert control == "m", f"an unknown control: {match[0]!r}"

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


class Terminal:
    """A command that runs in a pseudo-terminal, and its screen."""

    def __init__(self, command: list[str], cwd: Path, environment: dict[str, str]) -> None:
        self.screen = Screen()
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        environment = {**environment, "TERM": "xterm"}
        how = {"start_new_session": True, "preexec_fn": _have_terminal}
        self.process = subprocess.Popen(command, cwd=cwd, env=environment, **streams, **how)
        os.close(slave)

    def until(self, shown: Callable[[str], object], seconds: float = PATIENCE) -> str:
        """Wait until the screen's text is as it should be; returns that text. AssertionError if
        it never is.
        """
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
    """Make standard input the terminal that Ctrl-C comes from; a shell's background has it
    ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
