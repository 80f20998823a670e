"""All speed benchmarks, one after the other: their table is printed, and written to
docs/measured/benchmarks.md.

    .venv/bin/python -m benchmarks            # all: 20 minutes on two cores
    .venv/bin/python -m benchmarks dump lm    # these alone; the table keeps the other rows

Each benchmark runs in a process of its own. Rows stay on the page until their benchmark has
measured them anew, on the same machine; then the new row has the old one's ratio beside its own.
One that fails keeps its rows, says why, and ends the run with exit code 1.
"""

import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import measure
from pipelines.answering import latency
from pipelines.storage.atomic import atomic

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/measured/benchmarks.md"
BEGIN, END = "<!-- python -m benchmarks writes this table -->", "<!-- end of the table -->"
BENCHMARKS = (
    "dump", "sampler", "pageviews_speed", "corpus", "encoder_speed", "index_speed", "bm25_speed",
    "lm", "lsr_speed", "thresholds_speed",
)  # fmt: skip


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="of benchmarks; none: all of them")
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="tiny sizes, whose figures say nothing: does each benchmark work?")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(help="where to write the table; unless quick, docs/measured/benchmarks.md"),
    ] = None,
) -> None:
    if unknown := sorted({*(names or [])} - {*BENCHMARKS}):
        raise typer.BadParameter(f"{', '.join(unknown)}; expected of {', '.join(BENCHMARKS)}")
    page, commit, failed = page or (None if quick else PAGE), commit_of(ROOT), []
    kept = read(page, latency.machine()) if page else {}
    if kept is None and names:
        print(
            f"{page} has the figures of another machine, so these are not written to it",
            file=sys.stderr,
        )
        page = None
    chosen, lines = [name for name in BENCHMARKS if name in (names or BENCHMARKS)], kept or {}
    modules = {
        name: import_module(f"benchmarks.{name}") for name in chosen
    }  # once: each benchmark is a fork
    print("\n".join(measure.head()), flush=True)
    for number, name in enumerate(chosen, 1):
        print(f"{name}, {number} of {len(chosen)} ...", end="", file=sys.stderr, flush=True)
        try:
            run = measure.alone(partial(modules[name].rows, quick=quick))
        except Exception as error:
            failed.append(name)
            print(
                " failed:",
                repr(error),
                *getattr(error, "__notes__", ()),
                sep="\n",
                file=sys.stderr,
                flush=True,
            )
            continue
        print(f" {run.wall:.0f} s, of a core {run.cpu:.0f} s", file=sys.stderr, flush=True)
        lines[name] = measure.lines(name, run.result, commit, lines.get(name, ()))
        print("\n".join(lines[name]), flush=True)
        if page:
            write(page, lines)
    raise SystemExit(bool(failed))


def commit_of(root: Path) -> str:
    """The commit's first digits, with + where the code has been changed since."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=root, check=True, capture_output=True, text=True
        ).stdout.strip()

    return git("rev-parse", "--short=7", "HEAD") + "+" * bool(
        git("status", "-s", "benchmarks", "pipelines", "flows")
    )


def read(page: Path, machine: str) -> dict[str, list[str]] | None:
    """The lines of each benchmark on the page; None if they are of another machine."""
    table = page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    lines: dict[str, list[str]] = {}
    for line, name in re.findall(r"^(\| `(\w+)` \|.*)$", table, re.MULTILINE):
        if name in BENCHMARKS:
            lines.setdefault(name, []).append(line)
    return lines if not lines or f"Measured on {machine}." in table else None


def write(page: Path, lines: dict[str, list[str]]) -> None:
    """Put the table between the page's marks; the text around it stays."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    table = [*measure.head(), *(line for name in BENCHMARKS for line in lines.get(name, ()))]
    parts = [BEGIN, f"Measured on {latency.machine()}.", "\n".join(table), END]
    text = before + "\n\n".join(parts) + rest.partition(END)[2]
    with atomic(page) as path:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
