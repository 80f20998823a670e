"""SIGKILL at seeded random moments of a whole run: every output must end byte for byte the same.

    .venv/bin/python -m benchmarks.kills run --folder /tmp/kills --kills 100
    .venv/bin/python -m benchmarks.kills report --folder /tmp/kills > kills.csv

Runs take a clean copy of the committed project with the profile smoke. The first is undisturbed.
After each kill the same command is started again and goes on from what is there, until it ends by
itself; then all files are compared with the undisturbed run's, the outputs are removed, and it
begins anew. A kill hits all processes at once, the first process alone, or one below it. Home and
the folder for temporary files are folders of their own, so that what is left outside of the project
is seen. FOLDER/kills.jsonl has a line for each kill and comparison; a measurement that is stopped
goes on from there.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from benchmarks.project_copy import RUN, clone
from pipelines import draws

MARK = "LONGTAIL_KILLS"  # in the environment of all processes that a measurement starts
UNCOMPARED = ("data/reproduction",)  # what no stage writes
# the processes of a run that are killed; one kind is drawn
KINDS = ("all", "all", "all", "first", "below")
PACE = 9.0  # seconds of a run's work between kills, on average
START_SECONDS = 8.0  # in which a run that is killed before its first stage is killed
STARTING = 0.15  # share of the kills before the first stage begins
PATIENCE = 1800.0  # seconds after which a run hangs
# runs that may end with an error after a kill, as while a process that outlived it is at work
TRIES = 4
NOT_OURS = ("PREFECT_", "MLFLOW_", "DVC_", "OMP_", "PYTHONPATH", "LONGTAIL_")  # of variables
HEAD = [
    "kills", "errors after a kill", "hangs", "comparisons", "files compared", "differ", "left over",
]  # fmt: skip


@dataclass(frozen=True)
class Kill:
    """When a run is killed, and which of its processes."""

    number: int
    kind: str  # of KINDS
    is_start: bool  # before the first stage begins
    seconds: float  # since the run's start, or since its first stage began
    which: float  # of the processes below the first one, in [0, 1)

    @classmethod
    def draw(cls, number: int) -> Kill:
        def drawn(what: str) -> float:
            return draws.uniform(0, f"kills/dag/{what}", str(number))

        is_start = drawn("starting") < STARTING
        longest = START_SECONDS if is_start else 2 * PACE
        return cls(
            number=number,
            kind=KINDS[int(drawn("kind") * len(KINDS))],
            is_start=is_start,
            seconds=drawn("moment") * longest,
            which=drawn("which"),
        )

    def victims(self, first: psutil.Process, living: list[psutil.Process]) -> list[psutil.Process]:
        """Which of the living processes of a run are killed; all of them if none is below."""
        if self.kind == "first":
            return [first]
        below = [process for process in living if process.pid != first.pid]
        if self.kind == "below" and below:
            return [below[int(self.which * len(below))]]
        return living


class Copy:
    """A copy of the project, a home and a folder for temporary files, all in `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.temporary = home / "tmp"
        self.folder = home / "project"
        self.output = home / "said.log"  # of the last process
        self._reference = home / "reference.json"
        self.environment = {}
        for name, value in os.environ.items():
            if not name.startswith(NOT_OURS):
                self.environment[name] = value
        self.environment[MARK] = str(home)
        self.environment["HOME"] = str(home / "home")
        self.environment["TMPDIR"] = str(self.temporary)

    def make(self) -> None:
        """The copy with the profile smoke, after an undisturbed run whose files `reference`
        tells.
        """
        for path in (self.home / "home", self.temporary):
            path.mkdir(parents=True, exist_ok=True)
        is_new = not self.folder.is_dir()
        clone(self.folder, "smoke")
        if is_new:
            (self.folder / "dvc.lock").unlink()
        if self._reference.is_file():
            return

        print("an undisturbed run", flush=True)
        assert self.start().wait() == 0, self.output.read_text()[-2000:]
        reference = {"files": self.files(), "left": self.left()}
        self._reference.write_text(json.dumps(reference))

    def start(self) -> psutil.Popen:
        """`longtail run`."""
        with self.output.open("wb") as output:
            return psutil.Popen(
                RUN,
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def said(self) -> tuple[str, bool]:
        """The last line of what the last process said, and whether it showed a traceback."""
        text = self.output.read_text(encoding="utf-8", errors="replace")
        _, _, last_line = text.strip().rpartition("\n")
        return last_line, "Traceback (most" in text

    def living(self) -> list[psutil.Process]:
        """All processes that this measurement started, and that still run."""
        living = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_ours = process.environ().get(MARK) == str(self.home)
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    living.append(process)
        return living

    def at_work(self) -> list[str]:
        """The stages that DVC processes bring up to date: of each its words, as DVC notes them
        beside what it writes.
        """
        try:
            locks = json.loads((self.folder / ".dvc/tmp/rwlock").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none yet, or just being written
            return []
        pids = {process.pid for process in self.living()}
        stages = set()
        for writer in locks.get("write", {}).values():
            if writer["pid"] in pids:
                stages.add(writer["cmd"].split()[-1])
        return sorted(stages)

    def files(self) -> dict[str, str]:
        """The hash of each file below data/ and of dvc.lock, by path."""
        hashes = {}
        for path in [*(self.folder / "data").rglob("*"), self.folder / "dvc.lock"]:
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and not name.startswith(UNCOMPARED):
                hashes[name] = hashlib.blake2b(_content(path)).hexdigest()
        return dict(sorted(hashes.items()))

    def left(self) -> list[str]:
        """Temporary files and unfinished work below the project, and what lies in the home and
        the temporary folder.
        """
        paths: list[Path] = []
        for folder in (
            self.folder / "data/.longtail/tmp",
            self.folder / ".longtail/tmp",
            self.folder / ".longtail/work",
            self.home / "home",
            self.temporary,
        ):
            paths += folder.rglob("*")
        return sorted(map(str, paths))

    def reference(self) -> dict:
        """`files` and `left` after the undisturbed run."""
        return json.loads(self._reference.read_text())

    def wipe(self) -> None:
        """Remove all that a run makes, but not what is committed."""
        subprocess.run(["git", "clean", "-fdxq", "-e", "params.yaml"], cwd=self.folder, check=True)
        (self.folder / "dvc.lock").unlink(missing_ok=True)
        subprocess.run(["git", "checkout", "-q", "--", "data", ".dvc"], cwd=self.folder, check=True)


def _content(path: Path) -> bytes:
    """A file's bytes; of dvc.lock what it says, because its stages stand in the order in which
    they first ended.
    """
    if path.name == "dvc.lock":
        lock = yaml.safe_load(path.read_text(encoding="utf-8"))
        return json.dumps(lock, sort_keys=True).encode()
    return path.read_bytes()


class Log:
    """FOLDER/kills.jsonl, a JSON object a line."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kills.jsonl"

    def rows(self) -> list[dict]:
        if not self.path.is_file():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def count(self, name: str) -> int:
        """How many rows have this key."""
        return sum(name in row for row in self.rows())

    def add(self, **row: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print({key: value for key, value in row.items() if value not in ([], {}, None)}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["run", "report"])
    parser.add_argument(
        "--folder", type=Path, required=True, help="where the copy and the log lie; kept"
    )
    parser.add_argument("--kills", type=int, default=100)
    arguments = parser.parse_args()

    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder)
    if arguments.part == "report":
        csv.writer(sys.stdout, lineterminator="\n").writerows([HEAD, report(log)])
        return

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    copy = Copy(folder)
    try:
        kill_runs(copy, log, arguments.kills)
    finally:
        kill_processes(copy.living())


def kill_runs(copy: Copy, log: Log, kills: int) -> None:
    """Kill whole runs, until there have been so many kills; the last run is finished and
    compared.
    """
    copy.make()
    number = log.count("kill")
    errors = 0
    if number == 0:
        copy.wipe()
    while True:
        kill = Kill.draw(number)
        process, seconds = run_until(copy, kill, is_last=number >= kills)
        code = process.poll()
        if code is None and seconds > PATIENCE:
            log.add(hang=number, stages=copy.at_work())
            kill_processes(copy.living())
        elif code is None:
            kill_run(copy, log, kill, process, seconds)
            number += 1
        elif code:
            errors += 1
            log.add(error=code, said=copy.said(), tries=errors)
            if errors == TRIES:
                kill_processes(copy.living())
                copy.wipe()
                errors = 0
            time.sleep(5)
        else:
            errors = 0
            compare(copy, log, kills=number)
            if number >= kills:
                return
            copy.wipe()


def run_until(copy: Copy, kill: Kill, is_last: bool) -> tuple[psutil.Popen, float]:
    """A run until the moment of its kill, or its end: the process, and its seconds.

    The last run is not killed.
    """
    process = copy.start()
    started = time.monotonic()
    counted_from = started if kill.is_start else None
    while process.poll() is None and time.monotonic() - started <= PATIENCE:
        if counted_from is None and copy.at_work():
            counted_from = time.monotonic()
        is_over = counted_from is not None and time.monotonic() - counted_from > kill.seconds
        if is_over and not is_last:
            break
        time.sleep(0.2)
    return process, time.monotonic() - started


def kill_run(copy: Copy, log: Log, kill: Kill, process: psutil.Popen, seconds: float) -> None:
    """Kill processes of a run, and log which stages they were at."""
    stages = copy.at_work()
    victims = kill.victims(process, copy.living())
    victim = ""
    if kill.kind == "below":
        victim = " ".join(victims[0].cmdline()[1:4])
    kill_processes(victims)
    log.add(
        kill=kill.number,
        kind=kill.kind,
        seconds=round(seconds, 1),
        stages=stages,
        victim=victim,
    )
    if process.wait(PATIENCE) != -signal.SIGKILL:
        log.add(ended=process.returncode, said=copy.said())


def kill_processes(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)  # so that none notices that another is gone
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def compare(copy: Copy, log: Log, kills: int) -> None:
    """Log which files differ from the undisturbed run's, and what is left of killed processes
    and was not there.
    """
    reference = copy.reference()
    expected = reference["files"]
    files = copy.files()
    names = expected.keys() | files.keys()
    different = [name for name in names if expected.get(name) != files.get(name)]
    left = set(copy.left()) - set(reference["left"])
    log.add(compared=len(names), different=sorted(different), left=sorted(left), kills=kills)


def report(log: Log) -> list[str]:
    """All counts, as HEAD says."""
    compared = 0
    different = 0
    left = set()
    for row in log.rows():
        if "compared" in row:
            compared += row["compared"]
            different += len(row["different"])
            left.update(row["left"])
    counts = [log.count(name) for name in ("kill", "error", "hang", "compared")]
    counts += [compared, different, len(left)]
    return [f"{count:,}" for count in counts]


if __name__ == "__main__":
    main()
