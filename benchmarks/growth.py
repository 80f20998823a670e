"""How cost grows: each stage up to the indexes at 1, 10 and 100 times the input, with its slopes.

    .venv/bin/python -m benchmarks.growth --folder /tmp/growth --out docs/measured/tables/benchmarks-growth.csv

The input is the sample world with so many times the entities and texts, on one core. Time is the
stage's CPU seconds beyond those of its smallest input, which are mostly imports, and memory the
stage's peak. A slope is the power of the input's size that the cost grew with from the second size
to the third: 1 is linear, 0 flat.
"""

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.project_copy import clone, dvc_stages, write_csv

FACTORS = (1, 10, 100)
SMALLEST = {
    "entities": 200,
    "lm_documents": 3_000,
    "questions": 100,
}  # there are also five Pile documents an entity
STAGES = (
    "code", "fetch", "tokenizer", "entities", "popularity", "term_frequency", "triples", "questions", "exposure",
    "chunk", "base_retriever", "index", "index_bm25",
)  # fmt: skip


def measure(project: Path, command: str) -> tuple[float, float]:
    """CPU seconds and peak memory (MB) of a stage's process and of the processes that it
    started and waited for.
    """
    words, nothing = shlex.split(command), subprocess.DEVNULL
    process = subprocess.Popen(words, cwd=project, stdout=nothing, stderr=subprocess.PIPE)
    said = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command}: {said.strip().splitlines()[-1]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    ) / 1e6


def run(folder: Path, factor: int) -> dict[str, tuple[float, float]]:
    """Each stage's CPU seconds and peak memory at `factor` times the smallest input."""
    kept = folder / f"{factor}.json"
    if kept.is_file():
        return json.loads(kept.read_text())
    world = {name: factor * number for name, number in SMALLEST.items()}
    project = clone(
        folder / str(factor), "sample", world=world, compute={"threads": 1, "workers": 1}
    )
    found = {}
    for stage in dvc_stages(project):
        if (name := stage.name).partition("@")[0] in STAGES:
            found[name] = measure(project, stage.cmd)
            print(
                f"{factor}x {name}: {found[name][0]:.1f} s, {found[name][1]:,.0f} MB",
                file=sys.stderr,
                flush=True,
            )
    kept.write_text(json.dumps(found))
    return found


def slope(smaller: float, larger: float) -> str:
    """The power that a cost grew with, between the last two sizes; "-" for what is too short to
    tell.
    """
    if larger < 2 or smaller <= 0:
        return "-"
    return f"{math.log(larger / smaller) / math.log(FACTORS[-1] / FACTORS[-2]):.2f}"


def growths(measured: list[dict[str, tuple[float, float]]]) -> Iterator[list[str]]:
    for name in measured[0]:
        seconds, memory = zip(*(found[name] for found in measured), strict=True)
        grown = [max(one - seconds[0], 0) for one in seconds]
        shown = [f"{one:.1f}" for one in seconds], [f"{one:,.0f}" for one in memory]
        yield [name, *shown[0], slope(*grown[-2:]), *shown[1], slope(*memory[-2:])]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="keeps what was measured")
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the slopes")
    words = parser.parse_args()
    folder = words.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [f"{factor}x" for factor in FACTORS]
    head = [
        "stage",
        *(f"CPU s {size}" for size in sizes),
        "slope of CPU s",
        *(f"MB {size}" for size in sizes),
        "slope of MB",
    ]
    write_csv(words.out, head, growths([run(folder, factor) for factor in FACTORS]))


if __name__ == "__main__":
    main()
