"""How cost grows: each stage up to the indexes at 1, 10 and 100 times the input, with its slopes.

    .venv/bin/python -m benchmarks.growth --folder /tmp/growth

The input is the sample world with so many times the entities and texts, on one core. Time is the stage's CPU seconds
beyond those of its smallest input, which are mostly imports, and memory the stage's peak. A slope is the power of the
input's size that the cost grew with from the second size to the third: 1 is linear, 0 flat.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from benchmarks.project_copy import Copy

FACTORS = (1, 10, 100)
SMALLEST = {"entities": 200, "lm_documents": 3_000, "questions": 100}  # and five Pile documents an entity
STAGES = (
    "fetch", "tokenizer", "entities", "popularity", "term_frequency", "triples", "questions", "exposure", "chunk",
    "base_retriever", "index", "index_bm25",
)  # fmt: skip


def commands(project: Path) -> list[tuple[str, str]]:
    """(name, command) of the stages, in the order in which DVC runs them."""
    from dvc.repo import Repo

    with Repo(str(project)) as repo:
        stages = repo.index.stages  # in dvc.yaml's order, that of the data
        return [(s.name, s.cmd) for s in stages if s.name.partition("@")[0] in ("code", *STAGES)]


def measure(copy: Copy, command: str) -> tuple[float, float]:
    """CPU seconds and peak memory (MB) of a stage's process and those that it started and waited for."""
    process = subprocess.Popen(
        shlex.split(command), cwd=copy.folder, env=copy.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    said = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command}: {said.strip().splitlines()[-1]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def run(folder: Path, factor: int) -> dict[str, tuple[float, float]]:
    """Each stage's CPU seconds and peak memory at `factor` times the smallest input."""
    copy, kept = Copy(folder / str(factor), None), folder / f"{factor}.json"
    if kept.is_file():
        return json.loads(kept.read_text())
    copy.clone()
    subprocess.run(
        [".venv/bin/python", "-m", "flows.cli", "profile", "sample"],
        cwd=copy.folder, env=copy.environment, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    params = yaml.safe_load((copy.folder / "params.yaml").read_text())
    params["world"] |= {name: factor * number for name, number in SMALLEST.items()}
    params["compute"] |= {"threads": 1, "workers": 1}
    (copy.folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    found = {}
    for name, command in commands(copy.folder):
        found[name] = measure(copy, command)
        print(f"{factor}x {name}: {found[name][0]:.1f} s, {found[name][1]:,.0f} MB", file=sys.stderr, flush=True)
    kept.write_text(json.dumps(found))
    return found


def slope(smaller: float, larger: float) -> str:
    """The power that a cost grew with, between the last two sizes; "-" for what is too short to tell."""
    if larger < 2 or smaller <= 0:
        return "-"
    return f"{math.log(larger / smaller) / math.log(FACTORS[-1] / FACTORS[-2]):.2f}"


def table(measured: list[dict[str, tuple[float, float]]]) -> str:
    sizes = " | ".join(f"{factor}x" for factor in FACTORS)
    out = [f"| stage | CPU s {sizes} | slope | MB {sizes} | slope |", "|---" * (2 * len(FACTORS) + 3) + "|"]
    for name in measured[0]:
        seconds, memory = zip(*(found[name] for found in measured), strict=True)
        grown = [max(one - seconds[0], 0) for one in seconds]
        out.append(
            f"| {name} | {' | '.join(f'{one:.1f}' for one in seconds)} | {slope(*grown[-2:])} "
            f"| {' | '.join(f'{one:,.0f}' for one in memory)} | {slope(*memory[-2:])} |"
        )
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder",
        type=Path,
        required=True,
        help="keeps what was measured",
    )
    given = parser.parse_args()
    print(table([run(given.folder.resolve(), factor) for factor in FACTORS]))


if __name__ == "__main__":
    main()
