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
from typing import NamedTuple

from benchmarks.project_copy import clone, dvc_stages, write_csv

FACTORS = (1, 10, 100)
# there are also five Pile documents an entity
SMALLEST = {"entities": 200, "lm_documents": 3_000, "questions": 100}
STAGES = (
    "code", "fetch", "tokenizer", "entities", "popularity", "term_frequency", "triples", "questions", "exposure",
    "chunk", "base_retriever", "index", "index_bm25",
)  # fmt: skip
SHORTEST = 2  # seconds, or MB; less is too little to tell a slope


class Cost(NamedTuple):
    """What a stage took, with the processes that it started and waited for."""

    seconds: float  # of CPU
    megabytes: float  # at its peak


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="keeps what was measured")
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the slopes")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    seconds = [f"CPU s {factor}x" for factor in FACTORS]
    megabytes = [f"MB {factor}x" for factor in FACTORS]
    head = ["stage", *seconds, "slope of CPU s", *megabytes, "slope of MB"]
    costs = [measure_stages(folder, factor) for factor in FACTORS]
    write_csv(arguments.out, head, growths(costs))


def measure_stages(folder: Path, factor: int) -> dict[str, Cost]:
    """Each stage's cost at `factor` times the smallest input."""
    file = folder / f"{factor}.json"
    if file.is_file():
        measured = json.loads(file.read_text())
        return {stage: Cost(*cost) for stage, cost in measured.items()}

    world = {name: factor * number for name, number in SMALLEST.items()}
    compute = {"threads": 1, "workers": 1}
    project = clone(folder / str(factor), "sample", world=world, compute=compute)
    costs = {}
    for stage in dvc_stages(project):
        name, _, _ = stage.name.partition("@")
        if name not in STAGES:
            continue
        cost = measure(project, stage.cmd)
        costs[stage.name] = cost
        line = f"{factor}x {stage.name}: {cost.seconds:.1f} s, {cost.megabytes:,.0f} MB"
        print(line, file=sys.stderr, flush=True)
    file.write_text(json.dumps(costs))
    return costs


def measure(project: Path, command: str) -> Cost:
    """What a stage's command takes; SystemExit with the last line that it printed if it fails."""
    process = subprocess.Popen(
        shlex.split(command), cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    printed = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        last_line = printed.strip().splitlines()[-1]
        raise SystemExit(f"{command}: {last_line}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6)


def growths(costs: list[dict[str, Cost]]) -> Iterator[list[str]]:
    """A row for each stage, from its costs at each of FACTORS."""
    for name in costs[0]:
        of_stage = [costs_of_size[name] for costs_of_size in costs]
        first = of_stage[0].seconds
        grown = [max(cost.seconds - first, 0) for cost in of_stage]
        megabytes = [cost.megabytes for cost in of_stage]
        yield [
            name,
            *(f"{cost.seconds:.1f}" for cost in of_stage),
            slope(*grown[-2:]),
            *(f"{cost.megabytes:,.0f}" for cost in of_stage),
            slope(*megabytes[-2:]),
        ]


def slope(smaller: float, larger: float) -> str:
    """The power that a cost grew with, between the last two sizes; "-" for what is too short to
    tell.
    """
    if larger < SHORTEST or smaller <= 0:
        return "-"
    power = math.log(larger / smaller) / math.log(FACTORS[-1] / FACTORS[-2])
    return f"{power:.2f}"


if __name__ == "__main__":
    main()
