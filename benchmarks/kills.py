"""SIGKILL at seeded random moments of a whole run: every output must end byte for byte the same.

    .venv/bin/python -m benchmarks.kills run --folder /tmp/kills --kills 100
    .venv/bin/python -m benchmarks.kills report --folder /tmp/kills

Runs take a clean copy of the committed project with the profile smoke. The first is undisturbed.
After each kill the same command is started again and goes on from what is there, until it ends by
itself; then all files are compared with the undisturbed run's, the outputs are removed, and it
begins anew. A kill hits all processes at once, the first process alone, or one below it. Home and
the folder for temporary files are folders of their own, so that what is left outside of the project
is seen. FOLDER/kills.jsonl has a line for each kill and comparison; a measurement that is stopped
goes on from there.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

from benchmarks.project_copy import RUN, clone, table
from pipelines import draws

MARK = "LONGTAIL_KILLS"  # in the environment of all processes that a measurement starts
UNCOMPARED = ("data/latency", "data/reproduction")  # times, and what no stage writes
KINDS = (
    "all",
    "all",
    "all",
    "first",
    "below",
)  # the processes of a run that are killed; one kind is drawn
PACE = 9.0  # seconds of a run's work between kills, on average
STARTING = 0.15  # share of the kills before the first stage begins
PATIENCE = 1800.0  # seconds after which a run hangs
# runs that may end with an error after a kill, as while a process that outlived it is at work
TRIES = 4


class Copy:
    """A copy of the project, a home and a folder for temporary files, all in `home`."""

    def __init__(self, home: Path) -> None:
        self.home, self.temporary, self.folder = home, home / "tmp", home / "project"
        dirty = ("PREFECT_", "MLFLOW_", "DVC_", "OMP_", "PYTHONPATH", "LONGTAIL_")
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(dirty)
        }
        self.environment |= {
            MARK: str(home),
            "HOME": str(home / "home"),
            "TMPDIR": str(self.temporary),
        }

    def make(self) -> None:
        """The copy with the profile smoke, after an undisturbed run whose files `reference`
        tells.
        """
        for path in (self.home / "home", self.temporary):
            path.mkdir(parents=True, exist_ok=True)
        new = not self.folder.is_dir()
        clone(self.folder, "smoke")
        if new:
            (self.folder / "dvc.lock").unlink()
        if not (self.home / "reference.json").is_file():
            print("an undisturbed run", flush=True)
            assert self.start(RUN).wait() == 0, (self.home / "said.log").read_text()[-2000:]
            (self.home / "reference.json").write_text(
                json.dumps({"files": self.files(), "left": self.left()})
            )

    def start(self, command: tuple[str, ...]) -> psutil.Popen:
        with (self.home / "said.log").open("wb") as said:
            return psutil.Popen(
                command, cwd=self.folder, env=self.environment, stdout=said, stderr=said, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def said(self) -> tuple[str, bool]:
        """The last line of what the last process said, and whether it showed a traceback."""
        text = (self.home / "said.log").read_text(encoding="utf-8", errors="replace")
        return text.strip().rpartition("\n")[2], "Traceback (most" in text

    def living(self) -> list[psutil.Process]:
        """All processes that this measurement started, and that still run."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if (
                    process.environ().get(MARK) == str(self.home)
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
        return found

    def files(self) -> dict[str, str]:
        """The hash of each file below data/ and of dvc.lock, by path."""
        paths = [path for path in (self.folder / "data").rglob("*") if path.is_file()] + [
            self.folder / "dvc.lock"
        ]
        names = {path.relative_to(self.folder).as_posix(): path for path in paths if path.is_file()}
        kept = {name: path for name, path in names.items() if not name.startswith(UNCOMPARED)}
        return {
            name: hashlib.blake2b(_content(path)).hexdigest() for name, path in sorted(kept.items())
        }

    def left(self) -> list[str]:
        """Temporary files and unfinished work below the project, and what lies in the home and
        the temporary folder.
        """
        tops = [self.folder / ".longtail" / name for name in ("tmp", "work")]
        found = [
            path for top in (*tops, self.home / "home", self.temporary) for path in top.rglob("*")
        ]
        return sorted(map(str, [*found, *(self.folder / "data").rglob(".longtail")]))

    def reference(self) -> dict:
        return json.loads((self.home / "reference.json").read_text())

    def wipe(self) -> None:
        """Remove all that a run makes, but not what is committed."""
        subprocess.run(["git", "clean", "-fdxq", "-e", "params.yaml"], cwd=self.folder, check=True)
        (self.folder / "dvc.lock").unlink(missing_ok=True)
        subprocess.run(["git", "checkout", "-q", "--", "data", ".dvc"], cwd=self.folder, check=True)


class Log:
    """FOLDER/kills.jsonl, a JSON object a line."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kills.jsonl"

    def rows(self) -> list[dict]:
        return (
            [json.loads(line) for line in self.path.read_text().splitlines()]
            if self.path.is_file()
            else []
        )

    def add(self, **row: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print({key: value for key, value in row.items() if value not in ([], {}, None)}, flush=True)


def _content(path: Path) -> bytes:
    """A file's bytes; of dvc.lock what it says, because its stages stand in the order in which
    they first ended.
    """
    if path.name == "dvc.lock":
        return json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), sort_keys=True).encode()
    return path.read_bytes()


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)  # so that none notices that another is gone
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def at_work(copy: Copy) -> list[str]:
    """The stages that DVC processes bring up to date: of each its words, as DVC notes them
    beside what it writes.
    """
    try:
        writers = (
            json.loads((copy.folder / ".dvc/tmp/rwlock").read_text(encoding="utf-8"))
            .get("write", {})
            .values()
        )
    except (OSError, ValueError):  # none yet, or just being written
        return []
    living = {process.pid for process in copy.living()}
    return sorted({writer["cmd"].split()[-1] for writer in writers if writer["pid"] in living})


def compare(copy: Copy, log: Log, **about: object) -> None:
    """Log which files differ from the undisturbed run's, and what is left of killed processes
    and was not there.
    """
    expected, files = copy.reference(), copy.files()
    names = expected["files"].keys() | files.keys()
    different = sorted(name for name in names if expected["files"].get(name) != files.get(name))
    log.add(
        compared=len(names),
        different=different,
        left=sorted({*copy.left()} - {*expected["left"]}),
        **about,
    )


def drawn(number: int, what: str) -> float:
    return draws.uniform(0, f"kills/dag/{what}", str(number))


def kill_runs(copy: Copy, log: Log, kills: int) -> None:
    """Kill whole runs, until there have been so many kills; the last run is finished and
    compared.
    """
    copy.make()
    number, errors = sum("kill" in row for row in log.rows()), 0
    if number == 0:
        copy.wipe()
    while True:
        kind, starting = KINDS[int(drawn(number, "kind") * len(KINDS))], drawn(number, "starting")
        process, seconds = run_for(
            copy, starting < STARTING, drawn(number, "moment"), number >= kills
        )
        if process.poll() is None and seconds > PATIENCE:
            log.add(hang=number, stages=at_work(copy))
            kill(copy.living())
        elif process.poll() is None:
            living, names = copy.living(), at_work(copy)
            below = [one for one in living if one.pid != process.pid]
            one = below[int(drawn(number, "which") * len(below)) :][:1] or living
            victims = {"all": living, "first": [process], "below": one}[kind]
            words = " ".join(victims[0].cmdline()[1:4]) if kind == "below" else ""
            kill(victims)
            log.add(kill=number, kind=kind, seconds=round(seconds, 1), stages=names, victim=words)
            number += 1
            if process.wait(PATIENCE) != -signal.SIGKILL:
                log.add(ended=process.returncode, said=copy.said())
        elif process.returncode:
            errors += 1
            log.add(error=process.returncode, said=copy.said(), tries=errors)
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
        if (
            not whole
            and since
            and time.monotonic() - since > moment * (8 if starting else 2 * PACE)
        ):
            break
        time.sleep(0.2)
    return process, time.monotonic() - began


def report(log: Log) -> str:
    rows = log.rows()
    compared = [row for row in rows if "compared" in row]
    left = {name for row in compared for name in row["left"]}
    counts = [sum(name in row for row in rows) for name in ("kill", "error", "hang", "compared")]
    counts += [
        sum(row["compared"] for row in compared),
        sum(len(row["different"]) for row in compared),
        len(left),
    ]
    head = [
        "kills",
        "errors after a kill",
        "hangs",
        "comparisons",
        "files compared",
        "differ",
        "left over",
    ]
    return table(head, [[f"{count:,}" for count in counts]])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["run", "report"])
    parser.add_argument(
        "--folder", type=Path, required=True, help="where the copy and the log lie; kept"
    )
    parser.add_argument("--kills", type=int, default=100)
    words = parser.parse_args()
    folder = words.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    copy, log = Copy(folder), Log(folder)
    if words.part == "report":
        print(report(log))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        kill_runs(copy, log, words.kills)
    finally:
        kill(copy.living())


if __name__ == "__main__":
    main()
