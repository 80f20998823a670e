"""Power cuts at seeded random moments: what was not synced is lost, and all that was reported as
done must be there.

    sudo .venv/bin/python -m benchmarks.power_loss --cuts 40

A file becomes a disk with ext4 (Linux, root). A process writes on it as Longtail does, and reports
what is done. Then the file system is shut down as by a power cut: an ioctl that throws away all
that was not written, journal included. It is mounted again and looked at. ext4 is mounted without
the help that it has for programs that do not sync (noauto_da_alloc), which other file systems lack,
and with a journal that is written each second or each minute.
"""

import argparse
import fcntl
import hashlib
import json
import math
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO

import yaml

from benchmarks.project_copy import ROOT, table
from flows import dvc_repo
from pipelines import draws
from pipelines.storage.atomic import atomic
from pipelines.storage.kept_answers import KeptAnswers
from pipelines.storage.work_store import WorkStore

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
WITHOUT_LOG = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH
OPTIONS = (
    "noauto_da_alloc,commit=1",
    "noauto_da_alloc,commit=60",
    "noauto_da_alloc,commit=1,data=writeback",
)
LONGEST = 3.0  # seconds of writing before a cut
HEAD = ["what is written when the power is cut", "cuts", "whole", "done, but lost", "damaged"]
NAMES_IN_FOLDER = ("a", "b", "below/c")


def say(number: int) -> None:
    print(number, flush=True)


def sealed(number: int, size: int) -> str:
    """A text that tells its number, and whether it is whole."""
    body = f"{number} " + digest_of(str(number)) * (size // 128)
    return f"{body} {digest_of(body)}"


def digest_of(text: str) -> str:
    return hashlib.blake2b(text.encode()).hexdigest()


def unsealed(path: Path) -> int:
    """The number of a `sealed` text. Raises ValueError if it is not whole."""
    body, _, digest = path.read_text(encoding="utf-8", errors="replace").rpartition(" ")
    if not body or digest_of(body) != digest:
        raise ValueError(f"{path} is cut: {path.stat().st_size} bytes")
    return int(body.split()[0])


def write_file(number: int) -> None:
    with atomic("data/one/file") as temporary:
        temporary.write_text(sealed(number, 200_000))


def write_without_sync(number: int) -> None:
    """A control, which must be found damaged."""
    Path("data/one").mkdir(exist_ok=True)
    Path("data/one/new").write_text(sealed(number, 200_000))
    os.replace("data/one/new", "data/one/file")


def file_there() -> int:
    return unsealed(Path("data/one/file"))


def write_folder(number: int) -> None:
    with atomic("data/folder") as temporary:
        (temporary / "below").mkdir(parents=True)
        for name in NAMES_IN_FOLDER:
            (temporary / name).write_text(sealed(number, 50_000))


def folder_there() -> int:
    (number,) = {unsealed(Path("data/folder") / name) for name in NAMES_IN_FOLDER}
    return number


def write_shards(begin: int) -> None:
    """Before a shard is begun, all before it are reported."""

    def work(shard: int, path: Path) -> None:
        if shard:
            say(shard - 1)
        path.write_text(sealed(shard, 50_000))

    WorkStore().parts("mapped", "key", range(100_000), work)


def shards_there() -> int:
    shards = sorted(Path(".longtail/work/mapped/key").glob("*"))
    for number, path in enumerate(shards):
        assert unsealed(path) == int(path.name) == number
    return len(shards) - 1


def write_lock(number: int) -> None:
    """dvc.lock as DVC writes it, without a sync, and the flow's copy after each stage."""
    stages = {}
    for stage in range(40):
        out = {"path": f"out{stage}", "md5": "0" * 32}
        stages[f"stage{stage}"] = {"cmd": f"run {stage}", "outs": [out]}
    stages["last"] = {"cmd": str(number)}
    with Path("dvc.lock").open("w", encoding="utf-8") as file:
        yaml.safe_dump({"schema": "2.0", "stages": stages}, file)
    dvc_repo.sync_and_copy_lock(Path.cwd())


def lock_there() -> int:
    dvc_repo.repair_after_kill(Path.cwd())
    lock = yaml.safe_load(Path("dvc.lock").read_text(encoding="utf-8"))
    return int(lock["stages"]["last"]["cmd"])


def write_answer(number: int) -> None:
    _kept().put({f"{number}": sealed(number, 3000).encode()})


@cache
def _kept() -> KeptAnswers:
    return KeptAnswers(Path(".longtail/answers"), math.inf)


def answers_there() -> int:
    answers = _kept()
    assert answers._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    (n_answers,) = answers._db.execute("SELECT count(*) FROM answers").fetchone()
    for number in range(n_answers):
        is_there, answer = answers.get(str(number))
        assert is_there
        assert answer == sealed(number, 3000).encode()
    return n_answers - 1


@dataclass(frozen=True)
class Part:
    """Something that is written again and again, with a number each time."""

    write: Callable[[int], None]
    read: Callable[[], int]  # the last number that is there


PARTS = {
    "a control: a file that is renamed without a sync": Part(write_without_sync, file_there),
    "a file by atomic": Part(write_file, file_there),
    "a folder by atomic": Part(write_folder, folder_there),
    "parts of WorkStore": Part(write_shards, shards_there),
    "dvc.lock as DVC writes it, and the flow's copy": Part(write_lock, lock_there),
    "answers of a server (KeptAnswers)": Part(write_answer, answers_there),
}


class Disk:
    """A file that is a disk with a file system, mounted at `folder`/disk."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "disk.img"
        self.place = folder / "disk"
        self.place.mkdir(exist_ok=True)

    def make(self) -> None:
        """An empty project on it."""
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as file:
            file.truncate(4 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True)
        self.mount("rw")
        subprocess.run(["git", "init", "-q"], cwd=self.place, check=True)
        subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=self.place, check=True)
        (self.place / "data").mkdir()
        subprocess.run(["sync", "-f", str(self.place)], check=True)
        self.unmount()

    def mount(self, options: str) -> None:
        command = ["mount", "-o", f"loop,{options}", str(self.image), str(self.place)]
        subprocess.run(command, check=True)

    def unmount(self) -> None:
        for _ in range(100):
            unmounting = subprocess.run(["umount", str(self.place)], capture_output=True)
            if unmounting.returncode == 0:
                return
            time.sleep(0.1)
        raise OSError(f"{self.place} stays mounted")

    def cut(self) -> None:
        """Throw away what is not written, and refuse all further writing."""
        handle = os.open(self.place, os.O_RDONLY)
        fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        os.close(handle)


@dataclass(frozen=True)
class Outcome:
    """What a cut leaves of a part."""

    state: str  # "whole", "lost", or what is wrong
    reported: int  # the last number that was reported as written
    there: int  # the last number that is there; -1 where the part is damaged

    @property
    def is_damaged(self) -> bool:
        return self.state not in ("whole", "lost")


def cut_once(disk: Disk, part: str, options: str, seconds: float, begin: int) -> Outcome:
    """Write a part from the number `begin` on, and cut the power after so many seconds."""
    arguments = [sys.executable, "-m", "benchmarks.power_loss"]
    arguments += ["--part", part, "--begin", str(begin)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    disk.mount(options)
    with subprocess.Popen(
        [*arguments, "write"],
        cwd=disk.place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as writer:
        lines = read_for(writer.stdout, seconds)
        disk.cut()
        writer.kill()
        lines += writer.stdout.read()
    whole_lines, _, _ = lines.rpartition(b"\n")
    reported = int(whole_lines.split()[-1])

    disk.unmount()
    disk.mount(options)
    try:
        looked = subprocess.run(
            [*arguments, "look"],
            cwd=disk.place,
            env=environment,
            capture_output=True,
            text=True,
        )
    finally:
        disk.unmount()
    if looked.returncode:
        error = looked.stderr.strip().splitlines()[-1]
        return Outcome(error, reported, there=-1)
    there = int(looked.stdout.split()[-1])
    return Outcome("lost" if there < reported else "whole", reported, there)


def read_for(stream: IO[bytes], seconds: float) -> bytes:
    """What a process writes until so many seconds after its first output, or until it ends."""
    output = b""
    until = math.inf
    while time.monotonic() < until:
        readable, _, _ = select.select([stream], [], [], 0.01)
        if not readable:
            continue
        block = os.read(stream.fileno(), 1 << 16)
        if not block:
            break
        until = min(until, time.monotonic() + seconds)
        output += block
    return output


def measure(cuts: int, folder: Path) -> Iterator[list[str]]:
    """A row for each part: cuts, and how often all was whole, done but lost, or damaged."""
    for part in PARTS:
        outcomes: Counter[str] = Counter()
        begin = 0
        disk = Disk(folder)
        disk.make()
        for number in range(cuts):
            moment = draws.uniform(0, f"power/{part}/ext4/s", str(number))
            place = draws.uniform(0, f"power/{part}/ext4/o", str(number))
            options = OPTIONS[int(place * len(OPTIONS))]
            outcome = cut_once(disk, part, options, LONGEST * moment, begin)
            begin = outcome.there + 1
            outcomes["damaged" if outcome.is_damaged else outcome.state] += 1
            if outcome.state != "whole":
                line = [part, options, outcome.state, outcome.reported, outcome.there]
                print(json.dumps(line), file=sys.stderr, flush=True)
            if outcome.is_damaged:
                disk.make()
        counts = [str(outcomes[state]) for state in ("whole", "lost", "damaged")]
        yield [part, str(cuts), *counts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "write", "look"], nargs="?", default="measure")
    parser.add_argument("--cuts", type=int, default=40, help="of each part")
    parser.add_argument("--part", choices=PARTS, help="for the processes that write and look")
    parser.add_argument("--begin", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.what == "measure":
        with tempfile.TemporaryDirectory() as folder:
            print(table(HEAD, measure(arguments.cuts, Path(folder))))
        return

    part = PARTS[arguments.part]
    if arguments.what == "look":
        say(part.read())
        return
    for number in count(arguments.begin):
        part.write(number)
        say(number)


if __name__ == "__main__":
    main()
