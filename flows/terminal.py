"""What all commands share: the folder that they were called from, and how a line reaches the terminal."""

import re
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import typer

from pipelines import safe_text
from pipelines.errors import LongtailError

CALLED_FROM = (
    Path.cwd()
)  # paths on the command line are relative to it; `cli.main` goes to the project's root
REPORT = Path("data/report/index.html")


def show(line: str) -> None:
    """Print a line that may hold text from elsewhere."""
    print(safe_text.line(line))


def as_called(text: str) -> str:
    """`text` with its commands as they were typed: .venv/bin/longtail, where a plain longtail would not be found."""
    typed, found = Path(sys.argv[0]), shutil.which("longtail")
    if (
        typed.name != "longtail"
        or len(typed.parts) == 1
        or (found and (CALLED_FROM / typed).samefile(found))
    ):
        return text
    return re.sub(
        r"(^ +|`)longtail(?= [a-z])", lambda match: match[1] + shlex.quote(sys.argv[0]), text
    )


def questions() -> Iterator[str]:
    """What a person types at a prompt until Ctrl-D, or the lines of standard input; without empty lines."""
    sys.stdin.reconfigure(errors="replace")
    lines = sys.stdin
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  its import gives `input` arrow keys, and earlier lines
        lines = iter(partial(input, "? " * sys.stdout.isatty()), None)
    with suppress(EOFError):
        yield from filter(str.strip, lines)
    if lines is not sys.stdin:
        print()  # Ctrl-D left the cursor behind the prompt


def check_folder(out: Path) -> None:
    """Raise LongtailError where the folder to write into, or one above it, is a file."""
    if file := next((path for path in (out, *out.parents) if path.is_file()), None):
        raise LongtailError(
            f"--out {out}: {file} is a file, expected a folder or nothing there; name another"
        )


def until_interrupted(addresses: Sequence[tuple[str, str]], *, show: bool) -> None:
    """Print a line for each (name, address), open the first in a browser with `show`, and wait for the end."""
    width = max(len(name) for name, _ in addresses) + 1
    try:
        for name, address in addresses:
            print(f"{f'{name}:':{width}} {address}")
        print("(Ctrl-C ends it)", flush=True)
        if show:
            typer.launch(addresses[0][1])
        threading.Event().wait()
    except KeyboardInterrupt:
        print("closed")
