"""Core seconds of a stage as DVC starts it, and as a flow's process forks it (flows/warm.py), DVC's own included.

    .venv/bin/python -m benchmarks.stage_starts

It works in a project whose outputs are there, and runs each stage again both ways: the outputs stay the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import yaml

from benchmarks import measure
from benchmarks.measure import Row, Run
from flows import warm
from pipelines import params_file

STAGES = ["triples@wikidata", "evaluate_lm@pile", "answer@entityquestions-tiny-closed_book", "index_lsr@pile-dense"]
PEER = "started as new processes"


def started(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "dvc", *words], capture_output=True, check=True)


def forked(server: psutil.Process, words: list[str]) -> Run:
    before, clock = _of_forks(server), time.perf_counter()
    process = warm.dvc(words, dict(os.environ))
    process.stdout.read()
    assert process.wait() == 0
    return Run(_of_forks(server) - before, time.perf_counter() - clock, 0.0, None)


def _of_forks(server: psutil.Process) -> float:
    times = server.cpu_times()
    return times.children_user + times.children_system


def rows(quick: bool = False) -> list[Row]:
    """Those of STAGES that are finished here."""
    lock = Path("dvc.lock")
    done = yaml.safe_load(lock.read_text(encoding="utf-8"))["stages"] if lock.exists() else {}
    here = {name for name in done if all(Path(one["path"]).exists() for one in done[name].get("deps", ()))}
    if not (stages := [stage for stage in STAGES if stage in here]):
        return [Row("start and end of a stage", PEER, missing=measure.NO_RUN)]
    warm.begin(params_file.load("compute").compute)
    server, found = psutil.Process(warm._server[0].pid), []
    while "ready" not in warm.LOG.read_text(encoding="utf-8"):
        time.sleep(0.1)
    for stage in stages[:1] if quick else stages:
        words = ["--wait-for-lock", "repro", "--single-item", "--force", stage]
        ways = {"started": partial(measure.timed, partial(started, words)), "forked": partial(forked, server, words)}
        run = measure.best(ways, 1 if quick else 2)
        found.append(measure.row(f"start and end of {stage}", PEER, "stages", 1, *run.values(), memory=False))
    return found


if __name__ == "__main__":
    measure.main(rows)
