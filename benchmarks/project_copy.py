"""Copies of the committed project: with another profile, seed or settings, or to kill and to compare."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[1]
MARK = "LONGTAIL_KILLS"  # in the environment of all processes that a measurement starts
RUN = (".venv/bin/python", "-m", "flows.cli", "run")
UNCOMPARED = ("data/latency", "data/reproduction")  # times, and what no stage writes


def clone(folder: Path, profile: str, **changes: object) -> Path:
    """A clone of the project in `folder`, unless it is there, with a profile and these params; a section is merged."""
    if not folder.is_dir():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        (folder / ".venv").symlink_to((ROOT / ".venv").resolve())
        subprocess.run([*RUN[:-1], "profile", profile], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    set_params(folder, **changes)
    return folder


def set_params(folder: Path, **changes: object) -> None:
    values = yaml.safe_load((folder / "params.yaml").read_text(encoding="utf-8"))
    for name, change in changes.items():
        values[name] = values[name] | change if isinstance(change, dict) else change
    (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = [*head]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


class Copy:
    """A copy of the project, a home and a folder for temporary files, all in `home`."""

    def __init__(self, home: Path) -> None:
        self.home, self.temporary, self.folder = home, home / "tmp", home / "project"
        dirty = ("PREFECT_", "MLFLOW_", "DVC_", "OMP_", "PYTHONPATH", "LONGTAIL_")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(dirty)}
        self.environment |= {MARK: str(home), "HOME": str(home / "home"), "TMPDIR": str(self.temporary)}

    def make(self) -> None:
        """The copy with the profile tiny, after an undisturbed run whose files `reference` tells."""
        for path in (self.home / "home", self.temporary):
            path.mkdir(parents=True, exist_ok=True)
        new = not self.folder.is_dir()
        clone(self.folder, "tiny")
        if new:
            (self.folder / "dvc.lock").unlink()
        if not (self.home / "reference.json").is_file():
            print("an undisturbed run", flush=True)
            started = time.monotonic()
            done = self.start(RUN)
            assert done.wait() == 0, (self.home / "said.log").read_text()[-2000:]
            found = {"seconds": time.monotonic() - started, "files": self.files()}
            found |= {"outside": self.outside(), "unfinished": self.unfinished()}
            (self.home / "reference.json").write_text(json.dumps(found))

    def start(self, command: tuple[str, ...]) -> psutil.Popen:
        with (self.home / "said.log").open("wb") as said:
            return psutil.Popen(
                command, cwd=self.folder, env=self.environment, stdout=said, stderr=said, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        """The last line of what the last process said."""
        lines = (self.home / "said.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "")

    def broke(self) -> bool:
        """Whether the last process showed a traceback."""
        return "Traceback (most" in (self.home / "said.log").read_text(encoding="utf-8", errors="replace")

    def living(self) -> list[psutil.Process]:
        """All processes that this measurement started, and that still run."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.home) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def files(self) -> dict[str, str]:
        """The hash of each file below data/ and of dvc.lock, by path."""
        paths = [path for path in (self.folder / "data").rglob("*") if path.is_file()] + [self.folder / "dvc.lock"]
        names = {path.relative_to(self.folder).as_posix(): path for path in paths if path.is_file()}
        kept = {name: path for name, path in names.items() if not name.startswith(UNCOMPARED)}
        return {name: hashlib.blake2b(_content(path)).hexdigest() for name, path in sorted(kept.items())}

    def outside(self) -> list[str]:
        """What lies in the home and in the folder for temporary files."""
        return sorted(
            path.relative_to(top.parent).as_posix()
            for top in (self.home / "home", self.temporary)
            for path in top.rglob("*")
        )

    def unfinished(self) -> list[str]:
        """Temporary files and unfinished work below the project."""
        tops = [self.folder / ".longtail" / name for name in ("tmp", "shards", "checkpoints")]
        found = [path for top in tops for path in top.glob("*")] + list((self.folder / "data").rglob(".longtail"))
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def reference(self) -> dict:
        return json.loads((self.home / "reference.json").read_text())

    def wipe(self) -> None:
        """Remove all that a run makes, but not what is committed."""
        subprocess.run(["git", "clean", "-fdxq", "-e", ".venv", "-e", "params.yaml"], cwd=self.folder, check=True)
        (self.folder / "dvc.lock").unlink(missing_ok=True)
        subprocess.run(["git", "checkout", "-q", "--", "data", ".dvc"], cwd=self.folder, check=True)


class Log:
    """FOLDER/kills.jsonl, a JSON object a line; of a measurement, `part`."""

    def __init__(self, folder: Path, part: str) -> None:
        self.path, self.part = folder / "kills.jsonl", part

    def rows(self) -> list[dict]:
        lines = self.path.read_text().splitlines() if self.path.is_file() else []
        return [row for row in map(json.loads, lines) if row["part"] == self.part]

    def add(self, **row: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"part": self.part, **row}) + "\n")
        print({key: value for key, value in row.items() if value not in ([], {}, None)}, flush=True)


def _content(path: Path) -> bytes:
    """A file's bytes; of dvc.lock what it says, because its stages stand in the order in which they first ended."""
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
    """The stages that DVC processes bring up to date: of each its words, as DVC notes them beside what it writes."""
    try:
        writers = json.loads((copy.folder / ".dvc/tmp/rwlock").read_text(encoding="utf-8")).get("write", {}).values()
    except (OSError, ValueError):  # none yet, or just being written
        return []
    living = {process.pid for process in copy.living()}
    return sorted({writer["cmd"].split()[-1] for writer in writers if writer["pid"] in living})


def compare(copy: Copy, log: Log, **about: object) -> None:
    """Log which files differ from the undisturbed run's, and what is left of killed processes and was not there."""
    expected, files = copy.reference()["files"], copy.files()
    names = expected.keys() | files.keys()
    different = sorted(name for name in names if expected.get(name) != files.get(name))
    left = {
        name: sorted(set(getattr(copy, name)()) - set(copy.reference()[name])) for name in ("unfinished", "outside")
    }
    log.add(compared=len(names), different=different, **left, **about)
