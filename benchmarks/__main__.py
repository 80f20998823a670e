"""All speed benchmarks, one after the other: their table is printed, and written to
docs/measured/tables/benchmarks-speed.csv.

    .venv/bin/python -m benchmarks            # all
    .venv/bin/python -m benchmarks dump lm    # these alone; the table keeps the other rows

Each benchmark runs in a process of its own. Rows stay in the table until their benchmark has
measured them anew, on the same machine; then the new row has the old one's ratio beside its own.
One that fails keeps its rows, says why, and ends the run with exit code 1.
"""

import csv
import gc
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import measure
from benchmarks.project_copy import write_csv

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs/measured/tables/benchmarks-speed.csv"
BENCHMARKS = ("dump", "encoder_speed", "index_speed", "bm25_speed", "lm", "thresholds_speed")


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="of benchmarks; none: all of them")
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="tiny sizes, whose figures say nothing: does each benchmark work?")
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option(
            help="CSV file of the table; unless quick, docs/measured/tables/benchmarks-speed.csv"
        ),
    ] = None,
) -> None:
    unknown = sorted(set(names or []) - set(BENCHMARKS))
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}; expected of {', '.join(BENCHMARKS)}")
    if table is None and not quick:
        table = TABLE
    machine = measure.machine()
    rows: dict[str, list[list[str]]] = {}
    if table:
        rows_of_machine = read(table, machine)
        if rows_of_machine is not None:
            rows = rows_of_machine
        elif names:
            print(
                f"{table} has the figures of another machine, so these are not written to it",
                file=sys.stderr,
            )
            table = None

    chosen = [name for name in BENCHMARKS if name in (names or BENCHMARKS)]
    # Imported once, as each benchmark is a fork. Frozen, so that no fork spends time looking for
    # unused objects among these modules, most of which a stage does not import.
    modules = {name: import_module(f"benchmarks.{name}") for name in chosen}
    gc.freeze()
    commit = commit_of(ROOT)
    has_failed = False
    print_rows([measure.HEAD])
    for number, name in enumerate(chosen, 1):
        print(f"{name}, {number} of {len(chosen)} ...", end="", file=sys.stderr, flush=True)
        try:
            run = measure.alone(partial(modules[name].rows, quick=quick))
        except Exception as error:
            has_failed = True
            notes = getattr(error, "__notes__", ())
            lines = (" failed:", repr(error), *notes)
            print(*lines, sep="\n", file=sys.stderr, flush=True)
            continue
        print(f" {run.wall:.0f} s, of a core {run.cpu:.0f} s", file=sys.stderr, flush=True)
        before = rows.get(name, [])
        rows[name] = measure.table_rows(name, run.result, commit, machine, before)
        print_rows(rows[name])
        if table:
            write(table, rows)
    raise SystemExit(has_failed)


def print_rows(rows: Iterable[list[str]]) -> None:
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
    sys.stdout.flush()


def commit_of(root: Path) -> str:
    """The commit's first digits, with + where the code has been changed since."""
    commit = git(root, "rev-parse", "--short=7", "HEAD")
    is_changed = git(root, "status", "-s", "benchmarks", "pipelines", "flows")
    return f"{commit}+" if is_changed else commit


def git(root: Path, *words: str) -> str:
    output = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return output.stdout.strip()


def read(table: Path, machine: str) -> dict[str, list[list[str]]] | None:
    """The rows of each benchmark in the table; None if they are of another machine."""
    rows: dict[str, list[list[str]]] = {}
    if not table.is_file():
        return rows
    with table.open(encoding="utf-8", newline="") as file:
        _, *in_order = csv.reader(file)
    for row in in_order:
        if row[-1] != machine:
            return None
        if row[0] in BENCHMARKS:
            rows.setdefault(row[0], []).append(row)
    return rows


def write(table: Path, rows: dict[str, list[list[str]]]) -> None:
    """Write the rows of each benchmark in the order of BENCHMARKS."""
    in_order = []
    for name in BENCHMARKS:
        in_order += rows.get(name, [])
    write_csv(table, measure.HEAD, in_order)


if __name__ == "__main__":
    typer.run(main)
