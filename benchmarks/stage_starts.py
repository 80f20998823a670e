"""Core seconds of a stage as DVC starts it, and as a flow's process forks it (flows/warm.py), DVC's own included.

    .venv/bin/python -m benchmarks.stage_starts

It works in a project whose outputs are there, and runs each stage again both ways: the outputs stay the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time

import psutil

from flows import warm
from pipelines import params_file

STAGES = ["triples@wikidata", "evaluate_lm@pile", "answer@entityquestions-tiny-closed_book", "index_lsr@pile-dense"]


def of_children() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def of_forks(server: psutil.Process) -> float:
    times = server.cpu_times()
    return times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", default=STAGES)
    warm.begin(params_file.load("compute").compute)
    server = psutil.Process(warm._server[0].pid)
    while "ready" not in warm.LOG.read_text(encoding="utf-8"):
        time.sleep(0.1)
    print(f"loading, once: {sum(server.cpu_times()[:2]):.1f} core seconds\n")
    print("| stage | started | forked | times as fast |\n|---|---|---|---|")
    for stage in parser.parse_args().stages:
        words = ["--wait-for-lock", "repro", "--single-item", "--force", stage]
        before = of_children()
        subprocess.run([sys.executable, "-m", "dvc", *words], stdout=subprocess.DEVNULL, check=True)
        started, before = of_children() - before, of_forks(server)
        process = warm.dvc(words, dict(os.environ))
        process.stdout.read()
        assert process.wait() == 0
        forked = of_forks(server) - before
        print(f"| {stage} | {started:.2f} | {forked:.2f} | {started / forked:.1f} |", flush=True)


if __name__ == "__main__":
    main()
