"""How the speed of one commit compares with another's, row by row of the speed benchmarks.

    .venv/bin/python -m benchmarks.commits OLD NEW dump thresholds_speed > speeds.csv

Each commit's own benchmarks run in a copy of the project, the two commits in turns. A row is how
many times as fast as the same other program each commit is, at its best, so a machine that is busy
now and then hardly matters. Rows that only one commit has are listed without a ratio.
"""

import csv
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.project_copy import ROOT

HEAD = ["benchmark", "work", "beside", "old", "new", "new / old"]
# Counts in the name of a work, which may change from commit to commit.
COUNTS = re.compile(r"; .* tokens read.*|, [\d,]+ lines|, recall@10 [\d.]+")
Row = tuple[str, str, str]  # benchmark, work without COUNTS, beside what


def main(
    old: Annotated[str, typer.Argument(help="a commit")],
    new: Annotated[str, typer.Argument(help="another one")],
    names: Annotated[list[str], typer.Argument(help="of benchmarks that both commits have")],
    rounds: Annotated[int, typer.Option(min=1, help="turns of each commit")] = 3,
) -> None:
    best: dict[str, dict[Row, float]] = {old: {}, new: {}}
    with tempfile.TemporaryDirectory() as folder:
        copies = {commit: copy_of(commit, Path(folder)) for commit in best}
        for number in range(rounds):
            for commit, copy in copies.items():
                print(f"{commit}, turn {number + 1} of {rounds}", file=sys.stderr, flush=True)
                for row, times in measured(copy, names):
                    best[commit][row] = max(times, best[commit].get(row, 0.0))

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(HEAD)
    for row in best[new] | best[old]:
        times_old = best[old].get(row)
        times_new = best[new].get(row)
        ratio = ""
        if times_old and times_new:
            ratio = f"{times_new / times_old:.2f}"
        cells = ["" if times is None else f"{times:.3g}" for times in (times_old, times_new)]
        writer.writerow([*row, *cells, ratio])


def copy_of(commit: str, folder: Path) -> Path:
    """A copy of the project at a commit."""
    copy = folder / commit
    subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    subprocess.run(["git", "checkout", "-q", "--detach", commit], cwd=copy, check=True)
    return copy


def measured(copy: Path, names: list[str]) -> Iterator[tuple[Row, float]]:
    """How many times as fast a copy's benchmarks say that it is."""
    environment = os.environ | {"PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "benchmarks", *names]
    called = subprocess.run(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, check=True, text=True
    )
    yield from parse(called.stdout)


def parse(printed: str) -> Iterator[tuple[Row, float]]:
    """The rows of a printed table: CSV, or lines of Markdown, as older commits print them."""
    for line in printed.splitlines():
        if line.startswith("| `"):
            cells = line.strip("| ").split(" | ")
        else:
            cells = next(csv.reader([line]))
        if len(cells) > 5 and (times := re.match(r"[\d.,]+", cells[5])):
            work = COUNTS.sub("", cells[1])
            row = (cells[0].strip("`"), work, cells[2].replace("`", ""))
            yield row, float(times[0].replace(",", ""))


if __name__ == "__main__":
    typer.run(main)
