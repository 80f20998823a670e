"""SIGKILL at seeded random moments of a whole run and of single stages: every output must end byte for byte the same.

    .venv/bin/python -m benchmarks.kills --folder /tmp/kills dag --kills 100
    .venv/bin/python -m benchmarks.kills --folder /tmp/kills stages --kills 300
    .venv/bin/python -m benchmarks.kills --folder /tmp/kills report

Whole runs take a clean copy of the committed project with the profile tiny; stages alone take the project that
benchmarks/fault_world.py makes. Each first runs undisturbed. After each kill the same command is started again and goes
on from what is there, until it ends by itself; then all files are compared with the undisturbed run's, the outputs are
removed, and it begins anew. A kill of a whole run hits all its processes at once, its first process alone, or one below
it. Home and the folder for temporary files are folders of their own, so that what is left outside of the project is
seen. FOLDER/dag/kills.jsonl and FOLDER/stages/kills.jsonl have a line for each kill and comparison; a measurement that
is stopped goes on from there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil

from benchmarks import fault_world
from benchmarks.project_copy import RUN, Copy, Log, at_work, compare, kill, table
from pipelines import draws, shards

KINDS = ("all", "all", "all", "first", "below")  # which processes of a run are killed; one is drawn
PACE = 9.0  # seconds of a run's work between kills, on average
STARTING = 0.15  # share of the kills before the first stage begins
PATIENCE = 1800.0  # seconds after which a run hangs
TRIES = 4  # runs that may end with an error after a kill, as while a process that outlived it is at work


def drawn(part: str, number: int, what: str) -> float:
    return draws.uniform(0, f"kills/{part}/{what}", str(number))


def dag(copy: Copy, log: Log, kills: int) -> None:
    """Kill whole runs, until there have been so many kills; the last run is finished and compared."""
    copy.make()
    number, errors = sum("kill" in row for row in log.rows()), 0
    if number == 0:
        copy.wipe()
    while True:
        kind, starting = KINDS[int(drawn("dag", number, "kind") * len(KINDS))], drawn("dag", number, "starting")
        process, seconds = run_for(copy, starting < STARTING, drawn("dag", number, "moment"), number >= kills)
        if process.poll() is None and seconds > PATIENCE:
            log.add(hang=number, stages=at_work(copy))
            kill(copy.living())
        elif process.poll() is None:
            living, names = copy.living(), at_work(copy)
            below = [one for one in living if one.pid != process.pid]
            one = below[int(drawn("dag", number, "which") * len(below)) :][:1] or living
            victims = {"all": living, "first": [process], "below": one}[kind]
            words = " ".join(victims[0].cmdline()[1:4]) if kind == "below" else ""
            kill(victims)
            log.add(kill=number, kind=kind, seconds=round(seconds, 1), stages=names, victim=words)
            number += 1
            if process.wait(PATIENCE) != -signal.SIGKILL:
                log.add(ended=process.returncode, said=copy.said(), traceback=copy.broke())
        elif process.returncode:
            errors += 1
            log.add(error=process.returncode, said=copy.said(), tries=errors, traceback=copy.broke())
            if errors == TRIES:
                kill(copy.living())
                copy.wipe()
                errors = 0
            time.sleep(5)
        else:
            errors = 0
            compare(copy, log, kills=number)
            if number >= kills:
                return
            copy.wipe()


def run_for(copy: Copy, starting: bool, moment: float, whole: bool) -> tuple[psutil.Popen, float]:
    """A run until the moment of its kill, or its end: the process, and its seconds.

    The moment is one of its start, or of its work after the first stage began.
    """
    process, began = copy.start(RUN), time.monotonic()
    since = began if starting else None
    while process.poll() is None and time.monotonic() - began <= PATIENCE:
        since = since or (time.monotonic() if at_work(copy) else None)
        if not whole and since and time.monotonic() - since > moment * (8 if starting else 2 * PACE):
            break
        time.sleep(0.2)
    return process, time.monotonic() - began


def stages(folder: Path, log: Log, kills: int) -> None:
    """Kill each stage alone, time and again, and compare its outputs; the others' lie there.

    Each runs in a forked process that has all modules loaded: so a kill hits its work, not its start.
    """
    made, whole = fault_world.make(folder / "whole"), folder / "whole"
    fault_world.load(made)
    if not (folder / "copy").is_dir():
        shutil.copytree(whole, folder / "copy")
    os.chdir(folder / "copy")
    each, done = -(-kills // len(made)), {row["stage"] for row in log.rows() if "compared" in row}
    for place, stage in enumerate(made):
        if stage.name in done:
            continue
        started = time.monotonic()
        code = _ended(stage.start())
        seconds, expected = time.monotonic() - started, stage.hashes()
        for number in range(place * each, (place + 1) * each if code == 0 else 0):
            if all(out.exists() for out in stage.outs):  # killed when its outputs were there: begin anew
                for out in stage.outs:
                    fault_world.remove(out)
            process = stage.start()
            time.sleep(drawn("stages", number, "moment") * seconds)
            os.killpg(process, signal.SIGKILL)
            there = sorted(str(out) for out in stage.outs if out.exists())
            log.add(stage=stage.name, kill=number, of=round(seconds, 2), ended=_ended(process), there=there)
        if code := code or _ended(stage.start()):
            log.add(stage=stage.name, error=code, said=Path("said.log").read_text().splitlines()[-1:])
        files = stage.hashes()
        different = sorted(name for name in files.keys() | expected if files.get(name) != expected.get(name))
        unfinished = [
            str(path) for name in ("tmp", "shards", "checkpoints") for path in shards.SCRATCH.glob(f"{name}/*")
        ]
        log.add(stage=stage.name, compared=len(files), different=different, unfinished=unfinished, outside=[])
        stage.bring_back(whole)


def _ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def report(folder: Path) -> str:
    """Both measurements as a Markdown table."""
    cells = []
    for part in ("dag", "stages"):
        rows = Log(folder / part, part).rows()
        compared = [row for row in rows if "compared" in row]
        left = {name for row in compared for name in (*row["unfinished"], *row["outside"])}
        counts = [sum(name in row for row in rows) for name in ("kill", "error", "hang", "compared")]
        counts += [sum(row["compared"] for row in compared), sum(len(row["different"]) for row in compared), len(left)]
        cells.append([part, *(f"{count:,}" for count in counts)])
    return table(
        ["", "kills", "errors after a kill", "hangs", "comparisons", "files compared", "differ", "left over"], cells
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["dag", "stages", "report"])
    parser.add_argument("--folder", type=Path, required=True, help="where the copies and the log lie; kept")
    parser.add_argument("--kills", type=int, default=100)
    words = parser.parse_args()
    if words.part == "report":
        print(report(words.folder.resolve()))
        return
    folder = words.folder.resolve() / words.part
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder, words.part)
    if words.part == "stages":
        stages(folder, log, words.kills)
        return
    copy = Copy(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        dag(copy, log, words.kills)
    finally:
        kill(copy.living())


if __name__ == "__main__":
    main()
