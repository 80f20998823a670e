"""What all commands share: the folder they were called from, and lines for the terminal."""

import io
import re
import shlex
import shutil
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import typer

from pipelines import safe_text
from pipelines.errors import LongtailError

# Paths on the command line are relative to it; `cli.main` goes to the project's root.
CALLED_FROM = Path.cwd()
REPORT = Path("data/report/index.html")


def show(line: str) -> None:
    """Print a line that may hold text from elsewhere."""
    print(safe_text.line(line))


def show_lines(lines: Iterable[str]) -> None:
    """Print lines that may hold text from elsewhere, each as soon as it is there."""
    for line in lines:
        show(line)


def as_called(text: str) -> str:
    """`text` with its commands as they were typed.

    A command is .venv/bin/longtail where a plain longtail would not be found.
    """
    typed = Path(sys.argv[0])
    if typed.name != "longtail" or len(typed.parts) == 1:
        return text
    found = shutil.which("longtail")
    if found and (CALLED_FROM / typed).samefile(found):
        return text

    def with_path(match: re.Match) -> str:
        return match[1] + shlex.quote(sys.argv[0])

    return re.sub(r"(^ +|`)longtail(?= [a-z])", with_path, text)


def questions() -> Iterator[str]:
    """What a person types until Ctrl-D, or the lines of standard input, but no empty ones."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    if not sys.stdin.isatty():
        yield from filter(str.strip, sys.stdin)
        return

    with suppress(ImportError):
        import readline  # noqa: F401  its import gives `input` arrow keys, and earlier lines
    prompt = "? " if sys.stdout.isatty() else ""
    with suppress(EOFError):
        while True:
            line = input(prompt)
            if line.strip():
                yield line
    print()  # Ctrl-D left the cursor behind the prompt


def check_folder(out: Path) -> None:
    """Raise LongtailError where the folder to write into, or one above it, is a file."""
    for path in (out, *out.parents):
        if path.is_file():
            raise LongtailError(
                f"--out {out}: {path} is a file, expected a folder or nothing there; name another"
            )


def open_page(url: str) -> None:
    """Open a page in a browser; a line says where there is none."""
    if shutil.which("xdg-open") or shutil.which("open"):
        typer.launch(url)
    elif not webbrowser.open(url):
        print(f"no browser was found; open {url} in one")


def take_termination_for_interrupt() -> None:
    """Have SIGTERM act as Ctrl-C, so that what the command started ends with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def until_interrupted(addresses: Sequence[tuple[str, str]], *, show: bool) -> None:
    """Print each (name, address), open the first in a browser with `show`, and wait for Ctrl-C."""
    width = max(len(name) for name, _ in addresses) + 1
    try:
        for name, address in addresses:
            label = f"{name}:"
            print(f"{label:{width}} {address}")
        print("(Ctrl-C ends it)")
        if show:
            open_page(addresses[0][1])
        threading.Event().wait()
    except KeyboardInterrupt:
        print("closed")
